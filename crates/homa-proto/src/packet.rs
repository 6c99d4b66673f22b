//! Packets as values: `transmit` returns them and `receive` takes them.
//!
//! A packet carries a *span* (message, offset, length) and no bytes: the environment owns the bytes
//! and gathers them when it writes the frame. The `wire` module turns these values into the exact
//! layout of the Linux kernel module and back. Bodies are those of Homa §3, Figure 3, and the types
//! that the kernel module added.

use crate::units::Duration;

/// A remote endpoint, numbered by the environment, which alone has addresses, ports, keys and
/// paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A message known to the local endpoint: a small dense index, reused after
/// [`crate::Event::Release`] or after the message was handed over in [`crate::Event::Delivered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// An RPC's number on the wire. Clients allocate even numbers; the low bit names the sender of the
/// packet (0 the client, 1 the server).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcId(pub u64);

impl RpcId {
    /// True if a packet with this id was sent by the RPC's server.
    pub const fn from_server(self) -> bool {
        self.0 & 1 == 1
    }

    /// The client's (even) form of this id.
    pub const fn client(self) -> Self {
        Self(self.0 & !1)
    }

    /// The server's (odd) form of this id.
    pub const fn server(self) -> Self {
        Self(self.0 | 1)
    }
}

/// One Homa packet. `transmit` returns packets to `peer`; `receive` takes packets from `peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The remote endpoint.
    pub peer: PeerId,
    /// Priority level 0 (lowest) to 7; on receive, the level the packet arrived with.
    pub priority: u8,
    /// The Homa port at this host (source on transmit, destination on receive).
    pub local_port: u16,
    /// The Homa port at the peer.
    pub remote_port: u16,
    /// The RPC as the *sender* of this packet writes it.
    pub id: RpcId,
    /// Type and contents.
    pub body: Body,
}

impl Packet {
    /// True if it holds the first byte of a request: then a datagram may carry
    /// [extensions](crate::wire::datagram::RequestExtensions) for it.
    #[inline]
    pub const fn begins_request(&self) -> bool {
        matches!(&self.body, Body::Data(data) if data.span.offset == 0) && !self.id.from_server()
    }

    /// True if it belongs to a one-way message: those have no ports.
    pub(crate) const fn is_one_way(&self) -> bool {
        self.local_port == 0 && !self.id.from_server()
    }
}

/// Type and contents of a packet: one variant per type on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A range of bytes of a message.
    Data(Data),
    /// Announces a message whose sender waits for a grant before it sends any byte (public forks
    /// of the kernel module: [`StartMsg`](crate::StartMsg)).
    StartMsg {
        /// Length of the whole message in bytes.
        length: u32,
    },
    /// The sender may transmit up to `offset`, at `priority`.
    Grant {
        /// All bytes before this offset may be sent.
        offset: u32,
        /// Level for the granted bytes.
        priority: u8,
    },
    /// The sender should retransmit a range at `priority`.
    Resend {
        /// First missing byte.
        offset: u32,
        /// The missing bytes.
        length: ResendLength,
        /// Level for the retransmitted bytes.
        priority: u8,
    },
    /// Answer to a RESEND of an RPC that the sender does not know.
    RpcUnknown {
        /// How long the sender has remembered all of our packets (UDP only): if that is longer than
        /// the RPC's age, the request was never executed. `None`: not specified.
        remembered: Option<Duration>,
        /// No server listens at the port, and the request was not executed (UDP only).
        no_server: bool,
        /// Why the server gave the request up (UDP only). `None`: not specified.
        reason: Option<RefusalReason>,
    },
    /// The sender of the message is alive and will answer a RESEND later. Prevents timeouts.
    Busy {
        /// The server has no room for the request, and asks not to be asked again before this time
        /// has passed (UDP only). `None`: the bytes come when shorter messages are done.
        come_back: Option<Duration>,
    },
    /// New cutoffs for unscheduled priorities.
    Cutoffs {
        /// Largest message length for each level 0..=7; 0 means the level is not used for
        /// unscheduled bytes.
        cutoffs: [u32; 8],
        /// Version to be echoed in DATA.
        version: u16,
        /// Limits on what the sender accepts (UDP only).
        limits: Option<Limits>,
    },
    /// Debugging aid of the kernel module; ignored.
    Freeze,
    /// The server asks whether its response arrived.
    NeedAck,
    /// The server validates an address (UDP only): a NEED_ACK of an RPC that does not exist, whose
    /// random id only a host at the address can return. See `address_validation/`.
    Challenge {
        /// The server's boot id: a new one whenever it has forgotten executed RPCs.
        boot: u64,
        /// For how long it has forgotten nothing.
        remembered: Duration,
    },
    /// The RPC in the header and the listed ones are complete at the client.
    Ack(Acks),
    /// The client's answer to a challenge, with the same id (UDP only).
    Proof(Proof),
}

