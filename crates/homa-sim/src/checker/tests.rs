//! A correct transport passes the checks, and each broken promise is noticed.

use super::*;
use crate::checker::saboteur::{OneShot, Sabotage};
use crate::engine::{Application, Context, Halt, RandomFaults, Simulation};
use crate::fabric::{Buffers, FabricConfig};
use crate::time::SimDuration;
use crate::topology::{Physics, SingleSwitch};
use crate::transport::Homa;
use homa_proto::{
    Body, Data, Event, MessageId, MessageKind, PeerId, Rate, Request, RpcHandle, Span, Submit, Time,
};
use homa_workload::rng::Rng;

struct Echo;

impl Application for Echo {
    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        if let Event::Delivered(message) = event
            && message.kind == MessageKind::Request
        {
            let _ = net.submit(host, Submit::Response { rpc: message.rpc, length: 300 });
        }
    }

    fn wake_host<C: Context>(&mut self, net: &mut C, host: HostId, token: u64) {
        let request = Request {
            peer: PeerId(1 - host.0),
            local_port: 1 + token as u16,
            remote_port: 2,
            length: 500,
            deadline: Time(net.now().protocol().0 + 5_000_000),
            idempotent: true,
            head: 0,
            cookie: token,
        };
        let _ = net.submit(host, Submit::Request(request));
    }
}

fn promises() -> Promises {
    Promises {
        may_repeat: false,
        unreachable_after: None,
        pauses: Vec::new(),
        moves: Vec::new(),
        foreign_addresses: 0,
        indeterminate: false,
        healthy_from: SimTime::MAX,
        deadline_slack: SimDuration::micros(1),
        max_message: 1_000,
        max_payload: 1_000,
        max_unscheduled: 1_000,
        memory_budget: 10_000,
        max_rpcs: 100,
    }
}

/// Rules broken by a run of 40 calls: either without faults, or with all faults and a crash, after
/// which a request may run again if its call allows it.
fn broken(sabotage: Option<Sabotage>, faults: bool) -> Vec<&'static str> {
    let mut checker = Checker::new(2, promises());
    let now = forty_calls((sabotage, faults, faults), &mut checker);
    checker.finish(now);
    checker.violations().iter().map(|violation| violation.rule).collect()
}

/// The same with the checker of any transport, which does not model hosts that crash.
fn broken_messages(sabotage: Option<Sabotage>, faults: bool) -> Vec<&'static str> {
    let promises = MessagePromises {
        may_repeat: false,
        names_places: true,
        healthy_from: SimTime::MAX,
        has_faults: faults,
    };
    let mut checker = MessageChecker::new(2, promises);
    let now = forty_calls((sabotage, faults, false), &mut checker);
    checker.finish(now);
    checker.violations().iter().map(|violation| violation.rule).collect()
}

/// Runs forty calls between two hosts; returns the time of their end.
fn forty_calls<P: Probe<OneShot>>(
    (sabotage, faults, crash): (Option<Sabotage>, bool, bool),
    probe: P,
) -> SimTime {
    let (rate, cable) = (Rate::gbps(10), SimDuration::nanos(50));
    let physics =
        Physics { receiver_delay: SimDuration::nanos(500), ..Physics::uniform(rate, rate, cable) };
    let wiring = SingleSwitch { hosts: 2, physics }.wire();
    let fabric = FabricConfig { buffers: Buffers::PerPort(100_000), ..FabricConfig::default() };
    let rates = if faults { 200_000 } else { 0 };
    let random = RandomFaults {
        rng: Rng::stream(1, "faults"),
        loss_ppm: rates,
        duplicate_ppm: rates,
        delay_ppm: rates,
        max_delay_ns: 50_000,
        heals_at: SimTime(50_000_000_000),
    };
    let make = Box::new(move |_, life| OneShot::new(life, sabotage));
    let mut network = Simulation::new(wiring, fabric, make, (Echo, probe, random));
    for token in 0..40 {
        let at = SimTime(u64::from(token) * 100_000_000);
        network.wake_host_at(HostId(token % 2), at, token.into());
    }
    if crash {
        network.crash(HostId(1), SimTime(2_000_000_000), Some(SimDuration::millis(1)));
    }
    assert_ne!(network.run_until(SimTime(200_000_000_000), 1_000_000), Halt::Events);
    network.now()
}

#[test]
fn a_correct_transport_passes_without_and_with_faults() {
    assert_eq!(broken(None, false), Vec::<&str>::new());
    assert_eq!(broken(None, true), Vec::<&str>::new());
    assert_eq!(broken_messages(None, false), Vec::<&str>::new());
    assert_eq!(broken_messages(None, true), Vec::<&str>::new());
}

