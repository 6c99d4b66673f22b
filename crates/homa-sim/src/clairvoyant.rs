//! What no transport can beat by much: SRPT with perfect knowledge, on the receivers' links alone.
//!
//! The bound is a *single-bottleneck* one. Every host's downlink is a server of its own that always
//! sends the message with the fewest bits left, changes over at once and for free (preemption
//! inside frames), and knows each message the moment its first bits can be there. Uplinks never
//! queue, no bit is spent on control, switches and hosts take only their fixed delays. On one link
//! SRPT gives the least mean latency of all schedules, so the mean over requests is a true lower
//! bound; percentiles of short messages are not proven ones, but a schedule that serves them first
//! leaves little to win. Left out: several switches, losses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::Rate;
use homa_workload::framing::Framing;

use crate::time::{SimDuration, SimTime};
use crate::traffic::open_loop::Arrival;

/// One switch and the hosts around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Star {
    /// Number of hosts.
    pub hosts: u32,
    /// Rate of every link.
    pub link: Rate,
    /// What a message spends besides on links: software at both ends, the switch.
    pub delay: SimDuration,
    /// Headers around packets.
    pub framing: Framing,
}

/// A message on its way, or its response.
#[derive(Clone, Copy, Debug)]
struct Job {
    arrival: Arrival,
    response: bool,
}

/// A downlink. The message being sent is in the heap like the others.
#[derive(Clone, Debug, Default)]
struct Downlink {
    /// Picoseconds left, job.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Up to when the first one's remainder is known.
    known: SimTime,
    /// Counts changes, so that outdated ends are told apart.
    version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The first one of a downlink is through, unless the version changed.
    End { link: usize, version: u64 },
    /// The bits of a job reach the downlink.
    Reach { job: usize },
}

/// The latency of every echo RPC, in the order of `arrivals`, under the schedule described above.
pub fn echo(star: &Star, arrivals: &[Arrival]) -> Vec<SimDuration> {
    let mut bound = Bound::new(star, arrivals);
    while let Some(Reverse((now, happening))) = bound.agenda.pop() {
        match happening {
            Happening::Reach { job } => bound.reach(now, job),
            Happening::End { link, version } => bound.end(now, link, version),
        }
    }
    bound.latencies
}

struct Bound<'a> {
    star: &'a Star,
    /// Requests, then as many responses.
    jobs: Vec<Job>,
    links: Vec<Downlink>,
    agenda: BinaryHeap<Reverse<(SimTime, Happening)>>,
    latencies: Vec<SimDuration>,
}

impl<'a> Bound<'a> {
    fn new(star: &'a Star, arrivals: &[Arrival]) -> Self {
        let requests = arrivals.iter().map(|&arrival| Job { arrival, response: false });
        let responses = arrivals.iter().map(|&arrival| Job { arrival, response: true });
        let mut bound = Self {
            star,
            jobs: requests.chain(responses).collect(),
            links: vec![Downlink::default(); star.hosts as usize],
            agenda: BinaryHeap::new(),
            latencies: vec![SimDuration::ZERO; arrivals.len()],
        };
        for (job, arrival) in arrivals.iter().enumerate() {
            bound.set_out(arrival.at, job);
        }
        bound
    }

    /// A message leaves its sender: its first frame crosses the uplink, and all else that delays it
    /// without keeping the downlink busy comes first too.
    fn set_out(&mut self, at: SimTime, job: usize) {
        let star = self.star;
        let bytes = self.jobs[job].arrival.bytes.min(star.framing.max_payload());
        let first = self.wire_time(star.framing.data_wire_bytes(bytes));
        self.agenda.push(Reverse((at + first + star.delay, Happening::Reach { job })));
    }

    fn wire_time(&self, wire_bytes: u64) -> SimDuration {
        let picos = u128::from(wire_bytes) * 8_000_000_000_000 / u128::from(self.star.link.0);
        SimDuration(picos as u64)
    }

    fn reach(&mut self, now: SimTime, job: usize) {
        let Job { arrival, response } = self.jobs[job];
        let to = if response { arrival.src } else { arrival.dst } as usize;
        let needs = self.wire_time(self.star.framing.data_wire_bytes(arrival.bytes));
        self.progress(now, to);
        self.links[to].waiting.push(Reverse((needs.0, job)));
        self.plan_end(now, to);
    }

    fn end(&mut self, now: SimTime, link: usize, version: u64) {
        if self.links[link].version != version {
            return;
        }
        let Some(Reverse((_, job))) = self.links[link].waiting.pop() else { return };
        self.links[link].known = now;
        let requests = self.latencies.len();
        if let Some(request) = job.checked_sub(requests) {
            self.latencies[request] = now.since(self.jobs[request].arrival.at);
        } else {
            self.set_out(now, job + requests);
        }
        self.plan_end(now, link);
    }

    /// Takes off the first one what was sent since the last look.
    fn progress(&mut self, now: SimTime, link: usize) {
        let link = &mut self.links[link];
        if let Some(mut first) = link.waiting.peek_mut() {
            let sent = now.since(link.known).0;
            first.0.0 = first.0.0.saturating_sub(sent);
        }
        link.known = now;
    }

    fn plan_end(&mut self, now: SimTime, at: usize) {
        let link = &mut self.links[at];
        link.version += 1;
        if let Some(Reverse((left, _))) = link.waiting.peek() {
            let end = Happening::End { link: at, version: link.version };
            self.agenda.push(Reverse((now + SimDuration(*left), end)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 Mbit/s: 80 ns a byte.
    fn star() -> Star {
        let delay = SimDuration::micros(10);
        Star { hosts: 3, link: Rate::mbps(100), delay, framing: Framing::Udp }
    }

    fn arrival(at_us: u64, src: u32, dst: u32, bytes: u32) -> Arrival {
        Arrival { at: SimTime::ZERO + SimDuration::micros(at_us), src, dst, bytes }
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
    fn a_short_message_interrupts_a_long_one_and_delays_it_by_its_own_time() {
        let alone = echo(&star(), &[arrival(0, 0, 2, 100_000)])[0];
        let list = [arrival(0, 0, 2, 100_000), arrival(1_000, 1, 2, 100)];
        let both = echo(&star(), &list);
        assert_eq!(both[1], echo(&star(), &[arrival(0, 1, 2, 100)])[0]);
        let wire = SimDuration::nanos(Framing::Udp.data_wire_bytes(100) * 80);
        assert_eq!(both[0], alone + wire, "only requests met");
    }

    #[test]
    fn of_equals_the_one_with_less_left_goes_on() {
        // The second arrives when the first has half of it behind it.
        let list = [arrival(0, 0, 2, 50_000), arrival(2_000, 1, 2, 50_000)];
        let both = echo(&star(), &list);
        assert_eq!(both[0], echo(&star(), &list[..1])[0]);
        assert!(both[1] > both[0]);
    }
}
