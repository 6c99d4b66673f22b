//! What is pending, as the engine's event queue names it.

/// Something scheduled: a kind and an index in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// A [`Ticket`] spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// The first packet of a port's pipe reaches the far end.
    Arrival(u32),
    /// A host's wire has finished a packet, and there may be another.
    WireFree(u32),
    /// A transport's deadline.
    Timer(u32),
    /// A frame that was held up takes effect at the node where it is.
    Deferred(u32),
    /// An application asked to be called.
    Wake(u32),
    /// Something happens to a host or a link.
    Incident(u32),
    /// A port that interrupts frames has finished one.
    Served(u32),
}

const SHIFT: u32 = 29;
const INDEX: u32 = (1 << SHIFT) - 1;

impl Ticket {
    #[inline]
    pub const fn new(happening: Happening) -> Self {
        let (kind, index) = match happening {
            Happening::Arrival(index) => (0, index),
            Happening::WireFree(index) => (1, index),
            Happening::Timer(index) => (2, index),
            Happening::Deferred(index) => (3, index),
            Happening::Wake(index) => (4, index),
            Happening::Incident(index) => (5, index),
            Happening::Served(index) => (6, index),
        };
        debug_assert!(index <= INDEX);
        Self(kind << SHIFT | index)
    }

    #[inline]
    pub const fn happening(self) -> Happening {
        let index = self.0 & INDEX;
        match self.0 >> SHIFT {
            0 => Happening::Arrival(index),
            1 => Happening::WireFree(index),
            2 => Happening::Timer(index),
            3 => Happening::Deferred(index),
            4 => Happening::Wake(index),
            5 => Happening::Incident(index),
            _ => Happening::Served(index),
        }
    }
}
