//! The order of outgoing messages (Homa §3.2, SRPT): `shortest_first`.
//!
//! Messages of less than [`SHORT`] bytes, nearly all in most workloads, wait in buckets of [`STEP`]
//! bytes and leave in constant time; in a bucket the older goes first. The others wait in a heap.
//! Entries are not removed from the middle: the caller recognises stale ones, and removes all of
//! them from time to time.

use crate::event::RpcHandle;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// Homa §3.2, SRPT: of the messages that are ready, the one with the fewest remaining bytes is sent
/// first (it is `Less`).
///
/// Example: a message with 3,000 bytes left goes before an older one with 50,000. Below [`SHORT`]
/// bytes the order is exact to [`STEP`] bytes, because buckets take the place of this comparison.
#[inline]
fn shortest_first(a: &SrptEntry, b: &SrptEntry) -> Ordering {
    let fewest_bytes = a.remaining.cmp(&b.remaining);
    // Of two that have equally many, the older. Ages differ, so the handle decides nothing.
    fewest_bytes.then(a.age.cmp(&b.age)).then(a.handle.cmp(&b.handle))
}

/// A message that may send, with the bytes remaining when it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrptEntry {
    pub(crate) remaining: u32,
    pub(crate) age: u64,
    pub(crate) handle: RpcHandle,
}

impl Ord for SrptEntry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        shortest_first(self, other)
    }
}

impl PartialOrd for SrptEntry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const STEP: u32 = 16;
const BUCKETS: u32 = 128;
/// Messages shorter than this go into buckets.
const SHORT: u32 = STEP * BUCKETS;

#[derive(Debug, Default)]
pub(crate) struct SrptQueue {
    occupied: u128,
    /// As many as the longest message in a bucket needed.
    buckets: Vec<VecDeque<SrptEntry>>,
    heap: BinaryHeap<Reverse<SrptEntry>>,
}

impl SrptQueue {
    pub(crate) fn push(&mut self, entry: SrptEntry) {
        if entry.remaining >= SHORT {
            // Long messages are few, so that the cost of exact order does not matter.
            self.heap.push(Reverse(entry));
            return;
        }
        let at = (entry.remaining / STEP) as usize;
        if self.buckets.len() <= at {
            self.buckets.resize_with(at + 1, VecDeque::new);
        }
        self.buckets[at].push_back(entry);
        self.occupied |= 1 << at;
    }

    /// The bucket to serve first, unless the heap has a shorter message.
    fn bucket(&self) -> Option<usize> {
        // The lowest bucket that is not empty has the fewest bytes left.
        let at = self.occupied.trailing_zeros();
        if at == BUCKETS {
            return None;
        }
        // A message in the heap may have become shorter than those in buckets since it was queued.
        let first = self.heap.peek().is_none_or(|top| top.0.remaining >= at * STEP);
        first.then_some(at as usize)
    }

    pub(crate) fn peek(&self) -> Option<&SrptEntry> {
        match self.bucket() {
            Some(at) => self.buckets[at].front(),
            None => self.heap.peek().map(|top| &top.0),
        }
    }

    pub(crate) fn pop(&mut self) {
        let Some(at) = self.bucket() else {
            self.heap.pop();
            return;
        };
        self.buckets[at].pop_front();
        if self.buckets[at].is_empty() {
            self.occupied &= !(1 << at);
        }
    }

    /// Removes the entries that are stale.
    pub(crate) fn retain(&mut self, mut is_valid: impl FnMut(&SrptEntry) -> bool) {
        self.heap.retain(|entry| is_valid(&entry.0));
        for (at, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.retain(&mut is_valid);
            if bucket.is_empty() {
                self.occupied &= !(1 << at);
            }
        }
    }

