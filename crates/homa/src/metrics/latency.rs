//! How long RPCs took: histograms by direction and outcome, and the peers with most of them.
//!
//! Log-linear buckets, as of HDR histograms: eight to each doubling from 1 us to 69 s, so that a
//! percentile is 12 % off at most. Exported are two to a doubling.
//!
//! Invariant: memory is bounded by the RPCs and peers that the engine knows.

use std::net::SocketAddr;
use std::time::Duration;

use homa_proto::{PeerId, RpcHandle, Time};

use super::Text;

/// Buckets to a doubling, as a power of two.
const STEPS: u32 = 3;
/// The first bucket ends at two to this power, nanoseconds, and the last one.
const FIRST: u32 = 10;
const LAST: u32 = 36;
const BUCKETS: usize = ((LAST - FIRST) << STEPS) as usize + 2;
/// Of these buckets one end is exported.
const COARSE: usize = 4;
/// Peers in the list of those with most RPCs.
const TOP: usize = 16;
const DIRECTIONS: [Direction; 2] = [Direction::Client, Direction::Server];
const OUTCOMES: [RpcOutcome; 5] = [
    RpcOutcome::Ok,
    RpcOutcome::Deadline,
    RpcOutcome::Cancelled,
    RpcOutcome::Dropped,
    RpcOutcome::Failed,
];

/// Whose RPCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ours: from the call to its end.
    Client,
    /// Those of others: from when a request was whole to when its reply was handed over, or to its
    /// end without one.
    Server,
}

impl Direction {
    /// As a label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// How an RPC ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcOutcome {
    /// With its response.
    Ok,
    /// Its time was over.
    Deadline,
    /// The client gave it up.
    Cancelled,
    /// The server's application gave it up.
    Dropped,
    /// With another error, at the client.
    Failed,
}

impl RpcOutcome {
    /// As a label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// How often something took how long.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    nanos: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let median = self.percentile(50.0);
        f.debug_struct("Histogram").field("count", &self.count).field("p50", &median).finish()
    }
}

impl Histogram {
    const EMPTY: Self = Self { buckets: [0; BUCKETS], count: 0, nanos: 0 };

    fn record(&mut self, nanos: u64) {
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, other)| *ours += other);
        self.count += other.count;
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// How often.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all times.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The time that `percent` of all did not exceed, 12 % too long at most; `None` without any.
    /// Times of more than 69 s count as 69 s.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(end_of(found.min(BUCKETS - 2))))
    }

    /// Ends of exported buckets, nanoseconds, with how many were no longer.
    fn coarse(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut seen = 0;
        self.buckets[..BUCKETS - 1].iter().enumerate().filter_map(move |(n, &count)| {
            seen += count;
            n.is_multiple_of(COARSE).then_some((end_of(n), seen))
        })
    }
}

/// The bucket of a time: those up to the end of the first one, then of equal parts of each
/// doubling, then all others.
fn bucket_of(nanos: u64) -> usize {
    // A time that is an end is of the bucket that ends there.
    let below = nanos.saturating_sub(1);
    let Some(power) = below.checked_ilog2().filter(|&power| power >= FIRST) else { return 0 };
    let step = (below >> (power - STEPS)) as usize & ((1 << STEPS) - 1);
    ((((power - FIRST) << STEPS) as usize) + step + 1).min(BUCKETS - 1)
}

/// Where a bucket ends, nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (power, step) = (FIRST + (bucket as u32 >> STEPS), bucket as u64 & ((1 << STEPS) - 1));
    ((1 << STEPS) + step) << (power - STEPS)
}

/// How long RPCs of one direction took that ended in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Whose.
    pub direction: Direction,
    /// How they ended.
    pub outcome: RpcOutcome,
    /// How long they took.
    pub times: Histogram,
}

/// The RPCs with one peer that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLatency {
    /// Whose they were: ours, of the peer as server, or those of the peer as client.
    pub direction: Direction,
    /// The peer.
    pub peer: SocketAddr,
    /// How many.
    pub rpcs: u64,
    /// How many of them without a response.
    pub failures: u64,
    /// How long they took together.
    pub time: Duration,
}

