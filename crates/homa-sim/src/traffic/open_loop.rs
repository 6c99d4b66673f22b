//! Open loop: hosts start messages regardless of earlier ones (Homa §5.2).
//!
//! Each host is an independent Poisson process with separate streams for gaps, sizes and
//! destinations, which are the streams of [`homa_workload::arrivals`]. If the load rises, messages
//! therefore move closer together, but neither their sizes nor their destinations change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_workload::rng::Rng;
use homa_workload::sizes::SizeDistribution;

use crate::time::SimTime;

use super::kinds::Kinds;
use super::source::{Source, SourceActions, Start};

/// A message that starts at a known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledMessage {
    /// Start time.
    pub at: SimTime,
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Message bytes.
    pub bytes: u32,
}

impl ScheduledMessage {
    /// The message, as a source starts it.
    pub fn start(&self) -> Start {
        Start::new(self.src, self.dst, self.bytes)
    }
}

/// Senders and their receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Hosts 0 to n - 1; each sends to any other.
    All(u32),
    /// Each host sends to any other of its kind. The kind is the class of its messages.
    Alike(Kinds),
    /// The first hosts send to the ones after them.
    Split {
        /// Number of senders.
        clients: u32,
        /// Number of receivers.
        servers: u32,
    },
    /// Hosts 1, 2, ... send to host 0.
    ToOne {
        /// Number of senders.
        senders: u32,
    },
}

impl Pairs {
    /// Number of senders, which are the hosts from `first` on.
    pub const fn senders(self) -> u32 {
        match self {
            Self::All(hosts) => hosts,
            Self::Alike(kinds) => kinds.count(0) + kinds.count(1),
            Self::Split { clients, .. } => clients,
            Self::ToOne { senders } => senders,
        }
    }

    /// The first sender.
    pub const fn first(self) -> u32 {
        match self {
            Self::All(_) | Self::Alike(_) | Self::Split { .. } => 0,
            Self::ToOne { .. } => 1,
        }
    }

    /// The class of a sender's messages.
    const fn class(self, src: u32) -> u8 {
        match self {
            Self::Alike(kinds) => kinds.of(src),
            Self::All(_) | Self::Split { .. } | Self::ToOne { .. } => 0,
        }
    }

    fn draw(self, src: u32, rng: &mut Rng) -> u32 {
        match self {
            Self::All(hosts) => {
                let other = rng.uniform_below(hosts - 1);
                if other < src { other } else { other + 1 }
            }
            Self::Alike(kinds) => {
                kinds.other(src, rng.uniform_below(kinds.count(kinds.of(src)) - 1))
            }
            Self::Split { clients, servers } => clients + rng.uniform_below(servers),
            Self::ToOne { .. } => 0,
        }
    }
}

/// The endless messages of all senders.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    sizes: SizeDistribution,
    pairs: Pairs,
    mean_gap_ps: f64,
    hosts: Vec<Streams>,
    /// By sender: its next message.
    pending: Vec<Option<ScheduledMessage>>,
    /// The senders that this source starts.
    starts: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Streams {
    now_ps: f64,
    gaps: Rng,
    sizes: Rng,
    peers: Rng,
}

impl Streams {
    /// When the host's next message starts.
    fn next_time(&mut self, mean_gap_ps: f64) -> SimTime {
        self.now_ps += self.gaps.exponential(mean_gap_ps);
        SimTime(self.now_ps as u64)
    }
}

impl OpenLoop {
    /// `mean_gap_ps` is the mean time between messages of one host, in picoseconds.
    pub fn new(sizes: SizeDistribution, pairs: Pairs, mean_gap_ps: f64, seed: u64) -> Self {
        let stream = |what, host| Rng::stream(seed, &format!("arrivals/{what}/host{host}"));
        let first = pairs.first();
        let hosts = (first..first + pairs.senders())
            .map(|host| Streams {
                now_ps: 0.0,
                gaps: stream("gaps", host),
                sizes: stream("sizes", host),
                peers: stream("peers", host),
            })
            .collect();
        let pending = vec![None; pairs.senders() as usize];
        let starts = (first..first + pairs.senders()).collect();
        Self { sizes, pairs, mean_gap_ps, hosts, pending, starts }
    }

    /// The messages of some senders only, which are the same as among all.
    pub(crate) fn only(mut self, is_here: impl Fn(u32) -> bool) -> Self {
        self.starts.retain(|src| is_here(*src));
        self
    }

    /// The times at which all senders start messages, in their order.
    pub(crate) fn times(&self) -> impl Iterator<Item = SimTime> + use<> {
        let mean_gap_ps = self.mean_gap_ps;
        let mut hosts = self.hosts.clone();
        let mut next: BinaryHeap<Reverse<(SimTime, usize)>> = BinaryHeap::new();
        for (place, host) in hosts.iter_mut().enumerate() {
            next.push(Reverse((host.next_time(mean_gap_ps), place)));
        }
        std::iter::from_fn(move || {
            let mut first = next.peek_mut()?;
            let Reverse((at, place)) = *first;
            *first = Reverse((hosts[place].next_time(mean_gap_ps), place));
            Some(at)
        })
    }

