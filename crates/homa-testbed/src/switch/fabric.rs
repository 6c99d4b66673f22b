//! One switch in a rack, without a clock: uplinks that serialise, output ports that queue.
//!
//! Store and forward. A host's frame reaches the switch when its last bit has left the uplink; the
//! output port is homa-sim's strict-priority [`Port`]; a frame is delivered when its last bit has
//! left the downlink. Every time is computed from the time a frame was handed to its uplink, never
//! from when the caller looked, so that lateness does not add up. Faults (loss, duplication) strike
//! between the two.
//!
//! Invariants: an uplink delivers in order and carries one frame at a time; events happen in the
//! order of their ideal times. Left out: learning and flooding; the rack knows who is where.

use std::collections::VecDeque;

use homa_sim::switch::{Departure, Frame, Port};
use homa_sim::{LinkRate, SimTime};
use homa_workload::rng::Rng;

/// What a switch does wrong on request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is delivered twice.
    pub duplication: f64,
    /// Seed of the choices.
    pub seed: u64,
}

/// A delivery: the frame, the port it leaves by, and when its last bit is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery<F> {
    /// Index of the host.
    pub(crate) port: usize,
    /// The frame.
    pub(crate) frame: F,
    /// The ideal time.
    pub(crate) at: SimTime,
}

/// What happened besides deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FabricCounters {
    /// Frames lost on request.
    pub(crate) lost: u64,
    /// Frames duplicated on request.
    pub(crate) duplicated: u64,
    /// Frames that came to our notice after they should have reached their output port.
    pub(crate) late: u64,
    /// Frames that dropped out for want of buffer at the output port.
    pub(crate) dropped: u64,
}

/// See the module's description.
pub(crate) struct Fabric<F> {
    rate: LinkRate,
    uplinks: Vec<Uplink<F>>,
    ports: Vec<Port<F>>,
    faults: Faults,
    loss: Rng,
    duplication: Rng,
    /// Everything up to here has happened.
    done: SimTime,
    counters: FabricCounters,
}

struct Uplink<F> {
    free_at: SimTime,
    /// Frames on the wire or waiting for it: arrival at the switch, output port, frame.
    frames: VecDeque<(SimTime, usize, F)>,
}

impl<F> Uplink<F> {
    /// The next frame whose last bit has reached the switch by `at`.
    fn arrived(&mut self, at: SimTime) -> Option<(SimTime, usize, F)> {
        if self.frames.front()?.0 > at {
            return None;
        }
        self.frames.pop_front()
    }
}

impl<F: Frame + Clone> Fabric<F> {
    /// An idle switch with `ports` ports of `buffer_bytes` each.
    pub(crate) fn new(ports: usize, rate: LinkRate, buffer_bytes: u64, faults: Faults) -> Self {
        let uplink = || Uplink { free_at: SimTime::ZERO, frames: VecDeque::new() };
        Self {
            rate,
            uplinks: (0..ports).map(|_| uplink()).collect(),
            ports: (0..ports).map(|_| Port::new(rate, buffer_bytes)).collect(),
            faults,
            loss: Rng::stream(faults.seed, "testbed loss"),
            duplication: Rng::stream(faults.seed, "testbed duplication"),
            done: SimTime::ZERO,
            counters: FabricCounters::default(),
        }
    }

    /// Host `from` hands a frame for port `to` to its uplink at `at`.
    pub(crate) fn send(&mut self, at: SimTime, from: usize, to: usize, frame: F) {
        let uplink = &mut self.uplinks[from];
        let last_bit = at.max(uplink.free_at) + self.rate.serialisation(frame.bytes());
        uplink.free_at = last_bit;
        if last_bit < self.done {
            self.counters.late += 1;
        }
        uplink.frames.push_back((last_bit, to, frame));
    }

