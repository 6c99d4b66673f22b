//! Latency histograms of RPCs by direction, outcome, and size.
//!
//! Buckets are log-linear, as in HDR histograms: eight for each doubling from 1 us to 69 s, so a
//! percentile is at most 12 % too high. Two for each doubling are exported.
//!
//! Invariant: memory is bounded by the number of RPCs in the engine's table.

use std::time::Duration;

use homa_proto::{PeerId, RpcError, RpcHandle, RpcId, Time};

use super::Text;
use super::stages::Stages;

/// Buckets per doubling, as a power of two.
const STEPS: u32 = 3;
/// The first bucket ends at 2 to the power of `FIRST` nanoseconds, and the last one at `LAST`.
const FIRST: u32 = 10;
const LAST: u32 = 36;
const BUCKETS: usize = ((LAST - FIRST) << STEPS) as usize + 2;
/// One in this many buckets is exported.
const COARSE: usize = 4;
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Client, Direction::Server];
const SIZES: [RpcSize; 3] = [RpcSize::Short, RpcSize::Medium, RpcSize::Long];
pub(super) const OUTCOMES: [RpcOutcome; 7] = [
    RpcOutcome::Ok,
    RpcOutcome::Deadline,
    RpcOutcome::Cancelled,
    RpcOutcome::Dropped,
    RpcOutcome::Overloaded,
    RpcOutcome::Unreachable,
    RpcOutcome::Failed,
];

/// The side of an RPC that this engine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This engine made the call. Time is measured from the call to its end.
    Client,
    /// This engine received the request. Time is measured from the complete request, or from the
    /// first bytes of one that is read while it arrives ([`Server::early`](crate::Server::early)),
    /// to the reply, or to the end without one.
    Server,
}

impl Direction {
    /// The value of the label.
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
    /// It ended with its response.
    Ok,
    /// Its deadline passed.
    Deadline,
    /// The client cancelled it.
    Cancelled,
    /// The server's application dropped it.
    Dropped,
    /// The server refused it because of its load.
    Overloaded,
    /// The server cannot be reached: its host or network says so, nothing listens there, it was
    /// silent for too long, or one end does not accept the other.
    Unreachable,
    /// The call failed with another error.
    Failed,
}

impl RpcOutcome {
    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
        }
    }

    /// The outcome of a call that ended with an error.
    pub(crate) const fn of(error: RpcError) -> Self {
        match error {
            RpcError::DeadlineExceeded => Self::Deadline,
            RpcError::Overloaded => Self::Overloaded,
            RpcError::HostUnreachable
            | RpcError::ProtocolUnreachable
            | RpcError::PortUnreachable
            | RpcError::PeerUnreachable
            | RpcError::NotSent { .. } => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

/// The size of an RPC: of the longer one of its two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RpcSize {
    /// Up to 1,400 bytes: one packet.
    Short,
    /// Up to 65,536 bytes: on most networks nearly all of it leaves without a grant.
    Medium,
    /// More.
    Long,
}

impl RpcSize {
    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    pub(super) const fn of(bytes: u32) -> Self {
        match bytes {
            0..=1_400 => Self::Short,
            1_401..=65_536 => Self::Medium,
            _ => Self::Long,
        }
    }
}

/// A histogram of durations.
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

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Histogram {
    const EMPTY: Self = Self { buckets: [0; BUCKETS], count: 0, nanos: 0 };

    pub(crate) fn record(&mut self, nanos: u64) {
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, other)| *ours += other);
        self.count += other.count;
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The duration that `percent` of all did not exceed, at most 12 % too high; `None` if nothing
    /// was recorded. Durations of more than 69 s count as 69 s.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(end_of(found.min(BUCKETS - 2))))
    }

    /// Ends of exported buckets in nanoseconds, with the number of durations up to each.
    fn coarse(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut seen = 0;
        self.buckets[..BUCKETS - 1].iter().enumerate().filter_map(move |(n, &count)| {
            seen += count;
            n.is_multiple_of(COARSE).then_some((end_of(n), seen))
        })
    }
}

/// The bucket of a duration: one up to the first end, equal parts of each doubling, and one for all
/// longer durations.
fn bucket_of(nanos: u64) -> usize {
    // A duration that equals an end belongs to the bucket that ends there.
    let below = nanos.saturating_sub(1);
    let Some(power) = below.checked_ilog2().filter(|&power| power >= FIRST) else { return 0 };
    let step = (below >> (power - STEPS)) as usize & ((1 << STEPS) - 1);
    ((((power - FIRST) << STEPS) as usize) + step + 1).min(BUCKETS - 1)
}

/// The end of a bucket, nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (power, step) = (FIRST + (bucket as u32 >> STEPS), bucket as u64 & ((1 << STEPS) - 1));
    ((1 << STEPS) + step) << (power - STEPS)
}

/// Durations of RPCs of one direction and size that ended in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The direction.
    pub direction: Direction,
    /// How they ended.
    pub outcome: RpcOutcome,
    /// The size of the longer one of their messages, of those that were sent or arrived.
    pub size: RpcSize,
    /// Their durations.
    pub times: Histogram,
}

/// Start times of RPCs in progress, and histograms of ended ones.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    histograms: [[[Option<Box<Histogram>>; SIZES.len()]; OUTCOMES.len()]; DIRECTIONS.len()],
    /// By the index of the RPC's handle.
    started: Vec<StartedRpc>,
    /// Where the time of some of them goes.
    pub(crate) stages: Stages,
}

