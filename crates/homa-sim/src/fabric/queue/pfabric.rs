//! Priority scheduling and dropping by rank (pFabric, SIGCOMM 2013, §4.2): a port sends a packet of
//! the flow with the fewest bytes left and, if full, drops one of the flow with the most.
//!
//! Dequeue: the frame of the lowest rank selects the flow, and the earliest waiting frame of that
//! flow is sent, so that a flow whose later packets rank better does not starve its earlier ones.
//! Enqueue: while the arriving frame does not fit, the frame of the highest rank is dropped, which
//! may be the arriving one; of equal ranks, the latest is dropped. Frames of rank 0
//! (acknowledgements) precede all others; they have a separate list only to shorten searches.

use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, PortQueue, WaitingFrames};

/// The discipline of pFabric's switches.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorityDrop;

/// Rank and flow of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The lowest rank is sent first.
    rank: u32,
    /// Sender, receiver and flow number.
    flow: u64,
}

/// Lists of frames of rank 0 and of all others.
const FIRST: u8 = 1;
const REST: u8 = 0;

impl PortQueue for PriorityDrop {
    type Tag = Ranked;

    #[inline]
    fn tag(label: &Label, from: HostId) -> Ranked {
        let hosts = u64::from(from.0) << 40 | u64::from(label.to.0 & 0xFF_FFFF) << 16;
        Ranked {
            rank: u32::try_from(label.rank).unwrap_or(u32::MAX),
            flow: hosts | u64::from(label.flow & 0xFFFF),
        }
    }

    fn admit(
        &mut self,
        waiting: &mut WaitingFrames<'_, Ranked>,
        slot: u32,
        room: u64,
    ) -> Admission {
        let rank = waiting.tag(slot).rank;
        if u64::from(waiting.frame(slot).bytes) <= room {
            waiting.append(if rank == 0 { FIRST } else { REST }, slot);
            return Admission::Queued;
        }
        let of_most = |waiting: &WaitingFrames<'_, Ranked>, list| {
            waiting.list(list).max_by_key(|&other| waiting.tag(other).rank)
        };
        match of_most(waiting, REST) {
            Some(other) if waiting.tag(other).rank > rank => {
                waiting.take(REST, other);
                Admission::Evicted(other)
            }
            _ => Admission::Dropped,
        }
    }

    fn next(&mut self, waiting: &mut WaitingFrames<'_, Ranked>) -> u32 {
        if !waiting.is_empty(FIRST) {
            return waiting.take_highest();
        }
        let best = waiting.list(REST).min_by_key(|&slot| waiting.tag(slot).rank);
        let flow = best.map(|best| waiting.tag(best).flow);
        let earliest = waiting.list(REST).find(|&slot| Some(waiting.tag(slot).flow) == flow);
        match earliest {
            Some(slot) if waiting.take(REST, slot) => slot,
            _ => waiting.take_highest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::queue::tests::Bare;
    use homa_workload::rng::Rng;

    fn label(flow: u32, rank: u64) -> Label {
        Label { flow, rank, ..Label::new(HostId(0), 1_500) }
    }

    fn sends(port: &mut Bare<PriorityDrop>) -> Vec<u32> {
        std::iter::from_fn(|| port.next()).collect()
    }

    #[test]
    fn the_first_packet_of_the_shortest_flow_is_sent() {
        let mut port = Bare::new(PriorityDrop);
        for (flow, rank) in [(1, 900), (2, 700), (1, 500), (3, 0), (2, 600)] {
            assert_eq!(port.arrives(label(flow, rank), u64::MAX).1, Admission::Queued);
        }
        // First the acknowledgement, then flow 1 in order, because its second packet ranks best,
        // then flow 2.
        assert_eq!(sends(&mut port), [3, 0, 2, 1, 4]);
    }

    #[test]
    fn a_full_port_drops_the_longest_flow_and_the_latest_frame() {
        let mut port = Bare::new(PriorityDrop);
        for (flow, rank) in [(1, 900), (2, 950), (3, 950), (4, 0)] {
            port.arrives(label(flow, rank), u64::MAX);
        }
        let (newest, admission) = port.arrives(label(5, 800), 0);
        assert_eq!(admission, Admission::Evicted(2));
        assert_eq!(port.arrives(label(6, 950), 0).1, Admission::Dropped, "it is the latest");
        assert_eq!(port.arrives(label(7, 0), 1_499).1, Admission::Evicted(1));
        assert!(newest == 4 && sends(&mut port) == [3, 0]);
        // Only acknowledgements wait, and no frame ranks above them.
        port.arrives(label(4, 0), u64::MAX);
        assert_eq!(port.arrives(label(5, 0), 0).1, Admission::Dropped);
    }

    #[test]
    fn equal_flow_numbers_of_other_hosts_are_other_flows() {
        let tag = |from, to, flow| {
            PriorityDrop::tag(&Label { flow, ..Label::new(HostId(to), 0) }, HostId(from)).flow
        };
        let all = [tag(1, 2, 3), tag(2, 1, 3), tag(1, 3, 3), tag(1, 2, 4)];
        for (at, flow) in all.iter().enumerate() {
            assert!(!all[..at].contains(flow), "{all:?}");
        }
    }

    #[test]
    fn two_lists_serve_as_one_list_would() {
        let mut rng = Rng::stream(3, "ranks");
        let mut port = Bare::new(PriorityDrop);
        let mut model: Vec<(u32, u32, u64)> = Vec::new();
        for _ in 0..3_000 {
            if rng.uniform_below(2) == 0 {
                let (flow, rank) = (rng.uniform_below(4), u64::from(rng.uniform_below(5)));
                let flow = if rank == 0 { flow + 8 } else { flow };
                model.push((port.arrives(label(flow, rank), u64::MAX).0, flow, rank));
                continue;
            }
            let best = model.iter().min_by_key(|(.., rank)| *rank);
            let expected = best.map(|&(_, flow, _)| flow).and_then(|flow| {
                let at = model.iter().position(|other| other.1 == flow)?;
                Some(model.remove(at).0)
            });
            assert_eq!(port.next(), expected);
        }
    }
}
