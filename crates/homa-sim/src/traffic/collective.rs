//! Collective operations as graphs of messages.
//!
//! Ranks are joined by what they wait for, not by a clock: a rank begins a step when it has
//! received the message of the step before. A buffer is divided into as many parts as there are
//! ranks; parts differ by at most one byte.
//!
//! Left out: computation, and the division of parts into chunks that follow each other on a ring.

use homa_workload::rng::Rng;
use homa_workload::sizes::MAX_BYTES;

use crate::scenario::{CollectiveTraffic, Operation, RankPlacement};

use super::tasks::{MOST_TASKS, Phase, TaskGraph, TaskGraphBuilder, TaskKind};

/// The messages of a collective between `hosts` hosts. The error is the key at fault, and what it
/// must satisfy, after "must".
pub fn graph(
    traffic: &CollectiveTraffic,
    hosts: u32,
    seed: u64,
) -> Result<TaskGraph, (&'static str, String)> {
    let ranks = check(traffic, hosts)?;
    let mut built = Ranks {
        hosts: placed(traffic.placement, (hosts, ranks), seed),
        bytes: traffic.bytes,
        graph: TaskGraphBuilder::default(),
    };
    match traffic.operation {
        Operation::RingAllReduce => built.ring(2 * (ranks - 1)),
        Operation::RingReduceScatter | Operation::RingAllGather => built.ring(ranks - 1),
        Operation::ButterflyAllReduce => built.butterfly(),
        Operation::AllToAll => built.all_to_all(traffic.window.unwrap_or(ranks - 1)),
    }
    Ok(built.graph.build())
}

/// The number of ranks, if the collective can be simulated.
fn check(traffic: &CollectiveTraffic, hosts: u32) -> Result<u32, (&'static str, String)> {
    let CollectiveTraffic { operation, bytes, ranks, window, .. } = *traffic;
    let count = ranks.unwrap_or(hosts);
    if !(2..=hosts).contains(&count) {
        return Err(("traffic.ranks", format!("be 2 to {hosts}, the number of hosts")));
    }
    if operation == Operation::ButterflyAllReduce && !count.is_power_of_two() {
        let must = format!("be a power of two for butterfly-all-reduce, and {count} is not");
        return Err(("traffic.ranks", must));
    }
    let wide = window.is_some_and(|window| window == 0 || window >= count);
    if operation != Operation::AllToAll && window.is_some() {
        return Err(("traffic.window", "be absent: only all-to-all has a window".to_owned()));
    }
    if wide {
        return Err(("traffic.window", format!("be 1 to {}, one less than the ranks", count - 1)));
    }
    // The largest message is half of the buffer in a butterfly, else one part of it.
    let least = u64::from(count);
    let parts = if operation == Operation::ButterflyAllReduce { 2 } else { least };
    let most = u64::from(MAX_BYTES) * parts;
    if !(least..=most).contains(&bytes) {
        let must = format!("be {least} to {most}, so that a message has 1 to {MAX_BYTES} bytes");
        return Err(("traffic.bytes", must));
    }
    let rounds = match operation {
        Operation::RingAllReduce => 2 * (least - 1),
        // A window needs a task for each rank.
        Operation::RingReduceScatter | Operation::RingAllGather | Operation::AllToAll => least,
        Operation::ButterflyAllReduce => 2 * u64::from(count.ilog2()),
    };
    if least * rounds > MOST_TASKS as u64 {
        let must = format!("be fewer: {count} ranks exchange more than {MOST_TASKS} messages");
        return Err(("traffic.ranks", must));
    }
    Ok(count)
}

/// The hosts of the ranks.
fn placed(placement: RankPlacement, (hosts, ranks): (u32, u32), seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..hosts).collect();
    if placement == RankPlacement::Random {
        let mut rng = Rng::stream(seed, "collective/placement");
        for place in 0..ranks {
            let other = place + rng.uniform_below(hosts - place);
            all.swap(place as usize, other as usize);
        }
    }
    all.truncate(ranks as usize);
    all
}

