//! Claims about switches and links, with frames that a plan sends without a protocol.

use homa_proto::Rate;
use homa_workload::rng::Rng;

use super::plain::{Hose, Plain, Plainly, Sent, planned};
use crate::engine::*;
use crate::fabric::{Buffers, FabricConfig, Forwarding, StrictPriority};
use crate::software_switch::SoftwarePort;
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{FatTree, HostId, LeafSpine, NodeId, Physics, PortId, SingleSwitch, Tier};

/// 10 Gbit/s everywhere, which is 800 ps per byte; every link has this delay.
fn slow(delay: SimDuration) -> Physics {
    Physics::uniform(Rate::gbps(10), Rate::gbps(10), delay)
}

fn frame(at_ns: u64, from: u32, to: u32, (bytes, priority): (u32, u8)) -> Sent {
    Sent { at: SimTime(at_ns * 1_000), from, to, bytes, priority, flow: 0 }
}

fn run<P: Probe<Hose>>(mut simulation: Plainly<P>) -> Plainly<P> {
    assert_eq!(simulation.run_to_drain(), Halt::Drained);
    assert_eq!(simulation.packets_in_flight(), 0);
    simulation
}

/// Counts events, and records the departures of every port.
#[derive(Default)]
struct Tally {
    sent: u64,
    received: u64,
    lost: Vec<LossCause>,
    arrivals: Vec<(SimTime, AtPort)>,
    departures: Vec<(SimTime, AtPort)>,
}

impl Probe<Hose> for Tally {
    fn transmitted(
        &mut self,
        _: SimTime,
        _: HostId,
        _: u32,
        _: &Plain,
        _: &crate::transport::Label,
    ) {
        self.sent += 1;
    }

    fn received(
        &mut self,
        _: SimTime,
        _: HostId,
        _: HostId,
        _: u32,
        _: &Plain,
        _: &homa_proto::Receipt,
    ) {
        self.received += 1;
    }

    fn lost(&mut self, _: SimTime, _: HostId, _: u32, _: &Plain, cause: LossCause) {
        self.lost.push(cause);
    }

    fn enqueued(&mut self, now: SimTime, frame: &AtPort, _: &PortBacklog) {
        self.arrivals.push((now, *frame));
    }

    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        self.departures.push((at, *frame));
    }
}

/// `n` frames at random times within `span_ns`, between random hosts.
fn random(seed: u64, hosts: u32, n: u32, span_ns: u32) -> Vec<Sent> {
    let mut rng = Rng::stream(seed, "frames");
    let mut draw = || {
        let (from, to) = (rng.uniform_below(hosts), rng.uniform_below(hosts - 1));
        Sent {
            at: SimTime(u64::from(rng.uniform_below(span_ns)) * 1_000),
            from,
            to: to + u32::from(to >= from),
            bytes: 84 + rng.uniform_below(1_455),
            priority: rng.uniform_below(8) as u8,
            flow: rng.uniform_below(100),
        }
    };
    (0..n).map(|_| draw()).collect()
}

#[test]
fn a_frame_of_higher_priority_interrupts_only_with_preemption() {
    let sent = [frame(0, 0, 2, (1_500, 0)), frame(1_500, 1, 2, (100, 7))];
    let arrivals = |preemption| {
        let wiring = SingleSwitch { hosts: 3, physics: slow(SimDuration::ZERO) }.wire();
        let config = FabricConfig { preemption, ..FabricConfig::default() };
        run(planned(wiring, config, &sent, ())).application().arrived.clone()
    };
    // The long frame is on the last wire from 1200 to 2400 ns; the short one arrives at 1580.
    assert_eq!(arrivals(false), [(0, SimTime(2_400_000)), (1, SimTime(2_480_000))]);
    assert_eq!(arrivals(true), [(1, SimTime(1_660_000)), (0, SimTime(2_480_000))]);
}

#[test]
fn an_interrupted_frame_has_left_at_the_rate_at_which_it_began() {
    let sent = [frame(0, 0, 2, (1_500, 0)), frame(1_500, 1, 2, (100, 7))];
    let wiring = SingleSwitch { hosts: 3, physics: slow(SimDuration::ZERO) }.wire();
    let config = FabricConfig { preemption: true, ..FabricConfig::default() };
    let mut simulation = planned(wiring, config, &sent, ());
    simulation.change_link(PortId(5), SimTime(1_300_000), LinkChange::Rate(Rate::gbps(1)));
    // From 1200 to 1580 ns 475 B have left; 100 and 1025 B follow at 8 ns a byte.
    let arrived = run(simulation).application().arrived.clone();
    assert_eq!(arrived, [(1, SimTime(2_380_000)), (0, SimTime(10_580_000))]);
}

