//! The state of one RPC.
//!
//! Invariants: `loss`, `out` and `inc` belong to their folders, which alone change their contents;
//! the other fields are changed here.

use crate::event::{MessageKind, RpcHandle};
use crate::loss::RpcLoss;
use crate::packet::{Body, MessageId, Packet, PeerId, RpcId};
use crate::receive::message::IncomingMessage;
use crate::send::message::OutgoingMessage;
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

    /// True if an RPC in this state receives DATA, and sends RESENDs for it.
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

/// One RPC in progress. What each packet of it looks at comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Rpc {
    /// Client's form.
    pub(crate) id: RpcId,
    pub(crate) peer: PeerId,
    local_port: u16,
    remote_port: u16,
    pub(crate) state: RpcState,
    idempotent: bool,
    /// The request carried the incast flag: most unscheduled bytes of the response (Homa §3.6).
    response_limit: Option<u16>,
    pub(crate) out: OutgoingMessage,
    /// The incoming message, from its first packet on (unless that packet is all of it).
    pub(crate) inc: Option<Box<IncomingMessage>>,
    pub(crate) loss: RpcLoss,
    /// At the client, until the response begins: unscheduled bytes that it may bring.
    pending_unscheduled: u32,
    /// At the client: the request started over, because its server did not have it. At the server:
    /// it may have, and the sender may hold grants from that time.
    restarted: bool,
    /// The peer sent a packet about this RPC, so it has bytes of our message.
    seen_by_peer: bool,
    /// A request whose client has not answered a challenge yet.
    unvalidated: bool,
    /// A request that is executed although its client has not answered a challenge yet.
    executes_unvalidated: bool,
    /// A request that its application began to execute before it was whole.
    begun_early: bool,
    /// At the client: bytes of the response that may be granted beyond those that the application
    /// took. 0: it takes the response whole.
    response_window: u32,
    cookie: u64,
    /// When the RPC began under its id.
    started: Time,
    deadline: Time,
    /// At the client: when the last byte of the request left; `Time::MAX` before.
    request_sent: Time,
}

/// What remains of an RPC that ended, for the last packets about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRpc {
    pub(crate) state: RpcState,
    pub(crate) id: RpcId,
    pub(crate) peer: PeerId,
    /// Local and remote.
    pub(crate) ports: (u16, u16),
    pub(crate) cookie: u64,
    /// See [`Rpc::executes_unvalidated`].
    pub(crate) executes_unvalidated: bool,
}

/// What a call asks for beyond its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallOptions {
    pub idempotent: bool,
    pub response_limit: Option<u16>,
    pub pending_unscheduled: u32,
    pub cookie: u64,
    pub deadline: Time,
}

/// The message that an RPC sends.
pub(crate) const fn outgoing_message(handle: RpcHandle) -> MessageId {
    MessageId(handle.index * 2)
}

