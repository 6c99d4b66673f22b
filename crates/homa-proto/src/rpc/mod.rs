//! RPCs, not connections (Homa §3.1): one [`Rpc`] ties a request message to its response message,
//! and state exists only while the RPC is in progress.
//!
//! ```text
//! client   Outgoing ──first response byte──▶ Incoming ──whole response──▶ (forgotten)
//! server   Incoming ──whole request──▶ InService ──reply──▶ Outgoing ──last byte──▶ Sent
//!          Sent ──ack──▶ (forgotten)
//! ```
//! The unit of sending, granting, priority and loss is the message; this module only ties two
//! together.

pub(crate) mod client;
pub(crate) mod id;
pub(crate) mod server;
pub(crate) mod table;
mod unreachable;

use crate::event::{MessageKind, RpcHandle};
use crate::packet::{Body, MessageId, Packet, PeerId, RpcId};
use crate::receive::Reassembly;
use crate::send::OutgoingMessage;
use crate::units::Time;
use alloc::boxed::Box;

/// Where an RPC stands. The names are the kernel module's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RpcState {
    /// Client: sending the request or waiting for the first response byte.
    ClientOutgoing,
    /// Client: receiving the response.
    ClientIncoming,
    /// Server: receiving the request.
    ServerIncoming,
    /// Server: the application computes.
    ServerInService,
    /// Server: sending the response.
    ServerOutgoing,
    /// Server: response sent, not acknowledged.
    ServerSent,
    /// Sending a one-way message.
    OneWayOutgoing,
    /// Receiving a one-way message.
    OneWayIncoming,
}

impl RpcState {
    /// What an RPC in this state receives.
    pub(crate) const fn receives(self) -> MessageKind {
        match self {
            Self::ClientOutgoing | Self::ClientIncoming => MessageKind::Response,
            Self::OneWayIncoming => MessageKind::OneWay,
            _ => MessageKind::Request,
        }
    }

    /// An RPC in this state sends RESENDs.
    pub(crate) const fn sends_resends(self) -> bool {
        matches!(
            self,
            Self::ClientOutgoing
                | Self::ClientIncoming
                | Self::ServerIncoming
                | Self::OneWayIncoming
        )
    }

    /// A server's whose request is whole.
    pub(crate) const fn has_request(self) -> bool {
        matches!(self, Self::ServerInService | Self::ServerOutgoing | Self::ServerSent)
    }

    /// A client's that sends its message.
    pub(crate) const fn is_outgoing(self) -> bool {
        matches!(self, Self::ClientOutgoing | Self::OneWayOutgoing)
    }

    pub(crate) const fn is_client(self) -> bool {
        matches!(self, Self::ClientOutgoing | Self::ClientIncoming | Self::OneWayOutgoing)
    }
}

/// One RPC in progress. What every packet of it looks at comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Rpc {
    /// Client's form.
    pub(crate) id: RpcId,
    pub(crate) peer: PeerId,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) state: RpcState,
    pub(crate) idempotent: bool,
    /// RESENDs or NEED_ACKs since DATA or GRANT last arrived; for back-off.
    pub(crate) resend_count: u16,
    /// The request carried the incast flag: most unscheduled bytes of the response (Homa §3.6).
    pub(crate) response_limit: Option<u16>,
    pub(crate) out: OutgoingMessage,
    /// The incoming message, once its first packet arrived (unless that packet was all of it).
    pub(crate) inc: Option<Box<IncomingMessage>>,
    /// Last time the peer gave a sign of life for this RPC (DATA, GRANT or BUSY).
    pub(crate) last_heard: Time,
    /// When the last RESEND or NEED_ACK was sent since then.
    pub(crate) last_resend: Time,
    /// At the client, until the response begins: unscheduled bytes it may bring.
    pub(crate) pending_unscheduled: u32,
    /// RESENDs wait for the link.
    pub(crate) resends_queued: bool,
    /// The request started over: its server did not have it; at the server: perhaps it did, and the
    /// sender knows grants of then.
    pub(crate) restarted: bool,
    /// The peer spoke of it: it has bytes of our message.
    pub(crate) seen_by_peer: bool,
    /// In the peer's queue of RPCs that wait for their turn to ask.
    pub(crate) in_resend_queue: bool,
    /// A request that waits for its client to answer a challenge.
    pub(crate) unvalidated: bool,
    pub(crate) cookie: u64,
    pub(crate) started: Time,
    pub(crate) deadline: Time,
    /// At the client: when the last byte of the request left; `Time::MAX` before.
    pub(crate) request_sent: Time,
}

/// Most memory per byte that arrived, where it is more than [`FIRST_MEMORY`].
const GROWTH: u32 = 4;
/// Memory of a message of which little has arrived.
const FIRST_MEMORY: u32 = 4_096;

/// What remains of a finished RPC for its last words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRpc {
    pub(crate) state: RpcState,
    pub(crate) id: RpcId,
    pub(crate) peer: PeerId,
    /// Local and remote.
    pub(crate) ports: (u16, u16),
    pub(crate) cookie: u64,
}