#[test]
fn a_slowed_link_is_not_cut_through() {
    let wiring = SingleSwitch { hosts: 2, physics: slow(SimDuration::ZERO) }.wire();
    let config = FabricConfig { cut_through: true, ..FabricConfig::default() };
    let arrived = |mbps: Option<u64>| {
        let mut simulation = planned(wiring.clone(), config, &[frame(10, 0, 1, (1_000, 0))], ());
        if let Some(mbps) = mbps {
            simulation.change_link(PortId(0), SimTime(0), LinkChange::Rate(Rate::mbps(mbps)));
        }
        run(simulation).application().arrived[0].1
    };
    // 64 B of it take 51.2 ns; at 1 Gbit/s all of it has arrived after 8 us.
    assert_eq!(arrived(None), SimTime(10_000 + 51_200 + 800_000));
    assert_eq!(arrived(Some(1_000)), SimTime(10_000 + 8_000_000 + 800_000));
}

#[test]
fn preemption_conserves_work_and_never_delays_the_highest() {
    let sent = random(3, 8, 4_000, 400_000);
    let wiring = SingleSwitch { hosts: 8, physics: slow(SimDuration::nanos(100)) }.wire();
    let arrivals = |preemption| {
        let config = FabricConfig { preemption, ..FabricConfig::default() };
        run(planned(wiring.clone(), config, &sent, ())).application().arrived.clone()
    };
    let (plain, interrupting) = (arrivals(false), arrivals(true));
    assert_eq!((plain.len(), interrupting.len()), (4_000, 4_000));
    let sum = |list: &[(usize, SimTime)], priority: u8| -> u64 {
        let of_priority = list.iter().filter(|(index, _)| sent[*index].priority == priority);
        of_priority.map(|(_, at)| at.0).sum()
    };
    assert!(sum(&interrupting, 7) < sum(&plain, 7));
    assert!(sum(&interrupting, 0) > sum(&plain, 0));
    // Links are never idle while a frame waits, so the last frame should arrive at the same time,
    // except that a byte in transmission counts as whole at each interruption.
    let (last, later) = (plain.last().unwrap().1, interrupting.last().unwrap().1);
    assert!(later >= last && later.since(last) < SimDuration::nanos(100), "{last:?} {later:?}");
}

#[test]
fn no_frame_arrives_before_its_last_bit_can() {
    let sent = random(4, 8, 4_000, 400_000);
    let wiring = SingleSwitch { hosts: 8, physics: slow(SimDuration::micros(1)) }.wire();
    for preemption in [false, true] {
        let config = FabricConfig { preemption, ..FabricConfig::default() };
        let simulation = run(planned(wiring.clone(), config, &sent, ()));
        assert_eq!(simulation.application().arrived.len(), 4_000);
        for &(index, at) in &simulation.application().arrived {
            let frame = sent[index];
            let way = wiring.ideal(HostId(frame.from), HostId(frame.to), &[frame.bytes]);
            assert!(at.since(frame.at) >= way, "{preemption}: {frame:?} at {at:?}");
        }
    }
}

#[test]
fn cut_through_takes_a_header_a_switch_and_a_frame_at_the_end() {
    let physics = slow(SimDuration::nanos(100));
    let wiring = LeafSpine { racks: 2, hosts_per_rack: 2, spines: 2, physics }.wire();
    let arrival = |cut_through| {
        let config = FabricConfig { cut_through, ..FabricConfig::default() };
        let sent = [frame(0, 0, 3, (1_500, 0))];
        run(planned(wiring.clone(), config, &sent, ())).application().arrived[0].1.0
    };
    assert_eq!(arrival(false), 4 * (1_200_000 + 100_000));
    assert_eq!(arrival(true), 3 * (51_200 + 100_000) + 1_200_000 + 100_000);
}