/// The ranks of a collective whose graph is being built.
struct Ranks {
    hosts: Vec<u32>,
    bytes: u64,
    graph: TaskGraphBuilder,
}

impl Ranks {
    fn count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Bytes of `count` parts from `first` on, at least 1, because a buffer has a byte for each.
    fn parts(&self, first: u32, count: u32) -> u32 {
        let before =
            |part: u32| u128::from(self.bytes) * u128::from(part) / u128::from(self.count());
        (before(first + count) - before(first)) as u32
    }

    /// Adds a message between ranks; their number and size are checked.
    fn send(&mut self, from: u32, to: u32, bytes: u32) -> u32 {
        let (src, dst) = (self.hosts[from as usize], self.hosts[to as usize]);
        self.graph.add(TaskKind::Message { src, dst, bytes }).unwrap_or_default()
    }

    /// In each step every rank sends a part to the next one, which passes it on.
    fn ring(&mut self, steps: u32) {
        let ranks = self.count();
        let mut before: Vec<u32> = Vec::new();
        for step in 0..steps {
            let sent: Vec<u32> = (0..ranks)
                .map(|rank| {
                    let part = (rank + ranks - step % ranks) % ranks;
                    let bytes = self.parts(part, 1);
                    self.send(rank, (rank + 1) % ranks, bytes)
                })
                .collect();
            if step > 0 {
                // A rank continues with what the one before it has sent.
                for rank in 0..ranks as usize {
                    let received = before[(rank + sent.len() - 1) % sent.len()];
                    self.graph.follow(received, Phase::Done, sent[rank]);
                }
            }
            before = sent;
        }
    }

    /// In round `i` of the first half a rank exchanges half of the parts that it still has with the
    /// rank at distance `2^i`. In the second half the parts that it has go back in reverse order.
    fn butterfly(&mut self) {
        let (ranks, rounds) = (self.count(), self.count().ilog2());
        let mut before: Option<(u32, Vec<u32>)> = None;
        let halving = (0..rounds).map(|round| (round, true));
        let doubling = (0..rounds).rev().map(|round| (round, false));
        for (round, halves) in halving.chain(doubling) {
            let mut sent = Vec::with_capacity(ranks as usize);
            for rank in 0..ranks {
                let partner = rank ^ 1 << round;
                // The parts of a rank are those that agree with its lowest bits. They are
                // contiguous if parts are numbered by their bits in reverse.
                let owner = if halves { partner } else { rank };
                let lowest = owner & ((2 << round) - 1);
                let first = lowest.reverse_bits() >> (u32::BITS - rounds);
                let bytes = self.parts(first, ranks >> (round + 1));
                sent.push(self.send(rank, partner, bytes));
            }
            if let Some((last, received)) = before {
                for rank in 0..ranks {
                    let received = received[(rank ^ 1 << last) as usize];
                    self.graph.follow(received, Phase::Done, sent[rank as usize]);
                }
            }
            before = Some((round, sent));
        }
    }

