//! The busiest peers: RPCs by peer and direction.
//!
//! Peers are chosen by their RPCs in about the last minute, so that a peer that was busy long ago
//! does not hide one that is busy now. What is exported of them are sums since the engine was
//! opened, as counters have to be.
//!
//! Invariant: memory is bounded by the number of peers in the engine's table.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

use homa_proto::Time;

use super::latency::{DIRECTIONS, seconds};
use super::{Direction, RpcOutcome, Text};

/// Peers in the list of the busiest, for each direction.
const TOP: usize = 16;
/// A period for the busiest peers is two to the power of this many nanoseconds: 34 s.
const PERIOD_LOG: u32 = 35;

/// RPCs with one peer that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLatency {
    /// The direction: calls to the peer, or requests from it.
    pub direction: Direction,
    /// The peer.
    pub peer: SocketAddr,
    /// Their number.
    pub rpcs: u64,
    /// The number of RPCs without a response.
    pub failures: u64,
    /// Sum of their durations.
    pub time: Duration,
    /// The number of RPCs in about the last minute, by which peers are chosen.
    pub recent: u64,
}

/// RPCs with one peer, of one direction, that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedRpcs {
    rpcs: u64,
    failures: u64,
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
        self.rpcs += 1;
        self.failures += u64::from(outcome != RpcOutcome::Ok);
        self.nanos = self.nanos.saturating_add(nanos);
    }
}

/// The peers with most RPCs of late, for each direction.
pub(crate) fn busiest<'a>(
    now: Time,
    peers: impl Iterator<Item = (SocketAddr, &'a [EndedRpcs; DIRECTIONS.len()])> + Clone,
) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let all = peers.clone().map(|(peer, ended)| (peer, ended[direction as usize]));
        let mut all: Vec<_> = all.filter(|(_, ended)| ended.rpcs > 0).collect();
        let recent = |ended: &EndedRpcs| -> u64 { ended.recent(now).map(u64::from).iter().sum() };
        let order =
            |(peer, ended): &(SocketAddr, EndedRpcs)| (Reverse((recent(ended), ended.rpcs)), *peer);
        if all.len() > TOP {
            all.select_nth_unstable_by_key(TOP, order);
            all.truncate(TOP);
        }
        all.sort_unstable_by_key(order);
        top.extend(all.into_iter().map(|(peer, ended)| {
            let EndedRpcs { rpcs, failures, nanos, .. } = ended;
            let (time, recent) = (Duration::from_nanos(nanos), recent(&ended));
            PeerLatency { direction, peer, rpcs, failures, time, recent }
        }));
    }
    top
}

/// The busiest peers of two engines that have no peer in common.
pub(super) fn merge(a: &[PeerLatency], b: &[PeerLatency]) -> Vec<PeerLatency> {
    let mut top = Vec::new();
    for direction in DIRECTIONS {
        let of_direction = |peer: &&PeerLatency| peer.direction == direction;
        let mut all: Vec<_> = a.iter().chain(b).filter(of_direction).copied().collect();
        all.sort_unstable_by_key(|peer| (Reverse((peer.recent, peer.rpcs)), peer.peer));
        all.truncate(TOP);
        top.extend(all);
    }
    top
}

/// A value of a family about a peer.
type Value = fn(&PeerLatency) -> f64;

/// Writes the families of the busiest peers.
pub(super) fn write(peers: &[PeerLatency], text: &mut Text) {
    let families: [(&str, &str, Value); 3] = [
        (
            "peer_rpcs",
            "RPCs that ended, with the peers that had most of them in the last minute.",
            |p| p.rpcs as f64,
        ),
        ("peer_rpc_failures", "Those of peer_rpcs that ended without a response.", |p| {
            p.failures as f64
        }),
        ("peer_rpc_seconds", "How long those of peer_rpcs took together.", |p| seconds(p.time)),
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
    fn peers_that_are_busy_now_come_before_those_that_were() {
        let at = |n: u64| Time((1 << PERIOD_LOG) * n);
        let (mut old, mut new) = ([EndedRpcs::default(); 2], [EndedRpcs::default(); 2]);
        (0..100).for_each(|_| old[0].add(at(1), 1, RpcOutcome::Ok));
        (0..3).for_each(|_| new[0].add(at(2), 1, RpcOutcome::Ok));
        let addresses = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let of = |now| {
            let peers = addresses.into_iter().zip([&old, &new]);
            busiest(now, peers)
                .iter()
                .map(|peer| (peer.peer.port(), peer.recent))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(at(2)), [(1, 100), (2, 3)]);
        assert_eq!(of(at(3)), [(2, 3), (1, 0)], "the first has made no call for a while");
    }
}