#[test]
fn cut_through_delivers_everything_under_load() {
    let physics = slow(SimDuration::nanos(10));
    let wiring = LeafSpine { racks: 3, hosts_per_rack: 4, spines: 2, physics }.wire();
    let config = FabricConfig { cut_through: true, ..FabricConfig::default() };
    let sent = random(5, 12, 5_000, 300_000);
    assert_eq!(run(planned(wiring, config, &sent, ())).application().arrived.len(), 5_000);
}

#[test]
fn a_port_serves_as_the_switch_model_does() {
    let wiring = SingleSwitch { hosts: 6, physics: slow(SimDuration::nanos(50)) }.wire();
    let buffer = 40_000;
    let config = FabricConfig { buffers: Buffers::PerPort(buffer), ..FabricConfig::default() };
    // Five senders and one receiver, so that many frames wait and some are dropped.
    let all = random(9, 6, 3_000, 1_500_000).into_iter();
    let sent: Vec<Sent> = all.map(|s| Sent { from: s.from.min(4), to: 5, ..s }).collect();
    let simulation = run(planned(wiring, config, &sent, Tally::default()));
    let tally = simulation.probe();
    let mut model: SoftwarePort<(u32, u8)> =
        SoftwarePort::new(LinkRate::new(Rate::gbps(10)), buffer, StrictPriority);
    let (mut served, mut dropped) = (Vec::new(), 0);
    for (at, frame) in &tally.arrivals {
        // Departures at exactly the time of an arrival count after it.
        while let Some(left) = model.next(SimTime(at.0.saturating_sub(1))) {
            served.push((left.at, left.frame));
        }
        dropped += u64::from(model.enqueue(*at, (frame.wire_bytes, frame.priority)).is_err());
    }
    served.extend(std::iter::from_fn(|| model.next(SimTime::MAX)).map(|d| (d.at, d.frame)));
    let ours: Vec<_> = tally
        .departures
        .iter()
        .map(|(at, f)| (SimTime(at.0 + 800 * u64::from(f.wire_bytes)), (f.wire_bytes, f.priority)))
        .collect();
    assert_eq!(ours, served);
    assert!(dropped > 0);
    assert_eq!(dropped, tally.lost.len() as u64);
    assert_eq!(dropped, simulation.dropped_frames(simulation.wiring().downlink(HostId(5))));
}

#[test]
fn under_every_buffer_frames_are_delivered_or_counted_lost() {
    let shared = |alpha_percent| Buffers::Shared { bytes: 60_000, alpha_percent };
    let limited = [Buffers::PerPort(20_000), shared(u32::MAX), shared(50)];
    for buffers in limited.into_iter().chain([Buffers::Unlimited]) {
        for preemption in [false, true] {
            let tree =
                FatTree { k: 4, oversubscription: 2, physics: slow(SimDuration::nanos(300)) };
            let config = FabricConfig { buffers, preemption, ..FabricConfig::default() };
            let sent = random(1, 32, 20_000, 500_000);
            let simulation = run(planned(tree.wire(), config, &sent, Tally::default()));
            let tally = simulation.probe();
            assert_eq!(tally.sent, 20_000);
            assert_eq!(tally.sent, tally.received + tally.lost.len() as u64);
            assert_eq!(tally.lost.is_empty(), buffers == Buffers::Unlimited, "{buffers:?}");
            assert_eq!(simulation.counters().lost, tally.lost.len() as u64);
        }
    }
}

#[test]
fn equal_seeds_give_equal_traces_and_others_other_paths() {
    let hash = |seed| {
        let tree = FatTree { k: 4, oversubscription: 1, physics: slow(SimDuration::nanos(300)) };
        let config = FabricConfig { seed, ..FabricConfig::default() };
        let simulation = run(planned(tree.wire(), config, &random(2, 16, 5_000, 200_000), ()));
        (simulation.trace_hash(), simulation.counters().packet_hops)
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1).0, hash(2).0);
}

/// Frames per uplink of the first TOR switch.
fn uplinks(config: FabricConfig, flows: u32) -> Vec<u64> {
    let wiring = LeafSpine::homa().wire();
    let sent: Vec<Sent> = (0..8_000)
        .map(|i| Sent { flow: i % flows, ..frame(u64::from(i) * 100, 0, 100, (84, 0)) })
        .collect();
    let simulation = run(planned(wiring, config, &sent, Tally::default()));
    let mut counts = vec![0; 4];
    for (_, frame) in simulation.probe().departures.iter().filter(|d| d.1.tier == Tier::TorUp) {
        counts[(frame.port.0 - 288) as usize] += 1;
    }
    counts
}