    /// Every rank has at most `window` messages in flight, to the ranks behind it in order. The
    /// next one begins when the sender knows that an earlier one has arrived.
    fn all_to_all(&mut self, window: u32) {
        let ranks = self.count();
        let limited = window < ranks - 1;
        let gates: Vec<u32> = match limited {
            true => (0..ranks).filter_map(|_| self.graph.add(TaskKind::Distributor)).collect(),
            false => Vec::new(),
        };
        for distance in 1..ranks {
            for rank in 0..ranks {
                let to = (rank + distance) % ranks;
                let bytes = self.parts(to, 1);
                let sent = self.send(rank, to, bytes);
                if let Some(&gate) = gates.get(rank as usize) {
                    self.graph.follow(sent, Phase::Sent, gate);
                    if distance > window {
                        self.graph.follow(gate, Phase::Done, sent);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(operation: Operation, bytes: u64) -> CollectiveTraffic {
        let (ranks, placement, window) = (None, RankPlacement::InOrder, None);
        CollectiveTraffic { operation, bytes, ranks, placement, window }
    }

    const ALL: [Operation; 5] = [
        Operation::RingAllReduce,
        Operation::RingReduceScatter,
        Operation::RingAllGather,
        Operation::ButterflyAllReduce,
        Operation::AllToAll,
    ];

    #[test]
    fn every_link_carries_as_much_as_the_bound_says() {
        for operation in ALL {
            for (ranks, bytes) in [(2, 2), (8, 8_000), (16, 1_000_003)] {
                let graph = graph(&traffic(operation, bytes), ranks, 1).unwrap();
                let name = operation.name();
                assert_eq!(graph.stuck(), None, "{name}");
                let mut sent = vec![0_u64; ranks as usize];
                for ((src, _), bytes) in graph.pairs().zip(graph.sizes()) {
                    sent[src as usize] += u64::from(bytes);
                }
                let bound = bytes as f64 * operation.link_share(ranks);
                // Parts differ by a byte, and a rank sends each part at most twice.
                let close = |sent: &u64| (*sent as f64 - bound).abs() <= f64::from(2 * ranks);
                assert!(sent.iter().all(close), "{name}: {sent:?} {bound}");
            }
        }
    }

    #[test]
    fn operations_have_their_numbers_of_steps() {
        let count = |operation| graph(&traffic(operation, 8_000), 8, 1).unwrap().messages();
        assert_eq!(ALL.map(count), [8 * 14, 8 * 7, 8 * 7, 8 * 6, 8 * 7]);
    }

    #[test]
    fn a_rank_waits_for_what_it_passes_on() {
        // Messages by the length of the longest chain of messages in front of them.
        let ring = graph(&traffic(Operation::RingAllReduce, 300), 3, 1).unwrap();
        let pairs: Vec<_> = ring.pairs().collect();
        assert_eq!(pairs[..4], [(0, 1), (1, 2), (2, 0), (0, 1)]);
        let butterfly = graph(&traffic(Operation::ButterflyAllReduce, 400), 4, 1).unwrap();
        let sizes: Vec<u32> = butterfly.sizes().collect();
        assert_eq!(sizes, [[200; 4], [100; 4], [100; 4], [200; 4]].concat());
        let partners: Vec<u32> = butterfly.pairs().map(|(_, dst)| dst).collect();
        let expected = [[1, 0, 3, 2], [2, 3, 0, 1], [2, 3, 0, 1], [1, 0, 3, 2]];
        assert_eq!(partners, expected.concat());
    }

    #[test]
    fn random_ranks_are_different_hosts_and_follow_the_seed() {
        let hosts = |seed| placed(RankPlacement::Random, (16, 12), seed);
        let mut drawn = hosts(1);
        assert_eq!(drawn, hosts(1));
        assert_ne!(drawn, hosts(2));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 12);
    }

    #[test]
    fn mistakes_name_their_key() {
        let refused = |change: &dyn Fn(&mut CollectiveTraffic)| {
            let mut traffic = traffic(Operation::RingAllReduce, 8_000);
            change(&mut traffic);
            graph(&traffic, 8, 1).unwrap_err()
        };
        let key = |change: &dyn Fn(&mut CollectiveTraffic)| refused(change).0;
        assert_eq!(key(&|it| it.ranks = Some(9)), "traffic.ranks");
        assert_eq!(key(&|it| it.ranks = Some(1)), "traffic.ranks");
        assert_eq!(key(&|it| it.window = Some(1)), "traffic.window");
        assert_eq!(key(&|it| it.bytes = 7), "traffic.bytes");
        assert_eq!(key(&|it| it.bytes = 1 << 40), "traffic.bytes");
        let odd = |it: &mut CollectiveTraffic| {
            (it.operation, it.ranks) = (Operation::ButterflyAllReduce, Some(6));
        };
        assert_eq!(key(&odd), "traffic.ranks");
        let wide = |it: &mut CollectiveTraffic| {
            (it.operation, it.window) = (Operation::AllToAll, Some(8));
        };
        assert_eq!(key(&wide), "traffic.window");
        let many = traffic(Operation::RingAllReduce, 1 << 20);
        assert_eq!(graph(&many, 1 << 13, 1).unwrap_err().0, "traffic.ranks");
    }
}
