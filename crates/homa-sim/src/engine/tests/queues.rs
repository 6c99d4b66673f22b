//! Claims about disciplines that mark, trim or return frames: the hosts receive the result.

use std::collections::VecDeque;

use homa_proto::{Event, Rate, Receipt, Submit, SubmitError, Submitted, Time};

use crate::engine::*;
use crate::fabric::queue::{
    Admission, EcnScope, EcnThreshold, Order, Phantom, PhantomConfig, WaitingFrames,
};
use crate::fabric::{Buffers, FabricConfig, Marks, PortQueue, StrictPriority};
use crate::software_switch::{SoftwarePort, SwitchFrame};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, Physics, PortId, SingleSwitch};
use crate::trace::{Recorder, TraceEvent, TraceListener, Verifier};
use crate::transport::{Label, PacketMeta, Transport};

/// Every host but 0 sends this many frames to host 0 at once; the last one has rank 0.
#[derive(Clone, Copy)]
struct Burst {
    frames: u32,
    ect: bool,
}

/// Sends a burst and records arrivals.
struct BurstHost {
    queue: VecDeque<Label>,
    seen: Vec<(Label, PacketMeta)>,
}

const BYTES: u32 = 1_000;

impl BurstHost {
    fn new(host: HostId, burst: Burst) -> Self {
        let label =
            |rank| Label { rank, ect: burst.ect, flow: host.0, ..Label::new(HostId(0), BYTES) };
        let frames = if host.0 == 0 { 0 } else { burst.frames };
        Self { queue: (0..u64::from(frames)).rev().map(label).collect(), seen: Vec::new() }
    }
}

impl Transport for BurstHost {
    type Packet = Label;

    fn submit(&mut self, _: Time, _: Submit) -> Result<Submitted, SubmitError> {
        Err(SubmitError::UnknownRpc)
    }

    fn event(&mut self) -> Option<Event> {
        None
    }

    fn receive(&mut self, _: Time, packet: &Label, arrival: PacketMeta) -> Receipt {
        self.seen.push((*packet, arrival));
        Receipt::Consumed
    }

    fn transmit(&mut self, _: Time) -> Option<Label> {
        self.queue.pop_front()
    }

    fn label(&self, packet: &Label) -> Label {
        *packet
    }

    fn expire(&mut self, _: Time) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// Counts trimmed, returned and lost frames.
#[derive(Default)]
struct Told {
    trimmed: Vec<u32>,
    returned: u32,
    lost: u32,
}

impl Probe<BurstHost> for Told {
    fn trimmed(&mut self, _: SimTime, frame: &AtPort) {
        self.trimmed.push(frame.wire_bytes);
    }

    fn returned(&mut self, _: SimTime, _: u32, _: u16) {
        self.returned += 1;
    }

