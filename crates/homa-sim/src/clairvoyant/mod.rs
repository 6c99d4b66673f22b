//! A bound that no transport can beat by much: SRPT with perfect knowledge on the receivers' links
//! alone.
//!
//! The bound is a *single-bottleneck* one. Every host's downlink is an independent server that
//! always sends the message with the fewest bits left, switches between messages at once and
//! without cost (preemption inside frames), and has complete information about a message when its
//! first bits can arrive. Uplinks and links between switches never queue, control packets take no
//! bits, and switches and hosts add only their fixed delays.
//!
//! On one link SRPT has the least mean latency of all schedules, so the mean over messages is a
//! true lower bound. Percentiles of short messages are not proven bounds, but a schedule that
//! serves short messages first leaves little to improve. One-ends messages work on any wiring
//! ([`one_way`]), RPCs on hosts around one switch ([`echo`]). Left out: losses, and bottlenecks at
//! senders or in the fabric; if these exist, no transport can come near the bound.
//!
//! The scheme `ideal` is the same schedule for any one-ends traffic of a scenario
//! (`experiment/bound.rs`).

mod downlinks;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::Rate;
use homa_workload::framing::Framing;

use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortSpec, Wiring};
use crate::traffic::open_loop::ScheduledMessage;

pub(crate) use downlinks::{Downlinks, Due, End};

/// One switch with hosts around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Star {
    /// Number of hosts.
    pub hosts: u32,
    /// Rate of every link.
    pub link: Rate,
    /// Delay of a message besides time on links: software at both ends, and the switch.
    pub delay: SimDuration,
    /// Headers of packets.
    pub framing: Framing,
}

/// The parts of a message's latency.
pub(crate) trait Timing {
    fn hosts(&self) -> u32;
    /// Time from its start until its first bits can be on the receiver's link.
    fn before(&self, from: u32, to: u32, bytes: u32) -> SimDuration;
    /// Time on the receiver's link, without other messages.
    fn service(&self, to: u32, bytes: u32) -> SimDuration;
    /// Time from its last bit on that link to its delivery.
    fn after(&self, to: u32) -> SimDuration;
}

impl Timing for Star {
    fn hosts(&self) -> u32 {
        self.hosts
    }

    fn before(&self, _: u32, _: u32, bytes: u32) -> SimDuration {
        let first = self.framing.data_wire_bytes(bytes.min(self.framing.max_payload()));
        wire_time(self.link, first) + self.delay
    }

    fn service(&self, _: u32, bytes: u32) -> SimDuration {
        wire_time(self.link, self.framing.data_wire_bytes(bytes))
    }

    fn after(&self, _: u32) -> SimDuration {
        SimDuration::ZERO
    }
}

/// Timing in any network.
pub(crate) struct Wired<'a> {
    pub wiring: &'a Wiring,
    pub framing: Framing,
}

impl Wired<'_> {
    fn downlink(&self, to: u32) -> &PortSpec {
        &self.wiring.ports()[self.wiring.downlink(HostId(to)).0 as usize]
    }
}

impl Timing for Wired<'_> {
    fn hosts(&self) -> u32 {
        self.wiring.hosts()
    }

    fn before(&self, from: u32, to: u32, bytes: u32) -> SimDuration {
        let first = self.framing.data_wire_bytes(bytes.min(self.framing.max_payload()));
        let whole = self.wiring.ideal(HostId(from), HostId(to), &[first as u32]);
        let last = wire_time(self.downlink(to).rate, first) + self.after(to);
        SimDuration(whole.0.saturating_sub(last.0))
    }

    fn service(&self, to: u32, bytes: u32) -> SimDuration {
        wire_time(self.downlink(to).rate, self.framing.data_wire_bytes(bytes))
    }

    fn after(&self, to: u32) -> SimDuration {
        self.downlink(to).delay
    }
}

fn wire_time(link: Rate, wire_bytes: u64) -> SimDuration {
    let picos = u128::from(wire_bytes) * 8_000_000_000_000 / u128::from(link.0.max(1));
    SimDuration(picos as u64)
}

