//! Large send offload (HULL §2.3, §4.1): the host hands large pieces of a flow to the network card,
//! which cuts them into frames that leave back to back.
//!
//! The host hands over all it may send as soon as it may, so that the card's queue is where packets
//! of all flows wait, first in, first out by the large sends; what joins it there is late for any
//! choice of the transport. Of what is handed over at a time, up to `bytes` of one flow make one
//! large send. Invariant: `held` is the sum over what waits. Left out: that TCP waits for a larger
//! piece while acknowledgements are on their way (`tcp_tso_win_divisor`), bounds per flow on what a
//! card may hold (TCP small queues came later).

use std::collections::VecDeque;

use homa_proto::Time;

use super::pacer::Flow;

/// See the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentationConfig {
    /// Most wire bytes of a large send; 0: every packet is handed over by itself.
    pub bytes: u32,
    /// Wire bytes that wait in the card beyond which it takes no more from the host.
    pub queue: u32,
}

impl SegmentationConfig {
    /// Linux' largest send of its time, 64 KB (HULL §4.1), and a queue of a thousand full packets.
    pub const LINUX: Self = Self { bytes: 65_536, queue: 1_538_000 };
}

/// A packet in the card, and since when it may leave.
#[derive(Clone, Copy, Debug)]
struct HeldPacket<P> {
    packet: P,
    bytes: u32,
    from: Time,
}

/// Packets of one flow that are handed over together.
#[derive(Debug)]
struct LargeSend<P> {
    flow: Flow,
    bytes: u32,
    /// Some of it are message bytes.
    data: bool,
    packets: Vec<(P, u32)>,
}

/// The card's queue.
#[derive(Debug)]
pub struct SendQueue<P> {
    config: SegmentationConfig,
    waiting: VecDeque<HeldPacket<P>>,
    held: u32,
    /// Being handed over.
    open: Vec<LargeSend<P>>,
}

impl<P: Copy> SendQueue<P> {
    /// Empty.
    pub fn new(config: SegmentationConfig) -> Self {
        Self { config, waiting: VecDeque::new(), held: 0, open: Vec::new() }
    }

    /// The card takes another packet.
    pub fn has_room(&self) -> bool {
        self.held < self.config.queue
    }

    /// The host hands a packet and its wire bytes over, with message bytes or without.
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

    /// What was handed over joins the queue; `ready` says for each large send, with message
    /// bytes or without, from when on it may leave.
    pub fn close(&mut self, mut ready: impl FnMut(bool) -> Time) {
        for send in self.open.drain(..) {
            let from = ready(send.data);
            let held = |(packet, bytes)| HeldPacket { packet, bytes, from };
            self.waiting.extend(send.packets.into_iter().map(held));
        }
    }

    /// The first packet, if it may leave.
    pub fn take(&mut self, now: Time) -> Option<P> {
        let first = self.waiting.front().filter(|held| held.from <= now)?;
        let (packet, bytes) = (first.packet, first.bytes);
        self.waiting.pop_front();
        self.held -= bytes;
        Some(packet)
    }

    /// From when on the first packet may leave.
    pub fn due(&self) -> Option<Time> {
        self.waiting.front().map(|held| held.from)
    }

    /// Nothing waits.
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
        // Two flows in turns, as a transport gives them.
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
        let order: Vec<_> = std::iter::from_fn(|| queue.take(Time(100))).collect();
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
        assert_eq!((queue.take(Time(49)), queue.due()), (None, Some(Time(50))));
        assert_eq!((queue.take(Time(50)), queue.take(Time(50))), (Some(0), None));
        assert_eq!(queue.due(), Some(Time(100)), "each by itself");
    }
}