    fn lost(&mut self, _: SimTime, _: HostId, _: u32, _: &Label, _: LossCause) {
        self.lost += 1;
    }
}

type Bursts<Q> = Simulation<(BurstHost, Q, (), (Told, Recorder<Vec<TraceEvent>>), NoFaults)>;

/// Two hosts send to a third over 10 Gbit/s links, so that half of all frames wait.
fn run<Q: PortQueue>(
    burst: Burst,
    config: FabricConfig,
    mut queue: impl FnMut() -> Q,
) -> Bursts<Q> {
    let rate = Rate::gbps(10);
    let physics = Physics::uniform(rate, rate, SimDuration::micros(1));
    let make = Box::new(move |host, _| BurstHost::new(host, burst));
    let queues: MakeQueue<'_, Q> = &mut |_: PortId, _: &_| queue();
    let wiring = SingleSwitch { hosts: 3, physics }.wire();
    let parts = ((), (Told::default(), Recorder(Vec::new())), NoFaults);
    let mut judge = Verifier::new(&wiring, &config, Q::ORDER);
    let mut simulation = Simulation::with_queues(wiring, config, (make, queues), parts);
    simulation.run_to_drain();
    assert_eq!(simulation.packets_in_flight(), 0);
    simulation.probe().1.0.iter().for_each(|event| judge.on_event(event));
    let checked = judge.finish(0).unwrap();
    assert_eq!(checked.sent.frames, u64::from(2 * burst.frames));
    simulation
}

fn seen<Q: PortQueue>(simulation: &Bursts<Q>, host: u32) -> &[(Label, PacketMeta)] {
    &simulation.transport(HostId(host)).unwrap().seen
}

#[test]
fn congestion_marks_reach_the_receiver_and_the_trace_hash() {
    let config = FabricConfig::default();
    let ecn = || EcnThreshold::new(5 * BYTES, EcnScope::Queue);
    let marked = run(Burst { frames: 20, ect: true }, config, ecn);
    let ce: Vec<bool> = seen(&marked, 0).iter().map(|(_, arrival)| arrival.ce).collect();
    // The frames of pair n, counted from 0, find n and n + 1 frames waiting. The first to find more
    // than five is the second one of pair 5.
    assert_eq!((ce.len(), ce.iter().position(|ce| *ce)), (40, Some(11)));
    assert!(ce[11..].iter().all(|ce| *ce), "{ce:?}");
    // Without ECT, or with a threshold that is never reached, the run is as under strict priority.
    let plain = run(Burst { frames: 20, ect: false }, config, ecn);
    assert!(seen(&plain, 0).iter().all(|(_, arrival)| !arrival.ce));
    let strict = run(Burst { frames: 20, ect: false }, config, || StrictPriority);
    assert_eq!(plain.trace_hash(), strict.trace_hash());
    let never = || EcnThreshold::new(u32::MAX, EcnScope::Queue);
    let never = run(Burst { frames: 20, ect: true }, config, never);
    assert_ne!(never.trace_hash(), strict.trace_hash());
    assert_ne!(never.trace_hash(), marked.trace_hash());
}

/// A frame as the port of the software switch receives it: ECN-capable, marked or not.
struct Ect(Marks);

impl SwitchFrame for Ect {
    fn bytes(&self) -> u32 {
        BYTES
    }

    fn priority(&self) -> u8 {
        0
    }

    fn marks(&self) -> Marks {
        self.0
    }

    fn mark(&mut self, marks: Marks) {
        self.0 = marks;
    }
}

#[test]
fn a_software_port_marks_the_same_packets() {
    let rate = Rate::gbps(10);
    let ecn = |bytes| EcnThreshold::new(bytes, EcnScope::Queue);
    let queues = [
        Phantom::new(ecn(u32::MAX), Some(PhantomConfig::PAPER), rate),
        Phantom::new(ecn(7 * BYTES), None, rate),
        Phantom::new(ecn(90 * BYTES), Some(PhantomConfig::PAPER), rate),
    ];
    for queue in queues {
        let simulation =
            run(Burst { frames: 150, ect: true }, FabricConfig::default(), || queue.clone());
        let ce = seen(&simulation, 0).iter().map(|(_, arrival)| arrival.ce);
        let mut port = SoftwarePort::new(LinkRate::new(rate), u64::MAX, queue.clone());
        let mut left = Vec::new();
        for pair in 1..=150 {
            // 800 ns a frame; frames that leave when others arrive leave after them.
            let now = SimTime(pair * 800_000);
            left.extend(std::iter::from_fn(|| port.next(SimTime(now.0 - 1))));
            (0..2).for_each(|_| assert!(port.enqueue(now, Ect(Marks::ECT)).is_ok()));
        }
        left.extend(std::iter::from_fn(|| port.next(SimTime::MAX)));
        let marked: Vec<bool> = left.iter().map(|left| left.frame.0.has(Marks::CE)).collect();
        assert_eq!(marked, ce.collect::<Vec<_>>());
        assert!(marked.contains(&true) && marked.contains(&false), "{marked:?}");
    }
}

/// Keeps the frames of the lowest ranks that fit, and sends the lowest first.
struct Ranked;

impl PortQueue for Ranked {
    type Tag = u64;

    fn tag(label: &Label, _: HostId) -> u64 {
        label.rank
    }

