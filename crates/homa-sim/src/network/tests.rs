//! Claims about the network, with a transport that is not Homa.

use super::*;
use crate::stop_and_wait::StopAndWait;
use crate::time::SimDuration;
use homa_proto::{Event, MessageKind, PeerId, Rate, Request, Submit, Time};
use homa_workload::rng::Rng;

/// Calls `(client, server, bytes)` by token; servers echo the length.
#[derive(Default)]
struct Echo {
    calls: Vec<(u32, u32, u32)>,
    answers: Vec<(u64, SimTime)>,
    failures: u32,
    restarts: u32,
}

impl Application<StopAndWait> for Echo {
    fn on_event<P: Probe>(&mut self, host: &mut Context<'_, StopAndWait, P>, event: &Event) {
        match event {
            Event::Delivered(message) if message.kind == MessageKind::Request => {
                let answer = Submit::Response { rpc: message.rpc, length: message.length };
                host.submit(answer).unwrap();
            }
            Event::Delivered(message) => self.answers.push((message.cookie, host.now())),
            Event::Failed { .. } => self.failures += 1,
            _ => {}
        }
    }

    fn on_wake<P: Probe>(&mut self, host: &mut Context<'_, StopAndWait, P>, token: u64) {
        let (_, server, length) = self.calls[token as usize];
        let request = Request {
            peer: PeerId(server),
            local_port: 1,
            remote_port: 2,
            length,
            deadline: Time(50_000_000),
            idempotent: false,
            cookie: token,
        };
        host.submit(Submit::Request(request)).unwrap();
    }

    fn on_restart<P: Probe>(&mut self, _: &mut Context<'_, StopAndWait, P>) {
        self.restarts += 1;
    }
}

/// 10 Gbit/s: 800 ps a byte.
fn physics() -> NetworkConfig {
    NetworkConfig {
        rate: LinkRate::new(Rate::gbps(10)),
        propagation: SimDuration::nanos(50),
        software_delay: SimDuration::nanos(500),
        buffer_bytes: 100_000,
        framing: Framing::Ip146,
    }
}

fn network<F: Fault>(calls: &[(u32, u32, u32)], faults: F) -> Network<StopAndWait, Echo, F, ()> {
    let echo = Echo { calls: calls.to_vec(), ..Echo::default() };
    let make = Box::new(|_, life| StopAndWait::new(life, None));
    let mut network = Network::new(physics(), 4, make, (echo, faults, ()));
    for (token, call) in calls.iter().enumerate() {
        network.wake(HostId(call.0), SimTime::ZERO, token as u64);
    }
    network
}

fn run<F: Fault>(network: &mut Network<StopAndWait, Echo, F, ()>) {
    assert!(network.run_until(SimTime(200_000_000_000), 1_000_000));
    assert_eq!(network.packets_in_flight(), 0);
}

#[test]
fn an_idle_echo_takes_four_serialisations_and_the_fixed_delays() {
    let mut network = network(&[(0, 1, 1000)], NoFaults);
    run(&mut network);
    // 1000 + 56 + 20 + 38 wire bytes, twice each way; two cables and one software delay each way.
    let one_way = 2 * 1114 * 800 + 2 * 50_000 + 500_000;
    assert_eq!(network.application().answers, [(0, SimTime(2 * one_way))]);
    // Request, response and ack, two links each.
    assert_eq!(network.packet_hops(), 6);
}

#[test]
fn senders_share_the_receivers_link_and_the_buffer_drops_the_rest() {
    let calls: Vec<_> = (0..300).map(|i| (i % 3, 3, 1000)).collect();
    let mut network = network(&calls, NoFaults);
    assert!(network.run_until(SimTime(800_000_000), 1_000_000));
    let counters = *network.port_counters(HostId(3)).unwrap();
    // Three wires at full rate feed one: two thirds of each packet's bytes queue up until the
    // limit.
    assert!(counters.max_bytes > 100_000 - 1114 && counters.max_bytes <= 100_000);
    assert!(counters.dropped_frames() > 0);
    run(&mut network);
    assert_eq!(network.application().answers.len(), 300);
}

#[test]
fn scripted_loss_costs_one_retransmission() {
    let mut lost = 0;
    let script = Script(move |_, link, _: &Packet| {
        lost += u32::from(link == Link::Up(HostId(0)));
        if lost == 1 && link == Link::Up(HostId(0)) { Verdict::Lose } else { Verdict::Pass }
    });
    let mut network = network(&[(0, 1, 100)], script);
    run(&mut network);
    let [(0, at)] = network.application().answers[..] else { panic!() };
    assert!(at > SimTime(1_000_000_000) && at < SimTime(1_010_000_000), "{at:?}");
}

#[test]
fn a_paused_host_answers_when_it_resumes_and_a_dead_one_never() {
    let mut paused = network(&[(0, 1, 100), (2, 3, 100)], NoFaults);
    paused.pause(HostId(1), SimTime(0), SimDuration::micros(500));
    paused.crash(HostId(3), SimTime(0), None);
    run(&mut paused);
    let [(0, at)] = paused.application().answers[..] else { panic!() };
    assert!(at > SimTime(500_000_000) && at < SimTime(510_000_000), "{at:?}");
    assert_eq!(paused.application().failures, 1);
    assert!(paused.transport(HostId(3)).is_none());
}

#[test]
fn a_restarted_host_starts_a_new_life_and_old_wake_ups_stay_dead() {
    let mut network = network(&[(0, 1, 100), (0, 1, 100)], NoFaults);
    network.wake(HostId(0), SimTime(3_000_000_000), 1);
    network.crash(HostId(0), SimTime(1_000), Some(SimDuration::millis(1)));
    run(&mut network);
    assert_eq!(network.application().restarts, 1);
    assert_eq!(network.application().answers, []);
}

#[test]
fn equal_seeds_give_equal_traces_and_other_seeds_others() {
    let trace = |seed| {
        let faults = RandomFaults {
            rng: Rng::stream(seed, "faults"),
            loss_ppm: 50_000,
            duplicate_ppm: 50_000,
            delay_ppm: 50_000,
            max_delay_ns: 20_000,
            heals_at: SimTime(20_000_000_000),
        };
        let calls: Vec<_> = (0..200).map(|i| (i % 3, 3 - i % 2, 500)).collect();
        let mut network = network(&calls, faults);
        run(&mut network);
        assert_eq!(
            network.application().answers.len() + network.application().failures as usize,
            200
        );
        network.trace_hash()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