    /// No delivery is due before this: when to call [`Fabric::advance`]. Frames that reach their
    /// output port meanwhile need no wake-up of their own, because `advance` makes up for the past
    /// in order.
    pub(crate) fn next_delivery(&self) -> Option<SimTime> {
        let through = |(last_bit, _, frame): &(SimTime, usize, F)| {
            *last_bit + self.rate.serialisation(frame.bytes())
        };
        let arriving = self.uplinks.iter().filter_map(|u| u.frames.front().map(through)).min();
        let departing = self.ports.iter().filter_map(Port::departs).min();
        [arriving, departing].into_iter().flatten().min()
    }

    /// When the next frame arrives at its output port or leaves it.
    fn next_event(&self) -> Option<SimTime> {
        let arrival = self.uplinks.iter().filter_map(|u| u.frames.front().map(|f| f.0)).min();
        let departure = self.ports.iter().filter_map(Port::departs).min();
        match (arrival, departure) {
            (Some(a), Some(d)) => Some(a.min(d)),
            (a, d) => a.or(d),
        }
    }

    /// Lets everything happen that is due by `now`, in the order of its ideal time.
    pub(crate) fn advance(&mut self, now: SimTime, mut deliver: impl FnMut(Delivery<F>)) {
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            for (port, output) in self.ports.iter_mut().enumerate() {
                while let Some(Departure { frame, at }) = output.next(at) {
                    deliver(Delivery { port, frame, at });
                }
            }
            // A frame that came to our notice late cannot arrive before what already happened.
            self.done = self.done.max(at);
            for from in 0..self.uplinks.len() {
                while let Some((_, to, frame)) = self.uplinks[from].arrived(at) {
                    self.forward(to, frame);
                }
            }
        }
        self.done = self.done.max(now);
    }

    /// What happened so far.
    pub(crate) fn counters(&self) -> FabricCounters {
        self.counters
    }

    fn forward(&mut self, to: usize, frame: F) {
        if self.loss.chance(self.faults.loss) {
            self.counters.lost += 1;
            return;
        }
        if self.duplication.chance(self.faults.duplication) {
            self.counters.duplicated += 1;
            self.enqueue(to, frame.clone());
        }
        self.enqueue(to, frame);
    }

    fn enqueue(&mut self, to: usize, frame: F) {
        if self.ports[to].enqueue(self.done, frame).is_err() {
            self.counters.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::Rate;

    /// Name, wire bytes, priority.
    type Named = (&'static str, u32, u8);

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct TestFrame(Named);

    impl Frame for TestFrame {
        fn bytes(&self) -> u32 {
            self.0.1
        }
        fn priority(&self) -> u8 {
            self.0.2
        }
    }

    /// 100 Mbit/s: 80 ns a byte, 123.04 us a full frame.
    fn fabric(faults: Faults) -> Fabric<TestFrame> {
        Fabric::new(3, LinkRate::new(Rate::mbps(100)), 4_000, faults)
    }

    fn us(n: u64) -> SimTime {
        SimTime(n * 1_000_000)
    }

    /// Name, port and nanoseconds of each delivery up to `now`.
    fn deliveries(fabric: &mut Fabric<TestFrame>, now: SimTime) -> Vec<(&'static str, usize, u64)> {
        let mut all = Vec::new();
        fabric.advance(now, |d| all.push((d.frame.0.0, d.port, d.at.0 / 1_000)));
        all
    }

    #[test]
    fn an_idle_rack_takes_the_serialisation_time_twice() {
        let mut fabric = fabric(Faults::default());
        fabric.send(us(10), 0, 2, TestFrame(("a", 1_538, 0)));
        assert_eq!(fabric.next_delivery(), Some(SimTime(256_080_000)));
        assert_eq!(deliveries(&mut fabric, us(256)), []);
        assert_eq!(fabric.next_delivery(), Some(SimTime(256_080_000)));
        assert_eq!(deliveries(&mut fabric, us(257)), [("a", 2, 256_080)]);
        assert_eq!(fabric.next_delivery(), None);
    }

    #[test]
    fn a_host_that_hands_over_a_burst_sends_it_back_to_back() {
        let mut fabric = fabric(Faults::default());
        fabric.send(us(0), 0, 1, TestFrame(("a", 1_000, 0)));
        fabric.send(us(0), 0, 2, TestFrame(("b", 1_000, 7)));
        fabric.send(us(500), 0, 1, TestFrame(("c", 1_000, 0)));
        let expected = [("a", 1, 160_000), ("b", 2, 240_000), ("c", 1, 660_000)];
        assert_eq!(deliveries(&mut fabric, us(1_000)), expected);
    }

    #[test]
    fn a_high_priority_frame_overtakes_the_queue_but_not_the_frame_on_the_wire() {
        let mut fabric = fabric(Faults::default());
        for name in ["low 1", "low 2"] {
            fabric.send(us(0), 0, 2, TestFrame((name, 1_000, 0)));
        }
        fabric.send(us(0), 1, 2, TestFrame(("low 3", 1_000, 0)));
        fabric.send(us(20), 1, 2, TestFrame(("high", 100, 7)));
        let names: Vec<_> = deliveries(&mut fabric, us(1_000)).iter().map(|d| d.0).collect();
        // low 1 and low 3 arrive at 80 us; high arrives at 88 us, while low 1 is on the wire.
        assert_eq!(names, ["low 1", "high", "low 3", "low 2"]);
    }

    #[test]
    fn looking_late_changes_no_delivery_time() {
        let send = |fabric: &mut Fabric<TestFrame>| {
            for n in 0..8 {
                let priority = (n % 3) as u8;
                fabric.send(us(30 * n), (n % 2) as usize, 2, TestFrame(("f", 1_000, priority)));
            }
        };
        let [mut prompt, mut late, mut waking] = [(); 3].map(|()| fabric(Faults::default()));
        send(&mut prompt);
        send(&mut late);
        let stepwise: Vec<_> = (0..2_000).flat_map(|n| deliveries(&mut prompt, us(n))).collect();
        assert_eq!(stepwise, deliveries(&mut late, us(2_000)));
        send(&mut waking);
        let mut at_wake_ups = Vec::new();
        while let Some(at) = waking.next_delivery() {
            at_wake_ups.extend(deliveries(&mut waking, at));
        }
        assert_eq!(stepwise, at_wake_ups);
        assert!(stepwise.len() > 4);
    }

    #[test]
    fn frames_noticed_late_are_counted_and_still_delivered() {
        let mut fabric = fabric(Faults::default());
        assert_eq!(deliveries(&mut fabric, us(500)), []);
        fabric.send(us(10), 0, 1, TestFrame(("a", 1_000, 0)));
        assert_eq!(deliveries(&mut fabric, us(1_000)), [("a", 1, 580_000)]);
        assert_eq!(fabric.counters().late, 1);
    }

    #[test]
    fn a_full_port_drops_and_counts() {
        let mut fabric = fabric(Faults::default());
        for from in [0, 1, 0, 1, 0, 1] {
            fabric.send(us(0), from, 2, TestFrame(("f", 1_500, 0)));
        }
        let delivered = deliveries(&mut fabric, us(10_000)).len() as u64;
        assert!(fabric.counters().dropped > 0);
        assert_eq!(delivered + fabric.counters().dropped, 6);
        assert_eq!(fabric.next_delivery(), None);
    }

    #[test]
    fn loss_and_duplication_happen_as_often_as_asked_and_repeat_with_the_seed() {
        let run = |seed| {
            let mut fabric = fabric(Faults { loss: 0.1, duplication: 0.05, seed });
            let mut delivered = 0_u64;
            for n in 0..20_000 {
                fabric.send(us(500 * n), 0, 1, TestFrame(("f", 100, 0)));
                fabric.advance(us(500 * n + 499), |_| delivered += 1);
            }
            (delivered, fabric.counters())
        };
        let (delivered, counters) = run(7);
        assert!((1_800..2_200).contains(&counters.lost), "{counters:?}");
        assert!((800..1_000).contains(&counters.duplicated), "{counters:?}");
        assert_eq!(delivered, 20_000 - counters.lost + counters.duplicated);
        assert_eq!(run(7), (delivered, counters));
        assert_ne!(run(8).1.lost, counters.lost);
    }
}