/// RPCs with a peer that ended, of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedRpcs {
    rpcs: u64,
    failures: u64,
    nanos: u64,
}

impl EndedRpcs {
    /// One more.
    pub(crate) fn add(&mut self, nanos: u64, outcome: RpcOutcome) {
        self.rpcs += 1;
        self.failures += u64::from(outcome != RpcOutcome::Ok);
        self.nanos = self.nanos.saturating_add(nanos);
    }
}

/// What an engine knows of RPCs in progress and of those that ended.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    histograms: [[Option<Box<Histogram>>; OUTCOMES.len()]; DIRECTIONS.len()],
    /// By the RPC's place.
    started: Vec<StartedRpc>,
}

#[derive(Clone, Copy, Debug)]
struct StartedRpc {
    generation: u32,
    direction: Direction,
    peer: PeerId,
    at: Time,
}

/// Nothing is in progress there.
const NOTHING: StartedRpc = StartedRpc {
    generation: u32::MAX,
    direction: Direction::Client,
    peer: PeerId(0),
    at: Time::ZERO,
};

impl Latencies {
    /// An RPC with a peer begins.
    pub(crate) fn begin(&mut self, now: Time, rpc: RpcHandle, peer: PeerId, whose: Direction) {
        let place = rpc.index as usize;
        if self.started.len() <= place {
            self.started.resize(place + 1, NOTHING);
        }
        let (generation, direction, at) = (rpc.generation, whose, now);
        self.started[place] = StartedRpc { generation, direction, peer, at };
    }

    /// It ended; with whom, and after how many nanoseconds. One that ended before is left alone.
    pub(crate) fn end(
        &mut self,
        now: Time,
        rpc: RpcHandle,
        outcome: RpcOutcome,
    ) -> Option<(PeerId, Direction, u64)> {
        let started = self.started.get_mut(rpc.index as usize)?;
        if started.generation != rpc.generation {
            return None;
        }
        started.generation = NOTHING.generation;
        let (nanos, direction) = (now.since(started.at).0, started.direction);
        let histogram = &mut self.histograms[direction as usize][outcome as usize];
        histogram.get_or_insert_with(|| Box::new(Histogram::EMPTY)).record(nanos);
        Some((started.peer, direction, nanos))
    }

    /// What it means that we give up an RPC: a call is cancelled, a request dropped.
    pub(crate) fn given_up(&self, rpc: RpcHandle) -> RpcOutcome {
        let started = self.started.get(rpc.index as usize);
        match started.is_some_and(|started| started.direction == Direction::Server) {
            true => RpcOutcome::Dropped,
            false => RpcOutcome::Cancelled,
        }
    }

    /// What occurred.
    pub(crate) fn histograms(&self) -> Vec<Latency> {
        let all = DIRECTIONS.iter().flat_map(|&direction| OUTCOMES.map(|o| (direction, o)));
        all.filter_map(|(direction, outcome)| {
            let times = self.histograms[direction as usize][outcome as usize].as_deref()?;
            Some(Latency { direction, outcome, times: times.clone() })
        })
        .collect()
    }
}

/// Of peers, with their RPCs by direction, those with most.
pub(crate) fn busiest<'a>(
    peers: impl Iterator<Item = (SocketAddr, &'a [EndedRpcs; DIRECTIONS.len()])> + Clone,
) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let all = peers.clone().map(|(peer, ended)| (peer, ended[direction as usize]));
        let mut all: Vec<_> = all.filter(|(_, ended)| ended.rpcs > 0).collect();
        let order =
            |(peer, ended): &(SocketAddr, EndedRpcs)| (std::cmp::Reverse(ended.rpcs), *peer);
        if all.len() > TOP {
            all.select_nth_unstable_by_key(TOP, order);
            all.truncate(TOP);
        }
        all.sort_unstable_by_key(order);
        top.extend(all.into_iter().map(|(peer, EndedRpcs { rpcs, failures, nanos })| {
            PeerLatency { direction, peer, rpcs, failures, time: Duration::from_nanos(nanos) }
        }));
    }
    top
}