    /// Number of senders.
    pub fn senders(&self) -> u32 {
        self.pairs.senders()
    }

    /// Draws the next message of one sender, and requests a wake-up at its start.
    fn wait(&mut self, src: u32, actions: &mut SourceActions) {
        let next = self.next(src);
        self.pending[(src - self.pairs.first()) as usize] = Some(next);
        actions.wakes.push((next.at, src));
    }

    /// The next message of one sender.
    pub fn next(&mut self, src: u32) -> ScheduledMessage {
        let streams = &mut self.hosts[(src - self.pairs.first()) as usize];
        ScheduledMessage {
            at: streams.next_time(self.mean_gap_ps),
            src,
            dst: self.pairs.draw(src, &mut streams.peers),
            bytes: self.sizes.sample(&mut streams.sizes),
        }
    }
}

impl Source for OpenLoop {
    fn begin(&mut self, _: SimTime, actions: &mut SourceActions) {
        for place in 0..self.starts.len() {
            self.wait(self.starts[place], actions);
        }
    }

    fn due(&mut self, _: SimTime, src: u32, actions: &mut SourceActions) {
        let pending = &mut self.pending[(src - self.pairs.first()) as usize];
        let Some(arrival) = pending.take() else { return };
        self.wait(src, actions);
        actions.starts.push(Start { class: self.pairs.class(src), ..arrival.start() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_workload::arrivals::{HostArrivals, Offer};
    use homa_workload::framing::Framing;
    use homa_workload::load::{Basis, Load};
    use homa_workload::sizes::Workload;

    #[test]
    fn messages_are_those_of_the_workload_crate() {
        let sizes = Workload::W3.sizes().unwrap();
        let load = Load {
            fraction: 0.8,
            basis: Basis::Payload,
            link_bps: 10_000_000_000,
            framing: Framing::Udp,
        };
        let offer = Offer { hosts: 16, load, duration_ns: 1, seed: 9 };
        let mean_gap_ps = 1e12 / load.rpcs_per_second(&sizes);
        let mut ours = OpenLoop::new(sizes.clone(), Pairs::All(16), mean_gap_ps, 9);
        let theirs = HostArrivals::new(&offer, &sizes, 5).unwrap();
        for arrival in theirs.take(100) {
            let next = ours.next(5);
            assert_eq!((next.dst, next.bytes), (u32::from(arrival.dst), arrival.bytes));
            assert!(next.at.0.abs_diff(arrival.at_ns * 1000) <= 1001, "{next:?} {arrival:?}");
        }
    }

    #[test]
    fn times_are_those_of_the_messages_in_order() {
        let sizes = SizeDistribution::constant(1).unwrap();
        let all = OpenLoop::new(sizes, Pairs::All(5), 1e6, 3);
        let mut own = all.clone();
        let each = (0..5).flat_map(|src| (0..100).map(move |_| src));
        let mut expected: Vec<SimTime> = each.map(|src| own.next(src).at).collect();
        expected.sort_unstable();
        // After the last of some sender, others are missing.
        assert_eq!(all.times().take(300).collect::<Vec<_>>(), expected[..300]);
        let mut actions = SourceActions::default();
        all.only(|src| src % 2 == 1).begin(SimTime(0), &mut actions);
        let tokens: Vec<u32> = actions.wakes.iter().map(|(_, token)| *token).collect();
        assert_eq!(tokens, [1, 3]);
    }

    #[test]
    fn servers_send_to_one_client() {
        let sizes = SizeDistribution::constant(1).unwrap();
        let mut servers = OpenLoop::new(sizes, Pairs::ToOne { senders: 3 }, 1e6, 1);
        let mut actions = SourceActions::default();
        servers.begin(SimTime(0), &mut actions);
        let mut tokens: Vec<u32> = actions.wakes.iter().map(|(_, token)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2, 3]);
        servers.due(SimTime(9), 3, &mut actions);
        assert_eq!((actions.starts[0].src, actions.starts[0].dst), (3, 0));
    }

    #[test]
    fn clients_send_to_servers_only_and_to_all_of_them() {
        let sizes = SizeDistribution::constant(1).unwrap();
        let mut split = OpenLoop::new(sizes, Pairs::Split { clients: 3, servers: 2 }, 1e6, 1);
        assert_eq!(split.senders(), 3);
        let mut seen = [0u32; 5];
        for _ in 0..100 {
            seen[split.next(2).dst as usize] += 1;
        }
        assert_eq!(seen[..3], [0; 3]);
        assert!(seen[3] > 25 && seen[4] > 25, "{seen:?}");
    }
}