#[test]
fn spraying_is_uniform_and_ecmp_keeps_a_flow_on_its_path() {
    // Four standard deviations: sqrt(8000 / 4 * 3 / 4) is 39.
    let sprayed = uplinks(FabricConfig::default(), 1);
    assert!(sprayed.iter().all(|&n: &u64| n.abs_diff(2_000) < 156), "{sprayed:?}");
    let ecmp = FabricConfig { forwarding: Forwarding::Ecmp, ..FabricConfig::default() };
    let one = uplinks(ecmp, 1);
    assert_eq!(one.iter().max(), Some(&8_000));
    let many = uplinks(ecmp, 400);
    assert!(many.iter().all(|&n| n.abs_diff(2_000) < 1_000), "{many:?}");
}

#[test]
fn a_sender_that_numbers_its_paths_uses_them_evenly() {
    let config = FabricConfig { forwarding: Forwarding::Source, ..FabricConfig::default() };
    assert_eq!(uplinks(config, 4), [2_000; 4]);
    assert_eq!(uplinks(config, 2), [4_000, 4_000, 0, 0]);
    // Four paths between pods, numbered by two binary digits.
    let wiring = FatTree { k: 4, oversubscription: 1, physics: slow(SimDuration::ZERO) }.wire();
    let sent: Vec<Sent> = (0..400)
        .map(|i| Sent { flow: i % 4, ..frame(u64::from(i) * 10_000, 0, 15, (84, 0)) })
        .collect();
    let simulation = run(planned(wiring, config, &sent, Tally::default()));
    let mut counts = std::collections::BTreeMap::new();
    for (_, frame) in simulation.probe().departures.iter().filter(|d| d.1.tier == Tier::AggrUp) {
        *counts.entry(frame.port).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<u32>>(), [100; 4]);
}

#[test]
fn a_failed_link_loses_its_queue_and_routes_avoid_it() {
    let wiring = LeafSpine {
        racks: 2,
        hosts_per_rack: 2,
        spines: 2,
        physics: slow(SimDuration::nanos(500)),
    };
    let wiring = wiring.wire();
    let link = wiring.port_between(NodeId(4), NodeId(6)).unwrap();
    let sent: Vec<Sent> = (0..3_000).map(|i| frame(i * 1_000, 0, 3, (1_000, 0))).collect();
    let mut simulation = planned(wiring, FabricConfig::default(), &sent, Tally::default());
    simulation.change_link(link, SimTime(1_000_300_000), LinkChange::Fail);
    simulation.change_link(link, SimTime(2_000_300_000), LinkChange::Recover);
    let simulation = run(simulation);
    let tally = simulation.probe();
    let uses = |from: u64, to: u64| {
        let window = (SimTime(from * 1_000_000), SimTime(to * 1_000_000));
        let used = |d: &&(SimTime, AtPort)| d.1.port == link && d.0 > window.0 && d.0 < window.1;
        tally.departures.iter().filter(used).count()
    };
    assert!(uses(0, 1_000) > 400 && uses(2_001, 3_000) > 400);
    assert_eq!(uses(1_001, 2_000), 0);
    assert!(!tally.lost.is_empty() && tally.lost.len() <= 3, "{:?}", tally.lost);
    assert!(tally.lost.iter().all(|cause| *cause == LossCause::LinkDown));
}

#[test]
fn a_degraded_link_takes_longer_from_then_on() {
    let wiring = SingleSwitch { hosts: 2, physics: slow(SimDuration::ZERO) }.wire();
    let sent = [frame(0, 0, 1, (1_000, 0)), frame(10_000, 0, 1, (1_000, 0))];
    let mut simulation = planned(wiring, FabricConfig::default(), &sent, ());
    simulation.change_link(PortId(3), SimTime(5_000_000), LinkChange::Rate(Rate::mbps(3_000)));
    let arrived = run(simulation).application().arrived.clone();
    // 8000 bits at 3 Gbit/s: 2666.667 ns, rounded up to a picosecond.
    let second = 10_000_000 + 800_000 + 2_666_667;
    assert_eq!(arrived, [(0, SimTime(1_600_000)), (1, SimTime(second))]);
}