/// A message in flight, or its response.
#[derive(Clone, Copy, Debug)]
struct Job {
    arrival: ScheduledMessage,
    response: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DownlinkEvent {
    /// The first job of a downlink may have ended.
    End(End),
    /// The first bits of a job reach the downlink.
    Reach { job: usize },
}

/// The latency of every echo RPC, in the order of `arrivals`, under the schedule of this module.
pub fn echo(star: &Star, arrivals: &[ScheduledMessage]) -> Vec<SimDuration> {
    DownlinkSrpt::new(star, arrivals, true).run()
}

/// The latency of every one-ends message, in the order of `arrivals`. Each receiver's link is
/// independent, behind a fabric that never queues.
pub fn one_way(
    wiring: &Wiring,
    framing: Framing,
    arrivals: &[ScheduledMessage],
) -> Vec<SimDuration> {
    DownlinkSrpt::new(&Wired { wiring, framing }, arrivals, false).run()
}

struct DownlinkSrpt<'a> {
    timing: &'a dyn Timing,
    /// All messages, then all responses, if there are any.
    jobs: Vec<Job>,
    links: Downlinks,
    agenda: BinaryHeap<Reverse<(SimTime, DownlinkEvent)>>,
    latencies: Vec<SimDuration>,
}

impl<'a> DownlinkSrpt<'a> {
    fn new(timing: &'a dyn Timing, arrivals: &[ScheduledMessage], answered: bool) -> Self {
        let requests = arrivals.iter().map(|&arrival| Job { arrival, response: false });
        let responses = arrivals.iter().filter(|_| answered);
        let responses = responses.map(|&arrival| Job { arrival, response: true });
        let mut bound = Self {
            timing,
            jobs: requests.chain(responses).collect(),
            links: Downlinks::new(timing.hosts()),
            agenda: BinaryHeap::new(),
            latencies: vec![SimDuration::ZERO; arrivals.len()],
        };
        for (job, arrival) in arrivals.iter().enumerate() {
            bound.set_out(arrival.at, job);
        }
        bound
    }

    fn run(mut self) -> Vec<SimDuration> {
        while let Some(Reverse((now, event))) = self.agenda.pop() {
            match event {
                DownlinkEvent::Reach { job } => self.reach(now, job),
                DownlinkEvent::End(end) => self.end(now, end),
            }
        }
        self.latencies
    }

    /// Sender and receiver.
    fn ends(&self, job: usize) -> (u32, u32) {
        let Job { arrival: ScheduledMessage { src, dst, .. }, response } = self.jobs[job];
        if response { (dst, src) } else { (src, dst) }
    }

    /// A message leaves its sender. All delays that do not keep the downlink busy come first.
    fn set_out(&mut self, at: SimTime, job: usize) {
        let (from, to) = self.ends(job);
        let before = self.timing.before(from, to, self.jobs[job].arrival.bytes);
        self.agenda.push(Reverse((at + before, DownlinkEvent::Reach { job })));
    }

    fn reach(&mut self, now: SimTime, job: usize) {
        let (_, receiver) = self.ends(job);
        let needs = self.timing.service(receiver, self.jobs[job].arrival.bytes);
        let due = self.links.join(now, receiver as usize, (job, needs));
        self.plan(due);
    }

    fn end(&mut self, now: SimTime, end: End) {
        let Some((job, next)) = self.links.end(now, end) else { return };
        let requests = self.latencies.len();
        let done = now + self.timing.after(end.link() as u32);
        match job.checked_sub(requests) {
            None if self.jobs.len() > requests => self.set_out(done, job + requests),
            response => {
                let request = response.unwrap_or(job);
                self.latencies[request] = done.since(self.jobs[request].arrival.at);
            }
        }
        next.into_iter().for_each(|due| self.plan(due));
    }

