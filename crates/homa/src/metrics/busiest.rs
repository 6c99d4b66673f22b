//! The busiest peers: RPCs by peer and direction.
//!
//! Peers are chosen by their RPCs in about the last minute and those in progress, so that a peer
//! that was busy long ago does not hide one that is busy now, or one that does not answer. What is
//! exported of them are sums since the engine was opened, as counters have to be.
//!
//! Invariant: memory is bounded by the number of peers in the engine's table.
//!
//! Left out: a sum of the other peers. It would become smaller when a peer enters the list, which
//! no counter may. The totals of `homa_rpc_duration_seconds` less these are that sum.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

use homa_proto::Time;

use super::latency::{DIRECTIONS, OUTCOMES, seconds};
use super::{Direction, RpcOutcome, Text};

/// Peers in the list of the busiest, for each direction.
const TOP: usize = 16;
/// A period for the busiest peers is two to the power of this many nanoseconds: 34 s.
const PERIOD_LOG: u32 = 35;

/// RPCs with one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLatency {
    /// The direction: calls to the peer, or requests from it.
    pub direction: Direction,
    /// The peer.
    pub peer: SocketAddr,
    /// The number of RPCs that have ended.
    pub rpcs: u64,
    /// The number of those without a response.
    pub failures: u64,
    /// Sum of their durations.
    pub time: Duration,
    /// The number of RPCs that have ended in about the last minute. Peers are chosen by these and
    /// those in progress.
    pub recent: u64,
    /// The number of RPCs in progress: calls, or requests, replies that are not acknowledged
    /// included.
    pub in_progress: u64,
    outcomes: [u64; OUTCOMES.len()],
}

impl PeerLatency {
    /// The number of RPCs that have ended in one way.
    pub fn ended(&self, how: RpcOutcome) -> u64 {
        self.outcomes[how as usize]
    }

    /// Its rank in the list.
    fn order(&self) -> (Reverse<(u64, u64)>, SocketAddr) {
        (Reverse((self.recent + self.in_progress, self.rpcs)), self.peer)
    }
}

/// RPCs with one peer, of one direction, that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedRpcs {
    outcomes: [u64; OUTCOMES.len()],
    nanos: u64,
    /// The last period with RPCs, and how many it and the one before it had.
    period: u32,
    recent: [u32; 2],
}

/// The number of a period.
const fn period_of(now: Time) -> u32 {
    (now.0 >> PERIOD_LOG) as u32
}

impl EndedRpcs {
    /// RPCs in the period of `now` and the one before.
    const fn recent(&self, now: Time) -> [u32; 2] {
        match period_of(now).wrapping_sub(self.period) {
            0 => self.recent,
            1 => [0, self.recent[0]],
            _ => [0; 2],
        }
    }

    /// Adds an RPC.
    pub(crate) fn add(&mut self, now: Time, nanos: u64, outcome: RpcOutcome) {
        if self.period != period_of(now) {
            (self.recent, self.period) = (self.recent(now), period_of(now));
        }
        self.recent[0] = self.recent[0].saturating_add(1);
        self.outcomes[outcome as usize] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }
}

/// What is known of a peer: by direction, RPCs that have ended, and how many are in progress.
type KnownPeer<'a> = (SocketAddr, &'a [EndedRpcs; DIRECTIONS.len()], [u32; DIRECTIONS.len()]);

/// The peers with most RPCs of late, for each direction.
pub(crate) fn busiest<'a>(
    now: Time,
    peers: impl Iterator<Item = KnownPeer<'a>> + Clone,
) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let all = peers.clone().map(|(peer, ended, in_progress)| {
            let EndedRpcs { outcomes, nanos, .. } = ended[direction as usize];
            let rpcs: u64 = outcomes.iter().sum();
            PeerLatency {
                direction,
                peer,
                rpcs,
                failures: rpcs - outcomes[RpcOutcome::Ok as usize],
                time: Duration::from_nanos(nanos),
                recent: ended[direction as usize].recent(now).map(u64::from).iter().sum(),
                in_progress: in_progress[direction as usize].into(),
                outcomes,
            }
        });
        let mut all: Vec<_> = all.filter(|peer| peer.rpcs + peer.in_progress > 0).collect();
        if all.len() > TOP {
            all.select_nth_unstable_by_key(TOP, PeerLatency::order);
            all.truncate(TOP);
        }
        all.sort_unstable_by_key(PeerLatency::order);
        top.extend(all);
    }
    top
}

