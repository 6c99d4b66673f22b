//! Tests of captures and of the trace verifier.

use super::*;
use crate::engine::{NoFaults, Simulation};
use crate::fabric::queue::Order;
use crate::fabric::{Buffers, FabricConfig};
use crate::measure::latency::Latencies;
use crate::scenario::{Exchange, TrafficEnding};
use crate::scheme::{Environment, HomaConfig, homa};
use crate::time::{SimDuration, SimTime};
use crate::topology::{LeafSpine, Physics, SingleSwitch, Wiring};
use crate::trace::{Checked, Count, Recorder, TraceEvent, TraceListener, Verifier, Violation};
use crate::traffic::open_loop::{OpenLoop, Pairs};
use crate::traffic::{Distance, Generator, Limits, Pattern};
use homa_proto::{Body, PeerId, Rate};
use homa_workload::sizes::Workload;
use pcap_file::pcapng::{Block, PcapNgReader};

/// Simulates eight hosts in two racks under load; returns the trace and the capture of that run.
fn run() -> (Wiring, Vec<TraceEvent>, Vec<u8>) {
    let physics = Physics::homa();
    let wiring = LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2, physics }.wire();
    let sizes = Workload::W3.sizes().unwrap().truncated(100_000);
    let link = Rate::gbps(10);
    let basis = Environment { link, rtt_bytes: 9680, byte_picos: 0, workload: "w3", sizes: &sizes };
    let stack = HomaConfig::new(homa::default, &basis, &Default::default()).unwrap();
    let limits = Limits {
        warm_up: SimTime::ZERO,
        messages: 500,
        time: SimTime::MAX,
        ending: TrafficEnding::Drain,
        sample_every: SimDuration::micros(100),
        keep_above: u32::MAX,
        probe_lost_after: SimDuration(u64::MAX),
    };
    let arrivals = OpenLoop::new(sizes.clone(), Pairs::All(8), 1e6, 5);
    let source = Box::new(arrivals);
    let pattern = Pattern { source, exchange: Exchange::Echo, response_bytes: None };
    let distance = Distance { rack: 4, pod: 8 };
    let generator = Generator::new(8, pattern, limits, (distance, Latencies::new(&sizes)));
    let capture = Capture::new(Vec::new(), 8, Headers::Ip146, u64::MAX).unwrap();
    let probes = (Recorder(Vec::new()), Some(capture));
    let make = Box::new(move |host, life| stack.host(host, life, 5));
    let parts = (generator, probes, NoFaults);
    let mut sim = Simulation::new(wiring.clone(), FabricConfig::default(), make, parts);
    sim.wake_at(SimTime::ZERO, Generator::START);
    for _ in 0..2 {
        sim.run_until(SimTime(1_000_000_000_000), u64::MAX);
    }
    assert_eq!(sim.application().tally.delivered, 500);
    let (recorder, capture) = sim.probe_mut();
    let bytes = capture.take().unwrap().finish().unwrap();
    (wiring, std::mem::take(&mut recorder.0), bytes)
}

/// The verdict on the trace of a run that leaves the network empty.
fn judge(wiring: &Wiring, events: &[TraceEvent]) -> Result<Checked, Vec<Violation>> {
    let mut verifier = Verifier::new(wiring, &FabricConfig::default(), Order::Strict);
    events.iter().for_each(|event| verifier.on_event(event));
    verifier.finish(0)
}

#[test]
fn a_run_obeys_physics_and_its_capture_reads_back() {
    let (wiring, events, bytes) = run();
    let checked = judge(&wiring, &events).unwrap();
    let sent = checked.sent.bytes;
    assert_eq!((checked.received, checked.lost), (checked.sent, Count::default()));
    let transmitted = events.iter().filter(|e| matches!(e, TraceEvent::Transmitted { .. }));
    let (mut packets, mut original) = (0, 0);
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        packets += 1;
        original += u64::from(packet.original_len) + u64::from(NOT_CAPTURED);
        assert_eq!(packet.data[23], 146, "IP protocol");
        let homa = &packet.data[ETHERNET + IPV4..];
        // The payload is not in the capture; the IP header says how long it is.
        let total = usize::from(u16::from_be_bytes([packet.data[16], packet.data[17]]));
        let mut whole = homa.to_vec();
        whole.resize(total - IPV4, 0);
        let decoded = wire::decode(&whole, PeerId(0), 0).unwrap();
        if let Body::Data(data) = decoded.packet.body {
            assert!(data.message_length <= 100_000 && data.span.offset < data.message_length);
        }
    }
    assert_eq!(packets, transmitted.count());
    assert_eq!(original, sent, "lengths are the simulated ones");
}

/// The first violation that the verifier reports.
fn blame(wiring: &Wiring, config: &FabricConfig, events: &[TraceEvent]) -> String {
    let mut verifier = Verifier::new(wiring, config, Order::Strict);
    events.iter().for_each(|event| verifier.on_event(event));
    let violations = verifier.finish(0).unwrap_err();
    violations[0].what.clone()
}

/// Two hosts (nodes 0 and 1) at switch 2, which own the first two ports. 10 Gbit/s, 250 ns.
fn pair() -> Wiring {
    let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(10), SimDuration::nanos(250));
    SingleSwitch { hosts: 2, physics }.wire()
}