#[test]
fn broken_promises_are_noticed_from_messages_alone() {
    use Sabotage::*;
    let cases = [
        (ExecutesDuplicates, "a request runs once"),
        (ForgetsToRelease, "sent messages are released"),
        (ReleasesTwice, "a message is released once"),
        (FailsEarly, "failures are justified"),
        (KeepsSilent, "every message arrives or fails"),
        (DeliversHalf, "a delivered message is whole"),
        (PlacesElsewhere, "a delivered message is whole"),
    ];
    for (sabotage, rule) in cases {
        let rules = broken_messages(Some(sabotage), true);
        assert!(rules.contains(&rule), "{sabotage:?} broke {rules:?}");
    }
    // If there are no faults, no peer can be unreachable.
    let rules = broken_messages(Some(CallsUnreachable), false);
    assert!(rules.contains(&"failures are justified"), "{rules:?}");
}

#[test]
fn every_broken_promise_is_noticed() {
    use Sabotage::*;
    let cases = [
        (ExecutesDuplicates, "a request runs at most once"),
        (ForgetsToRelease, "no message is left over"),
        (ReleasesTwice, "a message is released once"),
        (FailsEarly, "failures are justified"),
        (FailsLate, "a call ends in time"),
        (KeepsSilent, "every call ends"),
        (DeliversHalf, "a delivered message is whole"),
        (PlacesElsewhere, "bytes go where the packet says"),
        (CallsUnreachable, "failures are justified"),
        (SendsReleased, "only live messages are sent"),
        (ReusesIds, "RPC ids are unique"),
    ];
    for (sabotage, rule) in cases {
        let rules = broken(Some(sabotage), true);
        assert!(rules.contains(&rule), "{sabotage:?} broke {rules:?}");
    }
}

/// The server does not know the RPC, so the request is sent again under another id.
#[test]
fn one_rpc_unknown_allows_one_new_id() {
    let mut checker = Checker::new(2, Promises { indeterminate: true, ..promises() });
    let (client, peer, message, length) = (HostId(0), PeerId(1), MessageId(1), 500);
    let (local_port, remote_port, deadline) = (1, 2, Time(1_000_000_000));
    let (idempotent, head, cookie) = (true, 0, 7);
    let request =
        Request { peer, local_port, remote_port, length, deadline, idempotent, head, cookie };
    let rpc = RpcHandle { index: 0, generation: 0 };
    let names = Ok(Submitted { rpc, message: Some(message) });
    Probe::<Homa>::submitted(&mut checker, SimTime(1), client, &Submit::Request(request), &names);
    let mut send = |id, retransmit| {
        let data = Data {
            span: Span { message, offset: 0, len: length },
            message_length: length,
            incoming: length,
            ack: None,
            cutoff_version: 0,
            retransmit,
            incast: None,
        };
        let body = Body::Data(data);
        let packet = Packet { peer, priority: 7, local_port, remote_port, id: RpcId(id), body };
        let label = Label::new(HostId(1), 600);
        Probe::<Homa>::transmitted(&mut checker, SimTime(2), client, 0, &packet, &label);
        let body = Body::RpcUnknown { remembered: None, no_server: false, reason: None };
        let answer = Packet { peer: PeerId(0), id: RpcId(id).server(), body, ..packet };
        if !retransmit {
            let consumed = Receipt::Consumed;
            Probe::<Homa>::received(
                &mut checker,
                SimTime(3),
                client,
                HostId(1),
                0,
                &answer,
                &consumed,
            );
        }
        checker.violations().iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert!(send(2, false).is_empty() && send(4, true).is_empty());
    assert_eq!(send(6, true), ["DATA describes its message"]);
}

#[test]
fn silence_is_demanded_if_expected() {
    let mut checker = Checker::new(2, promises());
    checker.expect_quiet(SimTime(10));
    let body = Body::Busy { come_back: None };
    let id = RpcId(2);
    let peer = PeerId(1);
    let packet = Packet { peer, priority: 7, local_port: 1, remote_port: 2, id, body };
    let label = Label::new(HostId(1), 84);
    Probe::<Homa>::transmitted(&mut checker, SimTime(9), HostId(0), 0, &packet, &label);
    assert_eq!(checker.violations(), []);
    Probe::<Homa>::transmitted(&mut checker, SimTime(10), HostId(0), 0, &packet, &label);
    assert_eq!(checker.violations()[0].rule, "silence after the last call");
}