/// The busiest peers of two engines that have no peer in common.
pub(super) fn merge(a: &[PeerLatency], b: &[PeerLatency]) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let of_direction = |peer: &&PeerLatency| peer.direction == direction;
        let mut all: Vec<_> = a.iter().chain(b).filter(of_direction).copied().collect();
        all.sort_unstable_by_key(PeerLatency::order);
        all.truncate(TOP);
        top.extend(all);
    }
    top
}

/// A value of a family about a peer.
type Value = fn(&PeerLatency) -> f64;

/// Writes the families of the busiest peers.
pub(super) fn write(peers: &[PeerLatency], text: &mut Text) {
    let families: [(&str, &str, &str, Value); 3] = [
        (
            "peer_rpcs",
            "counter",
            "RPCs that ended, with the peers that had most of them in the last minute.",
            |p| p.rpcs as f64,
        ),
        ("peer_rpc_seconds", "counter", "How long those of peer_rpcs took together.", |p| {
            seconds(p.time)
        }),
        ("peer_rpcs_in_progress", "gauge", "RPCs in progress with the same peers.", |p| {
            p.in_progress as f64
        }),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for peer in peers {
            let at = peer.peer.to_string();
            let labels = [("direction", peer.direction.name()), ("peer", &*at)];
            text.sample(&format!("{name}{suffix}"), &labels, value(peer));
        }
    }
    write_failures(peers, text);
}

/// The ways in which RPCs of one direction can end without a response.
fn failures(direction: Direction) -> impl Iterator<Item = RpcOutcome> {
    OUTCOMES.into_iter().filter(move |outcome| match direction {
        Direction::Client => !matches!(outcome, RpcOutcome::Ok | RpcOutcome::Dropped),
        Direction::Server => {
            !matches!(outcome, RpcOutcome::Ok | RpcOutcome::Unreachable | RpcOutcome::Failed)
        }
    })
}

/// Writes how RPCs ended that had no response, by outcome. Zeros are written, too, so that the
/// first failure is an increase.
fn write_failures(peers: &[PeerLatency], text: &mut Text) {
    let name = "peer_rpc_failures";
    text.family(name, "counter", "Those of peer_rpcs that ended without a response, by outcome.");
    for peer in peers {
        let (direction, at) = (peer.direction.name(), peer.peer.to_string());
        for outcome in failures(peer.direction) {
            let labels = [("direction", direction), ("peer", &*at), ("outcome", outcome.name())];
            text.sample(&format!("{name}_total"), &labels, peer.ended(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_are_busy_now_come_before_those_that_were() {
        let at = |n: u64| Time((1 << PERIOD_LOG) * n);
        let (mut old, mut new) = ([EndedRpcs::default(); 2], [EndedRpcs::default(); 2]);
        (0..100).for_each(|_| old[0].add(at(1), 1, RpcOutcome::Ok));
        (0..3).for_each(|_| new[0].add(at(2), 1, RpcOutcome::Ok));
        let addresses = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let of = |now| {
            let peers = addresses.into_iter().zip([&old, &new]);
            busiest(now, peers.map(|(peer, ended)| (peer, ended, [0; 2])))
                .iter()
                .map(|peer| (peer.peer.port(), peer.recent))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(at(2)), [(1, 100), (2, 3)]);
        assert_eq!(of(at(3)), [(2, 3), (1, 0)], "the first has made no call for a while");
        let hangs = busiest(at(3), [(addresses[0], &old, [4, 0])].into_iter());
        assert_eq!((hangs[0].recent, hangs[0].in_progress), (0, 4));
    }

    #[test]
    fn a_peer_that_never_answers_is_listed_before_others() {
        let (now, none, mut few) = (Time(1), [EndedRpcs::default(); 2], [EndedRpcs::default(); 2]);
        (0..3).for_each(|_| few[0].add(now, 1, RpcOutcome::Overloaded));
        let peers = (1..40).map(|port| {
            let peer = SocketAddr::from(([10, 0, 0, 1], port));
            if port == 39 { (peer, &none, [4, 0]) } else { (peer, &few, [0; 2]) }
        });
        let listed = busiest(now, peers);
        assert_eq!((listed.len(), listed[0].peer.port()), (TOP, 39));
        assert_eq!((listed[1].failures, listed[1].ended(RpcOutcome::Overloaded)), (3, 3));
    }
}