/// A frame of 1000 B from host 0 to host 1. It reaches the switch after 1050 ns.
fn passage(slot: u32, at_ps: u64, priority: u8) -> [TraceEvent; 4] {
    let there = at_ps + 1_050_000;
    [
        TraceEvent::Transmitted { at_ps, slot, host: 0, to: 1, wire_bytes: 1000, priority },
        TraceEvent::Enqueued { at_ps: there, slot, port: 3, queued_bytes: 0 },
        TraceEvent::Departed { at_ps: there, slot, port: 3 },
        TraceEvent::Received { at_ps: there + 1_050_000, slot, host: 1, from: 0 },
    ]
}

#[test]
fn every_law_that_a_trace_breaks_is_named() {
    let wiring = pair();
    let plain = FabricConfig::default();
    let whole = passage(0, 0, 3);
    assert!(judge(&wiring, &whole).is_ok());
    let change = |place: usize, event: TraceEvent| {
        let mut events = whole.to_vec();
        events[place] = event;
        events
    };
    let enqueued =
        |at_ps, port, queued_bytes| TraceEvent::Enqueued { at_ps, slot: 0, port, queued_bytes };
    let departed = |at_ps| TraceEvent::Departed { at_ps, slot: 0, port: 3 };
    let received = |at_ps, host| TraceEvent::Received { at_ps, slot: 0, host, from: 0 };
    let lost = |overflow| TraceEvent::Lost { at_ps: 1_050_000, slot: 0, overflow };
    let second = passage(1, 0, 3);
    for (events, what) in [
        (whole[1..].to_vec(), "comes from nowhere"),
        (whole[..3].to_vec(), "did not end"),
        ([&whole[..], &whole[3..]].concat(), "comes from nowhere"),
        ([&whole[..1], &second[..1]].concat(), "while it sends another"),
        ([&whole[..1], &whole[..]].concat(), "starts while it is in flight"),
        (change(1, enqueued(1_049_999, 3, 0)), "due at 1050000"),
        (change(1, enqueued(1_050_000, 0, 0)), "jumps from port 0"),
        (change(1, enqueued(1_050_000, 3, 7)), "reports 7 B waiting"),
        (change(2, departed(1_050_001)), "idles while"),
        (change(2, departed(1_049_999)), "out of order"),
        (change(3, received(2_100_000, 0)), "wrong host"),
        (change(3, received(2_099_999, 1)), "due at 2100000"),
        (change(2, lost(true)), "has room"),
        (change(0, passage(0, 1, 3)[0]), "due at 1050001"),
        ([&second[..], &whole[..1]].concat(), "is reported at"),
    ] {
        let said = blame(&wiring, &plain, &events);
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn order_buffers_and_interruptions_are_judged() {
    let wiring = pair();
    let frame = |slot, host, at_ps, priority| TraceEvent::Transmitted {
        at_ps,
        slot,
        host,
        to: 1,
        wire_bytes: 1000,
        priority,
    };
    let at =
        |slot, at_ps, queued_bytes| TraceEvent::Enqueued { at_ps, slot, port: 3, queued_bytes };
    let leaves = |slot, at_ps| TraceEvent::Departed { at_ps, slot, port: 3 };
    // Host 1 sends to itself, so two frames meet at the switch.
    let meet = [
        frame(0, 0, 0, 3),
        frame(1, 1, 400_000, 5),
        at(0, 1_050_000, 0),
        leaves(0, 1_050_000),
        at(1, 1_450_000, 0),
    ];
    let plain = FabricConfig::default();
    let small = FabricConfig { buffers: Buffers::PerPort(1_500), ..plain };
    let preempts = FabricConfig { preemption: true, ..plain };
    let interrupted =
        |at_ps, left_bytes| TraceEvent::Interrupted { at_ps, slot: 0, port: 3, left_bytes };
    let told = |more: &[TraceEvent]| [&meet[..], more].concat();
    let late = [frame(2, 0, 9_000_000, 3)];
    for (config, events, what) in [
        (&small, told(&[leaves(1, 1_850_000)]), "more than port 3 can hold"),
        (&plain, told(&[TraceEvent::Lost { at_ps: 1_450_000, slot: 1, overflow: true }]), "room"),
        (&plain, told(&[interrupted(1_450_000, 500)]), "must not interrupt"),
        (&preempts, told(&[leaves(1, 1_850_000)]), "does not interrupt"),
        (&preempts, told(&[interrupted(1_450_000, 499)]), "500 B to go, not 499"),
        (&plain, meet[..1].iter().chain(&late).copied().collect(), "never arrives"),
        (&plain, vec![meet[0], meet[2], late[0]], "idle although"),
    ] {
        let said = blame(&wiring, config, &events);
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn a_trace_with_a_missing_event_is_rejected() {
    let (wiring, events, _) = run();
    for missing in [0, events.len() / 2, events.len() - 1] {
        let mut forged = events.clone();
        forged.remove(missing);
        assert!(judge(&wiring, &forged).is_err(), "{:?}", events[missing]);
    }
}
