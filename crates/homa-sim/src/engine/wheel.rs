//! Pending events in a total order, by time and then first in, first out, in constant time.
//!
//! This is a calendar queue: buckets that are `1 << shift` picoseconds wide, with a bitmap of the
//! nonempty ones. The bucket being emptied is sorted and kept apart (`active`). Events beyond the
//! reach of the calendar wait in a heap. The events of a bucket are linked through a slab, seven
//! per cache line, so that nothing is allocated once the slab has grown. Width and number of
//! buckets follow the density of events, because a calendar that is too coarse has to sort and one
//! that is too short falls back on the heap.
//!
//! Invariants: `active` holds everything up to the bucket `cursor` in order; a bucket's list is in
//! the order of pushing, because the heap's events for a bucket move in before any newer event can;
//! the order of events does not depend on the width or number of buckets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::SimTime;

const NONE: u32 = u32::MAX;
/// Number of buckets at the start.
const MIN_SLOTS: usize = 4_096;
const MAX_SLOTS: usize = 1 << 20;
/// Widths of buckets: 16 ps to 1 ms.
const FINEST: u32 = 4;
const COARSEST: u32 = 30;
/// If at least this many events are pending, their memory is outside the cache, and buckets hold
/// more events so that it can be prefetched together.
pub(super) const PREFETCH_FROM: usize = 2_000;
/// Events that a bucket should hold: one node, or enough to be worth prefetching together.
const FEW_TO_SORT: u32 = 7;
const MANY_TO_FETCH: u32 = 64;
/// Events per node, which is a cache line.
const ROOM: usize = 7;
/// Pops between two reviews of the density.
const REVIEW: u32 = 16_384;

/// Adds a free node.
#[cold]
#[inline(never)]
fn grow<E: Copy>(nodes: &mut Vec<Node<E>>, free: &mut u32, event: E) {
    *free = nodes.len() as u32;
    nodes.push(Node { next: NONE, count: 0, after: [0; ROOM], events: [event; ROOM] });
}

/// The pending events; see the module header.
#[derive(Debug)]
pub struct Wheel<E> {
    active: Vec<DueEvent<E>>,
    /// The first event of `active` that has not been popped.
    taken: usize,
    /// Number of the bucket that became `active`: its time shifted right by `shift`.
    cursor: u64,
    shift: u32,
    /// By bucket: the node pushed last, which links to the one before.
    slots: Vec<u32>,
    /// A bit is set if the bucket holds events.
    bits: Vec<u64>,
    nodes: Vec<Node<E>>,
    free: u32,
    far: BinaryHeap<Reverse<FarEvent<E>>>,
    /// Bucket of the first event in `far`.
    far_first: u64,
    far_pushed: u64,
    len: usize,
    peak: usize,
    /// A node of the next bucket. Every pop reads one, so that they are in the cache when the
    /// bucket is emptied.
    scout: u32,
    /// Counts since the last review.
    seen: Density,
}

#[derive(Clone, Copy, Debug)]
struct DueEvent<E> {
    at: SimTime,
    event: E,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Node<E> {
    /// The node filled before it, or the next free one.
    next: u32,
    count: u32,
    /// Picoseconds from the start of the bucket.
    after: [u32; ROOM],
    events: [E; ROOM],
}

#[derive(Clone, Copy, Debug)]
struct FarEvent<E> {
    at: SimTime,
    order: u64,
    event: E,
}

impl<E> PartialEq for FarEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for FarEvent<E> {}

impl<E> PartialOrd for FarEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for FarEvent<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Density {
    pops: u32,
    /// Events that had to be sorted within their bucket.
    sorted: u32,
    /// Events beyond the reach of the calendar.
    far: u32,
    /// Buckets emptied.
    buckets: u32,
}

impl<E: Copy> Default for Wheel<E> {
    fn default() -> Self {
        // 2^13 ps = 8 ns.
        Self::with(13, MIN_SLOTS)
    }
}

impl<E: Copy> Wheel<E> {
    fn with(shift: u32, slots: usize) -> Self {
        Self {
            active: Vec::new(),
            taken: 0,
            cursor: 0,
            shift,
            slots: vec![NONE; slots],
            bits: vec![0; slots / 64],
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_first: u64::MAX,
            far_pushed: 0,
            len: 0,
            peak: 0,
            scout: NONE,
            seen: Density::default(),
        }
    }

    /// Schedules `event`.
    #[inline]
    pub fn push(&mut self, at: SimTime, event: E) {
        self.len += 1;
        let number = at.0 >> self.shift;
        let ahead = number.wrapping_sub(self.cursor);
        if number <= self.cursor {
            self.push_active(at, event);
        } else if ahead < self.slots.len() as u64 {
            self.link(number, at, event);
        } else {
            self.seen.far += 1;
            self.push_far(at, event);
        }
    }

