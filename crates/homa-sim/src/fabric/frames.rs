//! Packets in flight: 16 bytes that every hop reads, and the packet itself, which rests.
//!
//! A packet is named by its slot from the sender's wire to the receiver. Its [`Frame`] is what
//! queues and pipes link together; the packet lies in a second array that is read at both ends
//! only. Freed slots are used again first, so that few cache lines are in use. Nothing is allocated
//! once the arrays have grown to the largest number of packets in flight.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// What a hop needs to know of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The frame behind it in its list.
    pub next: u32,
    /// In a pipe: picoseconds from the arrival before to its own.
    pub gap: u32,
    /// The receiver, and the priority above.
    to_and_priority: u32,
    /// On the wire; less when the frame was interrupted and the rest has yet to go.
    pub bytes: u16,
    /// Decides the path under ECMP.
    pub flow: u16,
}

impl Frame {
    pub fn new(to: u32, priority: u8, bytes: u32, flow: u32) -> Self {
        Self {
            next: NONE,
            gap: 0,
            to_and_priority: to.min((1 << 24) - 1) | u32::from(priority & 7) << 24,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            flow: (flow ^ flow >> 16) as u16,
        }
    }

    #[inline]
    pub const fn to(self) -> u32 {
        self.to_and_priority & 0xFF_FFFF
    }

    #[inline]
    pub const fn priority(self) -> u8 {
        (self.to_and_priority >> 24) as u8
    }
}

/// First in, first out, through [`Frame::next`].
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

    /// Appends a frame that has none behind it.
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

/// A packet at rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel<K> {
    pub packet: K,
    /// The sender.
    pub from: u32,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Flights<K> {
    pub frames: Vec<Frame>,
    parcels: Vec<Parcel<K>>,
    free: u32,
    live: u32,
}

impl<K: Copy> Flights<K> {
    pub fn new() -> Self {
        Self { frames: Vec::new(), parcels: Vec::new(), free: NONE, live: 0 }
    }

    #[inline]
    pub fn insert(&mut self, frame: Frame, parcel: Parcel<K>) -> u32 {
        self.live += 1;
        let slot = self.free;
        if slot == NONE {
            self.frames.push(frame);
            self.parcels.push(parcel);
            return (self.frames.len() - 1) as u32;
        }
        let place = &mut self.frames[slot as usize];
        self.free = place.next;
        *place = frame;
        self.parcels[slot as usize] = parcel;
        slot
    }

    /// A second frame with the same packet.
    pub fn copy(&mut self, slot: u32) -> u32 {
        self.insert(self.frames[slot as usize], self.parcels[slot as usize])
    }

    #[inline]
    pub fn frame(&self, slot: u32) -> Frame {
        self.frames[slot as usize]
    }

    #[inline]
    pub fn parcel(&self, slot: u32) -> &Parcel<K> {
        &self.parcels[slot as usize]
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