    fn plan(&mut self, (at, end): Due) {
        self.agenda.push(Reverse((at, DownlinkEvent::End(end))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{FatTree, LeafSpine, Physics};

    /// 100 Mbit/s, which is 80 ns per byte.
    fn star() -> Star {
        let delay = SimDuration::micros(10);
        Star { hosts: 3, link: Rate::mbps(100), delay, framing: Framing::Udp }
    }

    fn arrival(at_us: u64, src: u32, dst: u32, bytes: u32) -> ScheduledMessage {
        ScheduledMessage { at: SimTime::ZERO + SimDuration::micros(at_us), src, dst, bytes }
    }

    #[test]
    fn alone_an_rpc_takes_its_wire_time_and_the_delays() {
        let wire = |bytes| Framing::Udp.data_wire_bytes(bytes) * 80;
        let short = echo(&star(), &[arrival(5, 0, 1, 100)])[0];
        assert_eq!(short, SimDuration::nanos(2 * (2 * wire(100) + 10_000)));
        let long = echo(&star(), &[arrival(5, 0, 1, 100_000)])[0];
        let first = wire(Framing::Udp.max_payload());
        assert_eq!(long, SimDuration::nanos(2 * (first + wire(100_000) + 10_000)));
    }

    #[test]
    fn a_short_message_delays_a_long_one_by_its_own_time() {
        let alone = echo(&star(), &[arrival(0, 0, 2, 100_000)])[0];
        let list = [arrival(0, 0, 2, 100_000), arrival(1_000, 1, 2, 100)];
        let both = echo(&star(), &list);
        assert_eq!(both[1], echo(&star(), &[arrival(0, 1, 2, 100)])[0]);
        let wire = SimDuration::nanos(Framing::Udp.data_wire_bytes(100) * 80);
        assert_eq!(both[0], alone + wire, "only requests met");
    }

    #[test]
    fn of_equal_messages_the_one_with_less_left_continues() {
        // The second message arrives when half of the first has been sent.
        let list = [arrival(0, 0, 2, 50_000), arrival(2_000, 1, 2, 50_000)];
        let both = echo(&star(), &list);
        assert_eq!(both[0], echo(&star(), &list[..1])[0]);
        assert!(both[1] > both[0]);
    }

    #[test]
    fn a_lone_one_way_message_takes_its_ideal_time() {
        let physics = Physics { propagation: SimDuration::nanos(300), ..LeafSpine::homa().physics };
        let racks = LeafSpine { physics, ..LeafSpine::homa() }.wire();
        let tree = FatTree { k: 4, oversubscription: 1, physics }.wire();
        for (wiring, far) in [(racks, 143), (tree, 15)] {
            for (to, bytes) in [(1, 100), (far, 1_460), (far, 100_000)] {
                let full = bytes / 1_460;
                let rest = bytes % 1_460;
                let frame = |bytes: u32| (bytes + 78).max(84);
                let mut frames = vec![frame(1_460); full as usize];
                frames.extend((rest > 0).then(|| frame(rest)));
                let ideal = wiring.ideal(HostId(0), HostId(to), &frames);
                let ours = one_way(&wiring, Framing::Plain, &[arrival(3, 0, to, bytes)])[0];
                // The last frame is shorter than the first, and waits for no other.
                assert!(ours.0.abs_diff(ideal.0) <= 1_000, "{bytes} B: {ours:?}, {ideal:?}");
            }
        }
    }

    #[test]
    fn each_receiver_is_served_shortest_first_on_its_own() {
        let wiring = LeafSpine::homa().wire();
        let alone = |one| one_way(&wiring, Framing::Plain, &[one])[0];
        let (long, short) = (arrival(0, 0, 9, 1_000_000), arrival(50, 1, 9, 1_000));
        let elsewhere = arrival(0, 0, 10, 1_000_000);
        let all = one_way(&wiring, Framing::Plain, &[long, short, elsewhere]);
        assert_eq!((all[1], all[2]), (alone(short), alone(elsewhere)));
        let wire = SimDuration::nanos(Framing::Plain.data_wire_bytes(1_000) * 8 / 10);
        assert!(all[0].0.abs_diff((alone(long) + wire).0) <= 1_000);
    }
}
