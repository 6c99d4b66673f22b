//! Large send offload (HULL §2.3, §4.1): the host hands large pieces of a flow to the network card,
//! which splits them into frames that leave back to back.
//!
//! The host hands over all packets as soon as it may, so that packets of all flows wait in the
//! card's queue, first in, first out by large sends. A transport cannot reorder packets once they
//! are there. Of the packets that are handed over at a time, up to `bytes` of one flow form one
//! large send, which is complete when its last frame leaves. (TCP's wait for a larger piece while
//! acknowledgements are in flight is in its sender.) Invariant: `held` is the sum over the packets
//! that wait. Left out: limits per flow on the bytes in a card (TCP small queues came later).

use std::collections::VecDeque;

use homa_proto::Time;

use super::UNCOUNTED;
use super::pacer::Flow;
use super::throttling::Work;

/// Configuration of large send offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentationConfig {
    /// Most wire bytes of a large send; 0 hands every packet over separately.
    pub bytes: u32,
    /// Wire bytes that may wait in the card before it takes no more from the host.
    pub queue: u32,
}

impl SegmentationConfig {
    /// The largest send of Linux at that time, 64 KB (HULL §4.1), and a queue of a thousand full
    /// packets.
    pub const LINUX: Self = Self { bytes: 65_536, queue: 1_538_000 };
}

/// A packet in the card, and when it may leave.
#[derive(Clone, Copy, Debug)]
struct HeldPacket<P> {
    packet: P,
    bytes: u32,
    from: Time,
    /// The large send that this packet completes; nothing if others of it follow.
    completes: Work,
}

/// Packets of one flow that are handed over together.
#[derive(Debug)]
struct LargeSend<P> {
    flow: Flow,
    bytes: u32,
    /// Some of its bytes are message bytes.
    data: bool,
    packets: Vec<(P, u32)>,
}

/// The card's queue.
#[derive(Debug)]
pub struct SendQueue<P> {
    config: SegmentationConfig,
    waiting: VecDeque<HeldPacket<P>>,
    held: u32,
    /// Large sends that are still being handed over.
    open: Vec<LargeSend<P>>,
}

impl<P: Copy> SendQueue<P> {
    /// An empty queue.
    pub fn new(config: SegmentationConfig) -> Self {
        Self { config, waiting: VecDeque::new(), held: 0, open: Vec::new() }
    }

    /// True if the card takes another packet.
    pub fn has_room(&self) -> bool {
        self.held < self.config.queue
    }

    /// Takes a packet with its wire bytes from the host; `data` if it has message bytes.
    pub fn hand_over(&mut self, flow: Flow, (packet, bytes): (P, u32), data: bool) {
        self.held += bytes;
        let limit = self.config.bytes;
        let room = |send: &&mut LargeSend<P>| send.flow == flow && send.bytes + bytes <= limit;
        match self.open.iter_mut().rev().find(room) {
            Some(send) => {
                send.bytes += bytes;
                send.data |= data;
                send.packets.push((packet, bytes));
            }
            None => {
                let packets = vec![(packet, bytes)];
                self.open.push(LargeSend { flow, bytes, data, packets });
            }
        }
    }

    /// Appends the large sends to the queue. `ready` returns, for a large send with or without
    /// message bytes, when it may leave.
    pub fn close(&mut self, mut ready: impl FnMut(bool) -> Time) {
        for send in self.open.drain(..) {
            let from = ready(send.data);
            let mut whole = Work::default();
            for (packet, bytes) in send.packets {
                whole.add(Work { frames: 1, bytes: bytes.saturating_sub(UNCOUNTED) });
                let completes = Work::default();
                self.waiting.push_back(HeldPacket { packet, bytes, from, completes });
            }
            if let Some(last) = self.waiting.back_mut() {
                last.completes = whole;
            }
        }
    }

    /// Takes the first packet, if it may leave now, and what it completes.
    pub fn take(&mut self, now: Time) -> Option<(P, Work)> {
        let first = self.waiting.front().filter(|held| held.from <= now)?;
        let HeldPacket { packet, bytes, completes, .. } = *first;
        self.waiting.pop_front();
        self.held -= bytes;
        Some((packet, completes))
    }

    /// When the first packet may leave.
    pub fn due(&self) -> Option<Time> {
        self.waiting.front().map(|held| held.from)
    }

    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_flow_leave_together_up_to_a_large_send() {
        let config = SegmentationConfig { bytes: 3_000, queue: 10_000 };
        let mut queue = SendQueue::new(config);
        // Packets of two flows in turns, as a transport sends them.
        for n in 0..4 {
            queue.hand_over((1, 7), (('a', n), 1_500), true);
            queue.hand_over((2, 7), (('b', n), 1_500), true);
        }
        assert!(!queue.has_room(), "12,000 bytes wait");
        let mut sends = 0;
        queue.close(|_| {
            sends += 1;
            Time(sends * 10)
        });
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(Time(100))).collect();
        let completed: Vec<u32> = taken.iter().map(|(_, work)| work.frames).collect();
        assert_eq!(completed, [0, 2, 0, 2, 0, 2, 0, 2], "a large send counts when it is complete");
        assert_eq!(taken[1].1.bytes, 2 * (1_500 - UNCOUNTED));
        let order: Vec<_> = taken.into_iter().map(|(packet, _)| packet).collect();
        let expected = ['a', 'a', 'b', 'b', 'a', 'a', 'b', 'b'];
        assert_eq!(order.iter().map(|(flow, _)| *flow).collect::<Vec<_>>(), expected);
        assert_eq!(order.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(sends, 4);
        assert!(queue.is_empty() && queue.has_room());
    }

    #[test]
    fn a_packet_leaves_after_the_host_has_prepared_it() {
        let mut queue = SendQueue::new(SegmentationConfig { bytes: 0, queue: 10_000 });
        for n in 0..2 {
            queue.hand_over((1, 7), (n, 1_500), true);
        }
        let mut at = 0;
        queue.close(|_| {
            at += 50;
            Time(at)
        });
        let mut take = |now| queue.take(Time(now)).map(|(packet, _)| packet);
        assert_eq!([take(49), take(50), take(50)], [None, Some(0), None]);
        assert_eq!(queue.due(), Some(Time(100)), "each by itself");
    }
}