    /// Entries, stale ones included.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len() + self.buckets.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Gives the first entry a smaller key; it stays the first.
    pub(crate) fn lower_first(&mut self, remaining: u32) {
        match self.bucket() {
            Some(_) => {
                // In buckets the key decides the place, so the entry has to move.
                let entry = self.peek().copied();
                self.pop();
                if let Some(entry) = entry {
                    self.push(SrptEntry { remaining, ..entry });
                }
            }
            None => {
                if let Some(mut top) = self.heap.peek_mut() {
                    top.0.remaining = remaining;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_with_the_fewest_bytes_left_goes_first() {
        let message = |remaining, age| {
            let handle = RpcHandle { index: 0, generation: 0 };
            SrptEntry { remaining, age, handle }
        };
        for (first, second) in [
            // Fewest bytes left, whichever is older.
            (message(3_000, 1), message(50_000, 2)),
            (message(3_000, 2), message(50_000, 1)),
            // The older of two that have equally many.
            (message(3_000, 1), message(3_000, 2)),
        ] {
            assert_eq!(shortest_first(&first, &second), Ordering::Less, "{first:?} {second:?}");
            assert!(second > first);
        }
    }

    #[test]
    fn leaves_in_order_of_remaining_bytes_within_a_step() {
        arbtest::arbtest(|u| {
            let mut queue = SrptQueue::default();
            let mut model = Vec::new();
            for i in 0..u.int_in_range(0..=50u32)? {
                if u.ratio(1, 3)? && !model.is_empty() {
                    let first = *queue.peek().unwrap();
                    queue.pop();
                    let least = model.iter().map(|e: &SrptEntry| e.remaining).min().unwrap();
                    assert!(first.remaining < least + STEP, "{first:?} before {least}");
                    model.retain(|e| *e != first);
                } else {
                    let handle = RpcHandle { index: i, generation: 0 };
                    let remaining = u.int_in_range(1..=4000)?;
                    let entry = SrptEntry { remaining, age: u64::from(i), handle };
                    queue.push(entry);
                    model.push(entry);
                }
            }
            Ok(())
        });
    }

    #[test]
    fn messages_that_end_unsent_leave_no_entries() {
        use crate::packet::PeerId;
        use crate::{Config, Endpoint, PeerInfo, Rate, Submit, Time};
        let config = Config::for_users(Rate::gbps(10)).validate().unwrap();
        let mut endpoint = Endpoint::new(config);
        endpoint.open_peer(PeerId(0), PeerInfo { host: 0, max_payload: 1_400 });
        // The first message stays, and is still found in the end.
        for n in 0..20_000u32 {
            let length = if n == 0 { 3_000 } else { 1 + n % 50 * 100 };
            let one_way = Submit::OneWay { peer: PeerId(0), length, cookie: n.into() };
            let rpc = endpoint.submit(Time(1), one_way).unwrap().rpc;
            if n > 0 {
                endpoint.submit(Time(1), Submit::Cancel { rpc }).unwrap();
            }
            while endpoint.event().is_some() {}
            let (queue, fifo) = endpoint.send_queue.queues();
            assert!(queue.len() <= 1_100 && fifo <= 1_100, "{} and {fifo}", queue.len());
        }
        let sent = core::iter::from_fn(|| endpoint.transmit(Time(2))).count();
        assert_eq!(sent, 3);
    }

    #[test]
    fn messages_that_pass_an_older_one_leave_no_entries() {
        use crate::packet::{Body, Packet, PeerId};
        use crate::{Config, Endpoint, PeerInfo, Rate, Request, Submit, Time};
        let config = Config::for_users(Rate::gbps(10)).validate().unwrap();
        let length = config.max_message;
        let mut endpoint = Endpoint::new(config);
        endpoint.open_peer(PeerId(0), PeerInfo { host: 0, max_payload: 1_400 });
        let request = Request {
            peer: PeerId(0),
            local_port: 1,
            remote_port: 2,
            length,
            deadline: Time(u64::MAX),
            idempotent: false,
            head: 0,
            cookie: 0,
        };
        endpoint.submit(Time(1), Submit::Request(request)).unwrap();
        let first = endpoint.transmit(Time(1)).unwrap();
        let body = Body::Grant { offset: length, priority: 0 };
        let _ = endpoint.receive(Time(1), &Packet { id: first.id.server(), body, ..first });
        // The oldest always has bytes to send, and the shorter ones go first.
        for n in 0..10_000 {
            let one_way = Submit::OneWay { peer: PeerId(0), length: 3_000, cookie: n };
            endpoint.submit(Time(1), one_way).unwrap();
            for _ in 0..4 {
                endpoint.transmit(Time(2)).unwrap();
            }
            while endpoint.event().is_some() {}
            let (queue, fifo) = endpoint.send_queue.queues();
            assert!(queue.len() <= 1_100 && fifo <= 1_100, "{} and {fifo}", queue.len());
        }
    }
}
