//! Packets in flight: a small hot record per packet, the packet itself beside it.
//!
//! A packet is named by its slot from the sender's wire to the receiver. A hop touches the 32-byte
//! [`Frame`] only; the packet rests in a second array that is read at both ends. Frames form the
//! queues and the links' pipelines as linked lists through `next`, so that nothing is allocated
//! once the arrays have grown to the largest number of packets in flight.

use crate::time::SimTime;

/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// What a hop needs to know of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// On a link: when it is there.
    pub at: SimTime,
    /// The frame behind it in its list.
    pub next: u32,
    pub from: u32,
    pub to: u32,
    /// Bytes on the wire.
    pub bytes: u32,
    pub flow: u32,
    pub priority: u8,
}

/// First in, first out, through [`Frame::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub fn is_empty(self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub fn front(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub fn back(self) -> Option<u32> {
        (self.head != NONE).then_some(self.tail)
    }

    #[inline]
    pub fn push_back(&mut self, frames: &mut [Frame], slot: u32) {
        frames[slot as usize].next = NONE;
        if self.head == NONE {
            self.head = slot;
        } else {
            frames[self.tail as usize].next = slot;
        }
        self.tail = slot;
    }

    #[inline]
    pub fn pop_front(&mut self, frames: &[Frame]) -> Option<u32> {
        let slot = self.front()?;
        self.head = frames[slot as usize].next;
        Some(slot)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Frames<K> {
    pub hot: Vec<Frame>,
    packets: Vec<K>,
    free: u32,
    live: u32,
}

impl<K: Copy> Frames<K> {
    pub fn new() -> Self {
        Self { hot: Vec::new(), packets: Vec::new(), free: NONE, live: 0 }
    }

    #[inline]
    pub fn insert(&mut self, frame: Frame, packet: K) -> u32 {
        self.live += 1;
        let slot = self.free;
        if slot == NONE {
            self.hot.push(frame);
            self.packets.push(packet);
            return (self.hot.len() - 1) as u32;
        }
        self.free = self.hot[slot as usize].next;
        self.hot[slot as usize] = frame;
        self.packets[slot as usize] = packet;
        slot
    }

    /// A second frame with the same packet.
    pub fn copy(&mut self, slot: u32) -> u32 {
        self.insert(self.hot[slot as usize], self.packets[slot as usize])
    }

    #[inline]
    pub fn packet(&self, slot: u32) -> &K {
        &self.packets[slot as usize]
    }

    #[inline]
    pub fn remove(&mut self, slot: u32) {
        self.hot[slot as usize].next = self.free;
        self.free = slot;
        self.live -= 1;
    }

    pub fn live(&self) -> u32 {
        self.live
    }
}