    /// Removes the earliest event; among equals, the one pushed first.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        if self.taken == self.active.len() && !self.refill() {
            return None;
        }
        let DueEvent { at, event } = self.active[self.taken];
        self.taken += 1;
        self.len -= 1;
        self.seen.pops += 1;
        if let Some(node) = self.nodes.get(self.scout as usize) {
            self.scout = node.next;
        }
        Some((at, event))
    }

    /// Time of the earliest event.
    #[inline]
    pub fn peek(&mut self) -> Option<SimTime> {
        if self.taken == self.active.len() && !self.refill() {
            return None;
        }
        Some(self.active[self.taken].at)
    }

    /// True if the next event is the first of a bucket, so that [`Wheel::batch`] should be
    /// prefetched.
    #[inline]
    pub fn begins_batch(&self) -> bool {
        self.taken == 0 && self.active.len() > 1
    }

    /// Number of pending events.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Largest number of pending events, sampled each time a bucket was empty.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// True if no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cold]
    #[inline(never)]
    fn push_active(&mut self, at: SimTime, event: E) {
        let mut place = self.active.len();
        while place > self.taken && self.active[place - 1].at > at {
            place -= 1;
        }
        self.seen.sorted += u32::from(place < self.active.len());
        self.active.insert(place, DueEvent { at, event });
    }

    #[inline]
    fn link(&mut self, number: u64, at: SimTime, event: E) {
        let place = number as usize & (self.slots.len() - 1);
        let head = &mut self.slots[place];
        let after = (at.0 & ((1 << self.shift) - 1)) as u32;
        if let Some(node) = self.nodes.get_mut(*head as usize)
            && (node.count as usize) < ROOM
        {
            node.after[node.count as usize] = after;
            node.events[node.count as usize] = event;
            node.count += 1;
            return;
        }
        if self.free == NONE {
            grow(&mut self.nodes, &mut self.free, event);
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        (node.next, node.count) = (*head, 1);
        (node.after[0], node.events[0]) = (after, event);
        *head = index;
        self.bits[place / 64] |= 1 << (place % 64);
    }

    #[cold]
    #[inline(never)]
    fn push_far(&mut self, at: SimTime, event: E) {
        self.far_pushed += 1;
        self.far_first = self.far_first.min(at.0 >> self.shift);
        self.far.push(Reverse(FarEvent { at, order: self.far_pushed, event }));
    }

    /// Distance in buckets to the next nonempty one.
    #[inline]
    fn distance(&self) -> Option<u64> {
        let start = (self.cursor + 1) & (self.slots.len() as u64 - 1);
        let (first, many) = ((start / 64) as usize, self.bits.len());
        let mut word = self.bits[first] & (u64::MAX << (start % 64));
        // The last iteration covers the buckets that precede the start in its word, because the
        // calendar wraps around.
        for ahead in 1..=many as u64 {
            if word != 0 {
                let bit = (ahead - 1) * 64 + u64::from(word.trailing_zeros());
                return Some(bit + 1 - start % 64);
            }
            word = self.bits[(first + ahead as usize) & (many - 1)];
        }
        (word != 0).then(|| many as u64 * 64 + u64::from(word.trailing_zeros()) + 1 - start % 64)
    }

    /// Activates the next bucket; false if no event is pending.
    fn refill(&mut self) -> bool {
        self.active.clear();
        self.taken = 0;
        if self.len == 0 {
            return false;
        }
        self.peak = self.peak.max(self.len);
        if self.seen.pops >= REVIEW {
            self.review();
            if !self.active.is_empty() {
                return true;
            }
        }
        self.cursor = match self.distance() {
            Some(ahead) => self.cursor + ahead,
            None => self.far_first,
        };
        if self.far_first < self.cursor + self.slots.len() as u64 {
            self.approach();
        }
        self.load();
        self.seen.buckets += 1;
        if self.len >= PREFETCH_FROM {
            self.look_ahead();
        }
        true
    }

    /// Makes the following pops read the nodes of the next bucket.
    fn look_ahead(&mut self) {
        let next = self.distance().map(|ahead| self.cursor + ahead);
        let place = |number: u64| number as usize & (self.slots.len() - 1);
        self.scout = next.map_or(NONE, |number| self.slots[place(number)]);
    }

    /// Moves events from the heap into the calendar if it reaches them now.
    #[cold]
    fn approach(&mut self) {
        let end = self.cursor + self.slots.len() as u64;
        self.far_first = u64::MAX;
        while let Some(Reverse(far)) = self.far.peek() {
            let FarEvent { at, event, .. } = *far;
            let number = at.0 >> self.shift;
            if number >= end {
                self.far_first = number;
                return;
            }
            self.far.pop();
            self.link(number, at, event);
        }
    }

    /// Empties the bucket at the cursor into `active`, which is empty.
    #[inline]
    fn load(&mut self) {
        let place = self.cursor as usize & (self.slots.len() - 1);
        let mut index = std::mem::replace(&mut self.slots[place], NONE);
        self.bits[place / 64] &= !(1 << (place % 64));
        let begin = self.cursor << self.shift;
        while index != NONE {
            let node = &mut self.nodes[index as usize];
            for i in (0..(node.count as usize).min(ROOM)).rev() {
                let at = SimTime(begin + u64::from(node.after[i]));
                self.active.push(DueEvent { at, event: node.events[i] });
            }
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = index;
            index = next;
        }
        if self.active.len() > 1 {
            // The list begins with the event pushed last.
            self.active.reverse();
            if !self.active.is_sorted_by_key(|due| due.at) {
                self.seen.sorted += self.active.len() as u32;
                self.active.sort_by_key(|due| due.at);
            }
        }
    }

    /// Adapts width and number of buckets to the density.
    #[cold]
    fn review(&mut self) {
        let Density { pops, sorted, far, buckets } = std::mem::take(&mut self.seen);
        let slots = self.slots.len();
        let aim = if self.len < PREFETCH_FROM { FEW_TO_SORT } else { MANY_TO_FETCH };
        if pops > 2 * aim * buckets && sorted > pops / 4 && self.shift > FINEST {
            // If the calendar may grow, keep its reach with finer buckets.
            let more = self.len > slots / 8 && slots < MAX_SLOTS;
            self.rebuild(self.shift - 1, if more { 2 * slots } else { slots });
        } else if (far > pops / 8 || 2 * pops < aim * buckets) && self.shift < COARSEST {
            self.rebuild(self.shift + 1, slots);
        }
    }

    /// The events of the active bucket that have not been popped, for prefetching.
    #[inline]
    pub fn batch(&self) -> impl Iterator<Item = E> + '_ {
        self.active[self.taken..].iter().map(|due| due.event)
    }

    fn rebuild(&mut self, shift: u32, slots: usize) {
        let mut fresh = Self::with(shift, slots);
        // Every pending event is later than the bucket that was active.
        fresh.cursor = ((self.cursor + 1) << self.shift) >> shift;
        fresh.peak = self.peak;
        while let Some(ahead) = self.distance() {
            self.cursor += ahead;
            self.load();
            self.active.drain(..).for_each(|due| fresh.push(due.at, due.event));
        }
        while let Some(Reverse(far)) = self.far.pop() {
            fresh.push(far.at, far.event);
        }
        fresh.seen = Density::default();
        *self = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EventQueue;
    use homa_workload::rng::Rng;

    /// Pushes and pops at random, with delays up to `reach` ps; some are equal and some far.
    fn agrees_with_the_heap(seed: u64, reach: u64, pending: usize, steps: u32) {
        let mut rng = Rng::stream(seed, "wheel");
        let (mut wheel, mut heap) = (Wheel::default(), EventQueue::default());
        let mut now = SimTime::ZERO;
        for step in 0..steps {
            if wheel.len() < pending && rng.chance(0.6) || wheel.is_empty() {
                let delay = match rng.uniform_below(20) {
                    0 => 0,
                    1 => reach * 1_000 + rng.next_u64() % (reach * 1_000),
                    2 => 1_230_400,
                    _ => rng.next_u64() % reach,
                };
                let at = SimTime(now.0 + delay);
                wheel.push(at, step);
                heap.push(at, step);
            } else {
                if rng.chance(0.3) {
                    assert_eq!(wheel.peek(), heap.peek());
                }
                let next = heap.pop();
                assert_eq!(wheel.pop(), next);
                now = next.map_or(now, |(at, _)| at);
            }
            assert_eq!(wheel.len(), heap.len());
        }
        while let Some(next) = heap.pop() {
            assert_eq!(wheel.pop(), Some(next));
        }
        assert_eq!((wheel.pop(), wheel.peek()), (None, None));
    }

    #[test]
    fn events_come_in_the_order_of_a_heap_at_every_density() {
        agrees_with_the_heap(1, 2_000_000, 400, 200_000);
        agrees_with_the_heap(2, 1_000, 300, 100_000);
        agrees_with_the_heap(3, 1_000_000, 20_000, 300_000);
        agrees_with_the_heap(4, 1_000_000_000, 50, 100_000);
        agrees_with_the_heap(5, 40_000, 5_000, 200_000);
        agrees_with_the_heap(6, 100_000_000_000, 2_000, 100_000);
    }

    #[test]
    fn a_peek_does_not_keep_earlier_events_out() {
        let mut wheel = Wheel::default();
        wheel.push(SimTime(10_000_000), 'b');
        assert_eq!(wheel.peek(), Some(SimTime(10_000_000)));
        wheel.push(SimTime(1_000), 'a');
        wheel.push(SimTime(10_000_000), 'c');
        let order: Vec<char> = std::iter::from_fn(|| wheel.pop()).map(|next| next.1).collect();
        assert_eq!(order, ['a', 'b', 'c']);
    }

    #[test]
    fn bucket_width_and_number_follow_the_density() {
        let dense = |pending: u64, gap: u64| {
            let mut wheel = Wheel::default();
            (0..pending).for_each(|i| wheel.push(SimTime(i * gap % 1_000_000), 0));
            for step in 0..2_000_000_u64 {
                let (at, _) = wheel.pop().unwrap();
                wheel.push(SimTime(at.0 + 1_000_000 + step * 7_919 % 10_000), 0);
            }
            (1_u64 << wheel.shift, wheel.slots.len())
        };
        let (wide, few) = dense(100, 10_007);
        let (narrow, many) = dense(50_000, 20);
        assert!(narrow < wide, "{narrow} {wide}");
        assert!(many > few, "{many} {few}");
    }
}