/// A measurement of RTTbytes under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttProbe {
    /// The first byte that the GRANT allowed.
    pub(crate) from: u32,
    /// When it left.
    pub(crate) sent: Time,
    /// Bytes that were on their way to us already.
    pub(crate) ahead: u64,
}

/// An incoming message. What every packet of it looks at is one line of the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct IncomingMessage {
    pub(crate) bytes: Reassembly,
    /// All bytes before this were sent unscheduled or granted.
    pub(crate) granted: u32,
    /// Bytes counted against the memory budget: what arrived takes, and what was granted will.
    pub(crate) reserved: u32,
    /// When about a packet's worth of new bytes, or the last of them, came last.
    pub(crate) moved: Time,
    pub(crate) priority: u8,
    /// The scheduler tracks this message (it needs grants).
    pub(crate) scheduled: bool,
    /// Its outstanding bytes count against `max_incoming` unless it is parked: it needed grants,
    /// and in the user profile was given one.
    pub(crate) window_counted: bool,
    /// Its sender is silent: no grants, no share of `max_incoming`, nothing expected, until it
    /// sends again.
    pub(crate) suspended: bool,
    /// A GRANT waits to be transmitted.
    pub(crate) grant_queued: bool,
    /// Age: order of arrival.
    pub(crate) age: u64,
    /// Bytes agreed to and not here yet, as on the wire; only kept for a window of wire bytes.
    pub(crate) wire_outstanding: u32,
    /// All bytes before this were allowed by packets that left.
    pub(crate) grant_sent: u32,
    /// A GRANT whose first bytes have not come yet: measures RTTbytes.
    pub(crate) probe: Option<RttProbe>,
    /// Prefix already announced as readable.
    pub(crate) readable: u32,
}

impl IncomingMessage {
    /// A message of `length` bytes, of which `unscheduled` come without a grant.
    pub(crate) const fn new(now: Time, length: u32, unscheduled: u32, age: u64) -> Self {
        Self {
            bytes: Reassembly::new(length),
            granted: unscheduled,
            wire_outstanding: 0,
            reserved: 0,
            moved: now,
            priority: 0,
            age,
            scheduled: false,
            window_counted: false,
            suspended: false,
            grant_queued: false,
            grant_sent: unscheduled,
            readable: 0,
            probe: None,
        }
    }

    /// Makes this, a finished one, a new one; what it had allocated is kept.
    pub(crate) fn reuse(&mut self, now: Time, length: u32, unscheduled: u32, age: u64) {
        let bytes = core::mem::take(&mut self.bytes).reuse(length);
        *self = Self { bytes, ..Self::new(now, length, unscheduled, age) };
    }

    /// Memory that what arrived takes.
    pub(crate) fn held(&self) -> u32 {
        self.held_with(0, 0)
    }

    /// The same when `len` more bytes are here, up to `end`.
    pub(crate) fn held_with(&self, end: u32, len: u32) -> u32 {
        let received = self.bytes.received().saturating_add(len);
        memory_of(end.max(self.bytes.end()), received)
    }

    /// Bytes agreed to and not here yet.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.granted.saturating_sub(self.bytes.received())
    }
}

/// Memory for `received` bytes of a message, the last of which is before `end`. What lies in front
/// of them takes some where it may soon be filled, and none where a few bytes are far ahead: nobody
/// takes much memory from others by sending little.
pub(crate) fn memory_of(end: u32, received: u32) -> u32 {
    end.min(received.saturating_mul(GROWTH).max(FIRST_MEMORY))
}

/// The message that RPC `r` sends.
pub(crate) const fn outgoing_message(r: RpcHandle) -> MessageId {
    MessageId(r.index * 2)
}

/// The message that RPC `r` receives.
pub(crate) const fn incoming_message(r: RpcHandle) -> MessageId {
    MessageId(r.index * 2 + 1)
}

impl Rpc {
    /// An RPC without messages that begins now, between `ports` (local, remote).
    pub(crate) fn new(
        now: Time,
        state: RpcState,
        id: RpcId,
        peer: PeerId,
        ports: (u16, u16),
    ) -> Self {
        Self {
            state,
            id,
            peer,
            local_port: ports.0,
            remote_port: ports.1,
            idempotent: false,
            response_limit: None,
            pending_unscheduled: 0,
            resends_queued: false,
            restarted: false,
            seen_by_peer: false,
            in_resend_queue: false,
            unvalidated: false,
            cookie: 0,
            started: now,
            deadline: Time::MAX,
            request_sent: Time::MAX,
            last_heard: now,
            last_resend: now,
            resend_count: 0,
            out: OutgoingMessage::default(),
            inc: None,
        }
    }

    /// A control packet about this RPC to its peer.
    pub(crate) const fn control(&self, priority: u8, body: Body) -> Packet {
        Packet {
            peer: self.peer,
            priority,
            local_port: self.local_port,
            remote_port: self.remote_port,
            id: self.wire_id(),
            body,
        }
    }

    /// Bytes of the message it receives were agreed to and are not here.
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.inc.as_ref().is_some_and(|inc| inc.outstanding() > 0)
    }

    /// The id as this host writes it in packets.
    pub(crate) const fn wire_id(&self) -> RpcId {
        if self.state.is_client() { self.id } else { self.id.server() }
    }
}