#[derive(Clone, Copy, Debug)]
struct StartedRpc {
    generation: u32,
    direction: Direction,
    peer: PeerId,
    /// Bytes of the request.
    request: u32,
    at: Time,
}

/// No RPC is in progress at this index.
const NOTHING: StartedRpc = StartedRpc {
    generation: u32::MAX,
    direction: Direction::Client,
    peer: PeerId(0),
    request: 0,
    at: Time::ZERO,
};

impl Latencies {
    /// An RPC with a peer begins, with a request of `length` bytes.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        rpc: RpcHandle,
        peer: PeerId,
        whose: Direction,
        length: u32,
        id: impl FnOnce() -> Option<RpcId>,
    ) {
        self.follow(now, rpc, peer, whose, length, id);
        if whose == Direction::Server {
            self.stages.delivered(now, rpc);
        }
        let place = rpc.index as usize;
        if self.started.len() <= place {
            self.started.resize(place + 1, NOTHING);
        }
        let (generation, direction, request, at) = (rpc.generation, whose, length, now);
        self.started[place] = StartedRpc { generation, direction, peer, request, at };
    }

    /// Follows an RPC that has not begun from stage to stage, if its turn has come.
    #[inline]
    pub(crate) fn follow(
        &mut self,
        now: Time,
        rpc: RpcHandle,
        peer: PeerId,
        whose: Direction,
        length: u32,
        id: impl FnOnce() -> Option<RpcId>,
    ) {
        let begun = |latencies: &Self| {
            let started = latencies.started.get(rpc.index as usize);
            started.is_some_and(|started| started.generation == rpc.generation)
        };
        if self.stages.draws(rpc)
            && !begun(self)
            && !self.stages.follows(rpc)
            && let Some(id) = id()
        {
            self.stages.follow(now, (rpc, id, peer), whose, length);
        }
    }

    /// An RPC ended, with a response of `length` bytes (0: without). Returns its peer, direction,
    /// and duration in nanoseconds; `None` if it had ended before.
    pub(crate) fn end(
        &mut self,
        now: Time,
        rpc: RpcHandle,
        outcome: RpcOutcome,
        length: u32,
    ) -> Option<(PeerId, Direction, u64)> {
        let started = self.started.get_mut(rpc.index as usize)?;
        if started.generation != rpc.generation {
            return None;
        }
        started.generation = NOTHING.generation;
        let (nanos, direction) = (now.since(started.at).0, started.direction);
        match (direction, outcome) {
            (Direction::Server, RpcOutcome::Ok) => self.stages.replied(now, rpc, length),
            (Direction::Client, RpcOutcome::Ok | RpcOutcome::Deadline) => {
                self.stages.ended(now, rpc, length);
            }
            _ => self.stages.abandoned(rpc),
        }
        let size = RpcSize::of(started.request.max(length));
        let histogram = &mut self.histograms[direction as usize][outcome as usize][size as usize];
        histogram.get_or_insert_with(|| Box::new(Histogram::EMPTY)).record(nanos);
        Some((started.peer, direction, nanos))
    }

    /// The outcome if this engine gives up an RPC: a call is cancelled, a request is dropped.
    pub(crate) fn given_up(&self, rpc: RpcHandle) -> RpcOutcome {
        let started = self.started.get(rpc.index as usize);
        match started.is_some_and(|started| started.direction == Direction::Server) {
            true => RpcOutcome::Dropped,
            false => RpcOutcome::Cancelled,
        }
    }

    /// The histograms that are not empty.
    pub(crate) fn histograms(&self) -> Vec<Latency> {
        let all = DIRECTIONS.iter().flat_map(|&direction| OUTCOMES.map(|o| (direction, o)));
        let all = all.flat_map(|(direction, o)| SIZES.map(|size| (direction, o, size)));
        all.filter_map(|(direction, outcome, size)| {
            let of_direction = &self.histograms[direction as usize];
            let times = of_direction[outcome as usize][size as usize].as_deref()?;
            Some(Latency { direction, outcome, size, times: times.clone() })
        })
        .collect()
    }
}

/// Adds the histograms of another engine.
pub(super) fn merge(ours: &mut Vec<Latency>, other: Vec<Latency>) {
    let of =
        |latency: &Latency| (latency.direction as usize, latency.outcome as usize, latency.size);
    for latency in other {
        match ours.iter_mut().find(|ours| of(ours) == of(&latency)) {
            Some(ours) => ours.times.add(&latency.times),
            None => ours.push(latency),
        }
    }
    ours.sort_by_key(of);
}

pub(super) fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// Writes the family of durations.
pub(super) fn write(latencies: &[Latency], text: &mut Text) {
    let name = "rpc_duration_seconds";
    let help = "How long RPCs took: as client from the call to its end, as server from the whole \
                request, or the first bytes of one that is read while it arrives, to the reply, or \
                to the end without one.";
    text.family(name, "histogram", help);
    for Latency { direction, outcome, size, times } in latencies {
        let labels =
            [("direction", direction.name()), ("outcome", outcome.name()), ("size", size.name())];
        let bucket = format!("{name}_bucket");
        let mut sample = |end: &str, count: u64| {
            let [direction, outcome, size] = labels;
            text.sample(&bucket, &[direction, outcome, size, ("le", end)], count);
        };
        for (end, count) in times.coarse() {
            sample(&seconds(Duration::from_nanos(end)).to_string(), count);
        }
        sample("+Inf", times.count());
        text.sample(&format!("{name}_count"), &labels, times.count());
        text.sample(&format!("{name}_sum"), &labels, seconds(times.sum()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_most_an_eighth_after_a_duration() {
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
    fn percentiles_match_the_recorded_durations() {
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