    fn admit(&mut self, waiting: &mut WaitingFrames<'_, u64>, slot: u32, room: u64) -> Admission {
        if room >= u64::from(waiting.frame(slot).bytes) {
            waiting.append(0, slot);
            return Admission::Queued;
        }
        let worst = waiting.list(0).max_by_key(|other| waiting.tag(*other));
        match worst {
            Some(worst) if waiting.tag(worst) > waiting.tag(slot) => {
                waiting.take(0, worst);
                Admission::Evicted(worst)
            }
            _ => Admission::Dropped,
        }
    }

    fn next(&mut self, waiting: &mut WaitingFrames<'_, u64>) -> u32 {
        let best = waiting.list(0).min_by_key(|slot| waiting.tag(*slot));
        let best = best.expect("some frame waits");
        waiting.take(0, best);
        best
    }
}

#[test]
fn a_queue_by_rank_evicts_the_highest_and_sends_the_lowest() {
    let buffers = Buffers::PerPort(5 * u64::from(BYTES));
    let config = FabricConfig { buffers, ..FabricConfig::default() };
    let simulation = run(Burst { frames: 20, ect: false }, config, || Ranked);
    let ranks: Vec<u64> = seen(&simulation, 0).iter().map(|(label, _)| label.rank).collect();
    // Ranks fall with time, so that an arriving frame evicts a waiting one.
    for rank in 0..4 {
        assert_eq!(ranks.iter().filter(|seen| **seen == rank).count(), 2, "{ranks:?}");
    }
    let lost = u64::from(simulation.probe().0.lost);
    assert!(lost > 0 && lost + ranks.len() as u64 == 40, "{lost}");
    assert_eq!(simulation.dropped_frames(PortId(3)), lost);
    assert_eq!(simulation.counters().lost, lost);
}

/// Trims frames that find more than three waiting, and returns headers if five wait.
struct Cutting;

const HEADER: u16 = 64;

impl PortQueue for Cutting {
    type Tag = ();

    fn tag(_: &Label, _: HostId) {}

    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, _: u64) -> Admission {
        if waiting.list(0).count() < 3 {
            waiting.append(0, slot);
            return Admission::Queued;
        }
        waiting.trim(slot, HEADER);
        if waiting.list(7).count() < 5 {
            waiting.append(7, slot);
            return Admission::Trimmed(slot);
        }
        Admission::Returned(slot)
    }

    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        // Data first, so that headers accumulate.
        waiting.take_first(0).unwrap_or_else(|| waiting.take_highest())
    }
}

#[test]
fn trimmed_frames_arrive_and_returned_ones_reach_the_sender() {
    let simulation = run(Burst { frames: 30, ect: false }, FabricConfig::default(), || Cutting);
    let arrivals = seen(&simulation, 0);
    let trimmed = arrivals.iter().filter(|(_, arrival)| arrival.trimmed).count();
    assert_eq!(simulation.probe().0.trimmed, vec![u32::from(HEADER); trimmed]);
    let mut back = 0;
    for host in 1..=2 {
        for (label, arrival) in seen(&simulation, host) {
            assert!(arrival.returned && arrival.trimmed && arrival.from == HostId(host));
            assert_eq!((label.to, label.flow), (HostId(0), host));
            back += 1;
        }
    }
    assert!(trimmed >= 5 && back > 0, "{trimmed} {back}");
    assert_eq!(simulation.probe().0.returned, back);
    assert_eq!((arrivals.len() as u32 + back, simulation.probe().0.lost), (60, 0));
}

#[test]
fn the_verifier_rejects_an_order_that_the_queue_does_not_keep() {
    let buffers = Buffers::PerPort(5 * u64::from(BYTES));
    let config = FabricConfig { buffers, ..FabricConfig::default() };
    let simulation = run(Burst { frames: 20, ect: false }, config, || Ranked);
    let mut judge = Verifier::new(simulation.wiring(), &config, Order::Strict);
    simulation.probe().1.0.iter().for_each(|event| judge.on_event(event));
    let broken = judge.finish(0).unwrap_err();
    assert!(broken[0].what.contains("out of order") || broken[0].what.contains("dropped"));
}