/// Why a server gives a request up: [`Submit::Refuse`](crate::Submit::Refuse).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The server has more to do than it can do in time. The request was not executed.
    Overloaded,
    /// The application ended the request without a response, for example because its handler
    /// panicked. A part of the request may have been executed.
    Abandoned,
    /// The response is longer than a limit of its server or its client. The request was executed.
    ResponseTooLong {
        /// Bytes in the response.
        length: u32,
        /// The limit that it exceeds, bytes.
        max: u32,
    },
    /// The deadline passed before the application began the request. It was not executed.
    DeadlinePassed,
}

impl RefusalReason {
    /// True if no part of the request was executed.
    pub const fn is_before_execution(self) -> bool {
        matches!(self, Self::Overloaded | Self::DeadlinePassed)
    }
}

/// The identity of a client that answers a challenge, and which of its requests can be in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The client's random number for itself at this server, which no other server gets; 0: it has
    /// no call in progress there.
    pub token: u64,
    /// The epoch of its RPC ids.
    pub epoch: u32,
    /// No request with a counter below this is in progress at the server.
    pub first: u32,
    /// No request with this counter, or one above, was made yet.
    pub next: u32,
}

/// A range of bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The bytes: on transmit the environment gathers them. On receive, set `span.message` to 0;
    /// the receipt names the message.
    pub span: Span,
    /// Length of the whole message in bytes.
    pub message_length: u32,
    /// Bytes that the sender transmits without a grant (for a retransmission: the end of the
    /// range).
    pub incoming: u32,
    /// Another RPC between the two hosts that is complete at its client, the sender of this packet.
    pub ack: Option<AckEntry>,
    /// Version of the receiver's cutoffs that chose this packet's priority.
    pub cutoff_version: u16,
    /// A retransmission.
    pub retransmit: bool,
    /// Homa §3.6: the client has many RPCs outstanding; at most this many bytes of the response may
    /// go unscheduled. Never sent under the `linux` profile.
    pub incast: Option<u16>,
}

impl Data {
    /// True if it was sent without a grant, for the first time.
    pub const fn is_unscheduled(&self) -> bool {
        self.span.offset < self.incoming && !self.retransmit
    }
}

/// A range of bytes of a local message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The message.
    pub message: MessageId,
    /// First byte.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

/// How much a RESEND asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendLength {
    /// This many bytes.
    Bytes(u32),
    /// Everything sent so far: the receiver has nothing (length −1 on the wire).
    All,
}

/// Limits on what a receiver accepts, sent along with its cutoffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest message it accepts, in bytes.
    pub max_message: u32,
    /// Most unscheduled bytes of one message it wants.
    pub max_unscheduled: u32,
}

/// A completed RPC, as its server is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckEntry {
    /// The client's (even) id.
    pub id: RpcId,
    /// The server's port.
    pub server_port: u16,
}

/// Up to five completed RPCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    ids: [u64; Acks::CAPACITY],
    ports: [u16; Acks::CAPACITY],
    len: u8,
}

impl Acks {
    /// Slots in an ACK packet.
    pub const CAPACITY: usize = 5;

    /// Adds an entry; gives it back when full.
    pub fn push(&mut self, entry: AckEntry) -> Result<(), AckEntry> {
        let at = self.len();
        if at == Self::CAPACITY {
            return Err(entry);
        }
        self.ids[at] = entry.id.0;
        self.ports[at] = entry.server_port;
        self.len += 1;
        Ok(())
    }

    /// Removes the entry added last (the kernel module piggybacks in this order).
    pub fn pop(&mut self) -> Option<AckEntry> {
        self.len = self.len.checked_sub(1)?;
        let at = self.len();
        Some(AckEntry {
            id: RpcId(core::mem::take(&mut self.ids[at])),
            server_port: core::mem::take(&mut self.ports[at]),
        })
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = AckEntry> + '_ {
        let entries = self.ids.iter().zip(&self.ports).take(self.len());
        entries.map(|(&id, &server_port)| AckEntry { id: RpcId(id), server_port })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stay_small_enough_to_pass_by_value() {
        assert!(size_of::<Packet>() <= 96, "{}", size_of::<Packet>());
    }
}
