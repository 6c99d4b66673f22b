//! Packets in flight: 16 bytes that every hop reads, and the packet itself, which stays in place.
//!
//! From the sender's wire to the receiver, a packet is named by its slot. Queues and pipes link its
//! [`Frame`]; the packet is in a second array, which is read only at both ends. Freed slots are
//! reused first, so that few cache lines are in use. Nothing is allocated once the arrays have
//! grown to the largest number of packets in flight.

use crate::transport::Label;

/// Marks the absence of a slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The part of a packet that every hop reads.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The next frame in its list.
    pub(crate) next: u32,
    /// In a pipe: picoseconds since the previous arrival.
    pub(crate) gap: u32,
    /// From the low end: receiver, priority, marks.
    header: u32,
    /// Wire bytes; fewer if the frame was interrupted and the rest is still to be sent.
    pub bytes: u16,
    /// Selects the path under ECMP.
    pub(crate) flow: u16,
}

/// One-bit marks of a packet on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// ECN-capable transport (RFC 3168 §5): switches may mark instead of dropping.
    pub const ECT: Self = Self(1);
    /// Congestion experienced (RFC 3168 §5).
    pub const CE: Self = Self(2);
    /// A switch trimmed the payload (NDP §3.1).
    pub const TRIMMED: Self = Self(4);
    /// The sender can do without it, so that a switch may drop it before others.
    pub const DROPPABLE: Self = Self(8);
    /// A switch returned it to its sender (NDP §3.2.4).
    pub const RETURNED: Self = Self(16);
    /// A switch trimmed it at the port to its receiver (UET 1.0).
    pub const LAST_HOP: Self = Self(32);

    /// True if all marks of `other` are set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The marks as a number below 64; 0 if none is set.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// These marks, and `other` if `set`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, set: bool) -> Self {
        if set { Self(self.0 | other.0) } else { self }
    }
}

const PRIORITY_SHIFT: u32 = 23;
const MARKS_SHIFT: u32 = 26;

impl Frame {
    #[inline]
    pub(crate) fn new(label: &Label) -> Self {
        let flow = label.flow;
        let priority = u32::from(label.priority & 7) << PRIORITY_SHIFT;
        let marks = u32::from(label.marks().bits()) << MARKS_SHIFT;
        Self {
            next: NONE,
            gap: 0,
            header: label.to.0.min((1 << PRIORITY_SHIFT) - 1) | priority | marks,
            bytes: u16::try_from(label.wire_bytes).unwrap_or(u16::MAX),
            flow: (flow ^ flow >> 16) as u16,
        }
    }

    /// The destination host.
    #[inline]
    pub const fn to(self) -> u32 {
        self.header & ((1 << PRIORITY_SHIFT) - 1)
    }

    /// Priority level 0 (lowest) to 7.
    #[inline]
    pub const fn priority(self) -> u8 {
        (self.header >> PRIORITY_SHIFT) as u8 & 7
    }

    /// Marks of the frame.
    #[inline]
    pub const fn marks(self) -> Marks {
        Marks((self.header >> MARKS_SHIFT) as u8)
    }

    /// Sets marks.
    #[inline]
    pub const fn set(&mut self, marks: Marks) {
        self.header |= (marks.0 as u32) << MARKS_SHIFT;
    }

    /// Sends the frame back: it goes to `to`, with the mark RETURNED.
    pub(crate) fn send_back(&mut self, to: u32) {
        self.header = self.header >> PRIORITY_SHIFT << PRIORITY_SHIFT | to;
        self.set(Marks::RETURNED);
    }
}

/// A first-in, first-out list through [`Frame::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// Appends a frame whose `next` is [`NONE`].
    #[inline]
    pub fn append(&mut self, frames: &mut [Frame], slot: u32) {
        if self.head == NONE {
            self.head = slot;
        } else {
            frames[self.tail as usize].next = slot;
        }
        self.tail = slot;
    }
}

/// A packet with its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel<K> {
    pub packet: K,
    /// The sending host.
    pub from: u32,
}

/// All packets in flight, by slot.
#[derive(Debug)]
pub(crate) struct Flights<K, Tag> {
    pub frames: Vec<Frame>,
    /// Data that the switches' queues keep per packet.
    pub tags: Vec<Tag>,
    parcels: Vec<Parcel<K>>,
    free: u32,
    live: u32,
}

impl<K: Copy, Tag: Copy> Flights<K, Tag> {
    pub fn new() -> Self {
        Self { frames: Vec::new(), tags: Vec::new(), parcels: Vec::new(), free: NONE, live: 0 }
    }

    #[inline]
    pub fn insert(&mut self, frame: Frame, tag: Tag, parcel: Parcel<K>) -> u32 {
        self.live += 1;
        let slot = self.free;
        if slot == NONE {
            self.frames.push(frame);
            self.tags.push(tag);
            self.parcels.push(parcel);
            return (self.frames.len() - 1) as u32;
        }
        let place = &mut self.frames[slot as usize];
        self.free = place.next;
        *place = frame;
        self.tags[slot as usize] = tag;
        self.parcels[slot as usize] = parcel;
        slot
    }

    /// Inserts a copy of a frame with the same packet.
    pub fn copy(&mut self, slot: u32) -> u32 {
        let at = slot as usize;
        self.insert(self.frames[at], self.tags[at], self.parcels[at])
    }

    #[inline]
    pub fn frame(&self, slot: u32) -> Frame {
        self.frames[slot as usize]
    }

    #[inline]
    pub fn parcel(&self, slot: u32) -> &Parcel<K> {
        &self.parcels[slot as usize]
    }

    /// The frames, their tags, and the packets.
    #[inline]
    pub fn parts(&mut self) -> (&mut [Frame], &[Tag], &mut [Parcel<K>]) {
        (&mut self.frames, &self.tags, &mut self.parcels)
    }

    #[inline]
    pub fn remove(&mut self, slot: u32) {
        self.frames[slot as usize].next = self.free;
        self.free = slot;
        self.live -= 1;
    }

    pub fn live(&self) -> u32 {
        self.live
    }
}
