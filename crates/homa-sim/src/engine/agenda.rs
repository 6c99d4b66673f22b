//! Pending events, packed for the event queue.

/// A [`NetEvent`] in 32 bits: a kind in 4 and an index in 28.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// An event of the network; the number is the index of a port, host, frame, call-back or incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetEvent {
    /// The first packet of a port's pipe reaches the far end.
    Arrival(u32),
    /// A host's wire has finished a packet; another may be sent.
    WireFree(u32),
    /// A transport's deadline is due.
    Timer(u32),
    /// A frame that was delayed takes effect at the node that it had reached.
    Deferred(u32),
    /// A call-back that an application requested is due.
    Wake(u32),
    /// Something happens to a host or a link.
    Incident(u32),
    /// A port with preemption has finished a frame.
    Served(u32),
    /// A frame has passed the forwarding engine of an input-queued switch.
    LookedUp(u32),
    /// A frame has crossed the crossbar from the input at the end of this link.
    Crossed(u32),
    /// The output port of a switch with flow control has finished a frame.
    Sent(u32),
    /// A control frame takes effect at a port: the port, then 8 bits, one per paused level.
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