/// Adds what another engine took.
pub(super) fn merge(ours: &mut Vec<Latency>, other: Vec<Latency>) {
    let of = |latency: &Latency| (latency.direction as usize, latency.outcome as usize);
    for latency in other {
        match ours.iter_mut().find(|ours| of(ours) == of(&latency)) {
            Some(ours) => ours.times.add(&latency.times),
            None => ours.push(latency),
        }
    }
    ours.sort_by_key(of);
}

/// Those with most of the peers of two engines, which have none in common.
pub(super) fn merge_busiest(a: &[PeerLatency], b: &[PeerLatency]) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let of_direction = |peer: &&PeerLatency| peer.direction == direction;
        let mut all: Vec<_> = a.iter().chain(b).filter(of_direction).copied().collect();
        all.sort_unstable_by_key(|peer| (std::cmp::Reverse(peer.rpcs), peer.peer));
        all.truncate(TOP);
        top.extend(all);
    }
    top
}

fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// What a family tells of a peer.
type Value = fn(&PeerLatency) -> f64;

/// The families of what took how long.
pub(super) fn write(latencies: &[Latency], peers: &[PeerLatency], text: &mut Text) {
    let name = "rpc_duration_seconds";
    let help = "How long RPCs took: as client from the call to its end, as server from the whole \
                request to the reply, or to the end without one.";
    text.family(name, "histogram", help);
    for Latency { direction, outcome, times } in latencies {
        let labels = [("direction", direction.name()), ("outcome", outcome.name())];
        let bucket = format!("{name}_bucket");
        let le = |end: &str| [labels[0], labels[1], ("le", end)].map(|(n, v)| (n, v.to_owned()));
        let mut sample = |end: &str, count: u64| {
            let labels = le(end);
            let labels: Vec<_> = labels.iter().map(|(n, v)| (*n, v.as_str())).collect();
            text.sample(&bucket, &labels, count);
        };
        for (end, count) in times.coarse() {
            sample(&seconds(Duration::from_nanos(end)).to_string(), count);
        }
        sample("+Inf", times.count());
        text.sample(&format!("{name}_count"), &labels, times.count());
        text.sample(&format!("{name}_sum"), &labels, seconds(times.sum()));
    }
    let families: [(&str, &str, Value); 3] = [
        ("peer_rpcs", "RPCs that ended, with the peers that have most of them.", |p| p.rpcs as f64),
        ("peer_rpc_failures", "Those of them without a response.", |p| p.failures as f64),
        ("peer_rpc_seconds", "How long they took together.", |p| seconds(p.time)),
    ];
    for (name, help, value) in families {
        text.family(name, "counter", help);
        for peer in peers {
            let at = peer.peer.to_string();
            let labels = [("direction", peer.direction.name()), ("peer", &*at)];
            text.sample(&format!("{name}_total"), &labels, value(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_ends_no_more_than_an_eighth_later() {
        for power in FIRST..LAST {
            for part in 0..64_u64 {
                let nanos = (1 << power) + (part << power) / 64 + 1;
                let end = end_of(bucket_of(nanos));
                assert!(nanos <= end && end - nanos <= nanos / 8, "{nanos} in {end}");
            }
            assert_eq!(end_of(bucket_of(1 << power)), 1 << power);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!((bucket_of(0), bucket_of(1_024), bucket_of(1_025)), (0, 0, 1));
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut times = Histogram::EMPTY;
        assert_eq!(times.percentile(50.0), None);
        (1..=1_000).for_each(|us| times.record(us * 1_000));
        for (percent, us) in [(1.0, 10), (50.0, 500), (99.0, 990), (100.0, 1_000)] {
            let found = times.percentile(percent).unwrap().as_nanos() as f64 / 1_000.0;
            assert!((us as f64..=us as f64 * 1.13).contains(&found), "{percent}: {found}");
        }
        assert_eq!(times.sum(), Duration::from_micros(500_500));
    }
}