/// The message that an RPC receives.
pub(crate) const fn incoming_message(handle: RpcHandle) -> MessageId {
    MessageId(handle.index * 2 + 1)
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
            id,
            peer,
            local_port: ports.0,
            remote_port: ports.1,
            state,
            idempotent: false,
            response_limit: None,
            out: OutgoingMessage::default(),
            inc: None,
            loss: RpcLoss::new(now),
            pending_unscheduled: 0,
            restarted: false,
            seen_by_peer: false,
            unvalidated: false,
            executes_unvalidated: false,
            begun_early: false,
            response_window: 0,
            cookie: 0,
            started: now,
            deadline: Time::MAX,
            request_sent: Time::MAX,
        }
    }

    /// The same with the options of a call.
    pub(super) fn with_options(self, options: CallOptions) -> Self {
        let CallOptions { idempotent, response_limit, pending_unscheduled, cookie, deadline } =
            options;
        Self { idempotent, response_limit, pending_unscheduled, cookie, deadline, ..self }
    }

    /// The same with a message to send.
    pub(super) fn with_message(self, out: OutgoingMessage) -> Self {
        Self { out, ..self }
    }

    /// A server's: the limit on its response, and whether its client has to be validated first.
    pub(super) fn with_request(self, response_limit: Option<u16>, unvalidated: bool) -> Self {
        Self { response_limit, unvalidated, ..self }
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

    /// The id as this host writes it in packets.
    pub(crate) const fn wire_id(&self) -> RpcId {
        if self.state.is_client() { self.id } else { self.id.server() }
    }

    /// Local and remote.
    pub(crate) const fn ports(&self) -> (u16, u16) {
        (self.local_port, self.remote_port)
    }

    /// What remains when it ends.
    pub(super) const fn ended(&self) -> EndedRpc {
        let (ports, &Self { state, id, peer, cookie, executes_unvalidated, .. }) =
            (self.ports(), self);
        EndedRpc { state, id, peer, ports, cookie, executes_unvalidated }
    }

    /// Bytes of the message that it receives were agreed to and are not here.
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.inc.as_ref().is_some_and(|inc| inc.outstanding() > 0)
    }

    pub(super) const fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Most unscheduled bytes of the response.
    pub(crate) const fn response_limit(&self) -> Option<u16> {
        self.response_limit
    }

    pub(crate) const fn cookie(&self) -> u64 {
        self.cookie
    }

    pub(crate) const fn started(&self) -> Time {
        self.started
    }

    /// The RPC has an id that was never sent before.
    pub(super) fn start_again(&mut self, now: Time) {
        self.started = now;
    }

    pub(crate) const fn deadline(&self) -> Time {
        self.deadline
    }

    pub(super) const fn pending_unscheduled(&self) -> u32 {
        self.pending_unscheduled
    }

    /// The response begins: unscheduled bytes that it might have brought, and may not bring again.
    pub(crate) fn take_pending_unscheduled(&mut self) -> u32 {
        core::mem::take(&mut self.pending_unscheduled)
    }

    pub(crate) const fn is_restarted(&self) -> bool {
        self.restarted
    }

    pub(crate) fn set_restarted(&mut self, restarted: bool) {
        self.restarted = restarted;
    }

    pub(crate) const fn is_seen_by_peer(&self) -> bool {
        self.seen_by_peer
    }

    #[inline]
    pub(crate) fn note_seen_by_peer(&mut self) {
        self.seen_by_peer = true;
    }

    #[inline]
    pub(crate) const fn is_unvalidated(&self) -> bool {
        self.unvalidated
    }

    /// The client answered its challenge.
    pub(crate) fn set_validated(&mut self) {
        self.unvalidated = false;
    }

    /// True for a request that was executed although its client had not answered a challenge. It
    /// is not remembered as executed: it may be executed again.
    pub(crate) const fn executes_unvalidated(&self) -> bool {
        self.executes_unvalidated
    }

    /// The request is executed at once.
    pub(super) fn set_executes_unvalidated(&mut self) {
        self.executes_unvalidated = true;
    }

    pub(crate) const fn is_begun_early(&self) -> bool {
        self.begun_early
    }

    /// The application executes the request from now on.
    pub(crate) fn begin_early(&mut self) {
        self.begun_early = true;
    }

    /// The window through which the application reads the response as it arrives; 0: it does not.
    pub(crate) const fn response_window(&self) -> u32 {
        self.response_window
    }

    pub(crate) fn set_response_window(&mut self, window: u32) {
        self.response_window = window;
    }

    /// True if the application works on the request: it has it, was told of it while it arrives, or
    /// writes the response.
    pub(super) fn is_with_application(&self) -> bool {
        match self.state {
            RpcState::ServerInService => true,
            RpcState::ServerIncoming => self.inc.as_ref().is_some_and(|inc| inc.is_read_early()),
            RpcState::ServerOutgoing => self.out.is_being_written(),
            _ => false,
        }
    }

    pub(crate) const fn request_sent(&self) -> Time {
        self.request_sent
    }

    /// The last byte of the request left.
    pub(crate) fn note_request_sent(&mut self, now: Time) {
        self.request_sent = now;
    }
}
