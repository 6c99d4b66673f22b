//! What is pending, as the engine's event queue names it.

/// Something scheduled: a kind in 4 bits and an index in 28.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// A [`Ticket`] spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetEvent {
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
    /// A frame has passed the forwarding engine of a switch with input queues.
    LookedUp(u32),
    /// A frame has crossed from the input at the end of this link.
    Crossed(u32),
    /// The port of such a switch has finished a frame.
    Sent(u32),
    /// A control frame takes effect at a port: the port, then 8 bits, the levels that pause.
    Paused(u32),
}

const SHIFT: u32 = 28;
const INDEX: u32 = (1 << SHIFT) - 1;

impl Ticket {
    #[inline]
    pub const fn new(event: NetEvent) -> Self {
        let (kind, index) = match event {
            NetEvent::Arrival(index) => (0, index),
            NetEvent::WireFree(index) => (1, index),
            NetEvent::Timer(index) => (2, index),
            NetEvent::Deferred(index) => (3, index),
            NetEvent::Wake(index) => (4, index),
            NetEvent::Incident(index) => (5, index),
            NetEvent::Served(index) => (6, index),
            NetEvent::LookedUp(index) => (7, index),
            NetEvent::Crossed(index) => (8, index),
            NetEvent::Sent(index) => (9, index),
            NetEvent::Paused(index) => (10, index),
        };
        debug_assert!(index <= INDEX);
        Self(kind << SHIFT | index)
    }

    #[inline]
    pub const fn event(self) -> NetEvent {
        let index = self.0 & INDEX;
        match self.0 >> SHIFT {
            0 => NetEvent::Arrival(index),
            1 => NetEvent::WireFree(index),
            2 => NetEvent::Timer(index),
            3 => NetEvent::Deferred(index),
            4 => NetEvent::Wake(index),
            5 => NetEvent::Incident(index),
            6 => NetEvent::Served(index),
            7 => NetEvent::LookedUp(index),
            8 => NetEvent::Crossed(index),
            9 => NetEvent::Sent(index),
            _ => NetEvent::Paused(index),
        }
    }
}
