//! Submissions, receipts and events: the values between the environment and the endpoint.

use crate::packet::{MessageId, PeerId, RefusalReason, RpcId};
use crate::units::Time;

/// The application's name for an RPC. It is safe to keep: the handle of a finished RPC is refused
/// and never names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcHandle {
    /// Slot in the endpoint's table.
    pub index: u32,
    /// Distinguishes successive users of the slot.
    pub generation: u32,
}

impl RpcHandle {
    /// The handle of no RPC.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: 0 };
}

/// A request by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Start an RPC as its client.
    Request(Request),
    /// Answer an RPC as its server.
    Response {
        /// The RPC, from [`Event::Delivered`].
        rpc: RpcHandle,
        /// Bytes in the response, at least 1.
        length: u32,
    },
    /// A message without response, ACK or wire encoding: for the simulator (Homa §5.2 measures
    /// these).
    OneWay {
        /// The receiver.
        peer: PeerId,
        /// Bytes in the message, at least 1.
        length: u32,
        /// Returned in events about this message.
        cookie: u64,
    },
    /// Give up an RPC. As client, the server is told if the profile allows; as server, there will
    /// be no response.
    Cancel {
        /// The RPC.
        rpc: RpcHandle,
    },
    /// Give up a request, or a response that is not [written](crate::Endpoint::written) whole, as
    /// its server and tell its client why, which fails its call with the
    /// error of that reason. Profiles other than `default`, and wires without extensions, have no
    /// reasons: there it is a [`Submit::Cancel`].
    Refuse {
        /// The RPC, from [`Event::Delivered`].
        rpc: RpcHandle,
        /// Why.
        reason: RefusalReason,
    },
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The server.
    pub peer: PeerId,
    /// The caller's Homa port.
    pub local_port: u16,
    /// The server's Homa port.
    pub remote_port: u16,
    /// Bytes in the request, at least 1.
    pub length: u32,
    /// When to fail with [`RpcError::DeadlineExceeded`].
    pub deadline: Time,
    /// The call may be executed again if the server lost its state.
    pub idempotent: bool,
    /// Bytes that the environment puts into the request's first packet beside the message
    /// (extensions of the datagram): that packet holds as many fewer of the message.
    pub head: u8,
    /// Returned in events about this RPC.
    pub cookie: u64,
}

/// What an accepted submission is called. `message` is `None` for `Cancel` and `Refuse`, and for
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The RPC.
    pub rpc: RpcHandle,
    /// The outgoing message whose bytes the environment keeps until [`Event::Release`].
    pub message: Option<MessageId>,
}

/// Why a submission was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// Zero bytes: Homa cannot express an empty message. The caller should send one byte.
    EmptyMessage,
    /// Longer than our own or the peer's limit of `max` bytes.
    MessageTooLong {
        /// The limit that was exceeded.
        max: u32,
    },
    /// The configured number of RPCs is in progress. The caller should wait until some finish.
    TooManyRpcs {
        /// The configured limit.
        max: u32,
    },
    /// The RPC is finished, cancelled or already answered.
    UnknownRpc,
    /// [`crate::Endpoint::open_peer`] was not called for this peer.
    UnknownPeer,
}

/// Why an RPC failed at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RpcError {
    /// The call's deadline passed.
    DeadlineExceeded,
    /// The server was silent for the profile's timeout.
    PeerUnreachable,
    /// The server lost the RPC, gave it up without a reason, or is no longer there; whether the
    /// call was executed is unknown. It was not retried because it is not marked idempotent.
    Indeterminate,
    /// The request is longer than the server accepts.
    RequestTooLong {
        /// The server's limit in bytes.
        max: u32,
    },
    /// The response is longer than this endpoint accepts, or than the server may send. The call was
    /// executed.
    ResponseTooLong {
        /// The length of the response in bytes.
        length: u32,
        /// The limit that it exceeds, bytes.
        max: u32,
    },
    /// The server has more to do than it can do in time and refused the call, which was not
    /// executed. To call again at once would make the overload worse.
    Overloaded,
    /// The server's application ended the call without a response, for example because its handler
    /// panicked. A part of it may have been executed.
    Abandoned,
    /// The network reported that the server's host cannot be reached (ICMP). As for the next two,
    /// in profile `default` the call was not executed; if it may have been executed before the
    /// server crashed, the error is [`Self::Indeterminate`]. Idempotent calls continue until their
    /// deadline instead.
    HostUnreachable,
    /// The server's host reported that it does not speak the protocol (ICMP).
    ProtocolUnreachable,
    /// Nothing listens at the port: the server's host (ICMP) or another engine there reported it.
    PortUnreachable,
    /// Our own system refused to send the request; the call was not executed.
    NotSent {
        /// The system's error number.
        errno: i32,
    },
    /// The endpoint was ended with [`crate::Endpoint::fail_all`].
    EndpointFailed {
        /// The system's error number.
        errno: i32,
    },
}

/// The packet of ours that an ICMP report quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its id, as we wrote it.
    pub id: RpcId,
    /// It was DATA with the first byte of its message, so a host that did not get it cannot have
    /// begun to execute a request. False also if too little of the packet is quoted.
    pub begins: bool,
}

/// What cannot be reached, according to an ICMP report or to our own system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The host of the peer.
    Host,
    /// The protocol: the peer's host exists and does not speak it.
    Protocol,
    /// This port of the peer and no other.
    Port(u16),
    /// Our own system refuses to send to the peer, and will refuse it again.
    Refused {
        /// The system's error number.
        errno: i32,
    },
}

impl Unreachable {
    /// The error of calls that it ends.
    pub(crate) const fn error(self) -> RpcError {
        match self {
            Self::Host => RpcError::HostUnreachable,
            Self::Protocol => RpcError::ProtocolUnreachable,
            Self::Port(_) => RpcError::PortUnreachable,
            Self::Refused { errno } => RpcError::NotSent { errno },
        }
    }
}

/// What happened; drained with [`crate::Endpoint::event`] after every input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// First bytes of an incoming message that did not arrive whole in one packet; `message` is
    /// valid from here to `Delivered` or `Release`.
    Started {
        /// The RPC it belongs to.
        rpc: RpcHandle,
        /// The message.
        message: MessageId,
        /// Announced length in bytes. It should not be allocated, because only granted bytes were
        /// agreed to.
        total: u32,
    },
    /// Bytes before `offset` of a long message (more than one packet) are all here.
    Readable {
        /// The RPC.
        rpc: RpcHandle,
        /// The message.
        message: MessageId,
        /// Its role.
        kind: MessageKind,
        /// End of the contiguous prefix, in bytes.
        offset: u32,
        /// From the request if this is its response; 0 otherwise.
        cookie: u64,
    },
    /// A whole message arrived; its bytes now belong to the application and `message` may be
    /// reused.
    Delivered(Delivered),
    /// A client's RPC failed. Only `Release` may follow about it.
    Failed {
        /// The RPC.
        rpc: RpcHandle,
        /// From the request.
        cookie: u64,
        /// The reason.
        error: RpcError,
    },
    /// A server's RPC ended before its response was delivered: the client cancelled it, was silent,
    /// or forgot it.
    Cancelled {
        /// The RPC.
        rpc: RpcHandle,
    },
    /// The endpoint will not ask for the bytes of this message again.
    Release {
        /// The message.
        message: MessageId,
    },
}

/// A message that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The RPC. For a request, answer it with [`Submit::Response`] or [`Submit::Cancel`].
    pub rpc: RpcHandle,
    /// The message.
    pub message: MessageId,
    /// Its role.
    pub kind: MessageKind,
    /// The sender.
    pub peer: PeerId,
    /// The sender's Homa port.
    pub remote_port: u16,
    /// Our Homa port it was addressed to.
    pub local_port: u16,
    /// The RPC's number (client's form).
    pub id: RpcId,
    /// Length in bytes.
    pub length: u32,
    /// From the request if this is its response; 0 otherwise.
    pub cookie: u64,
}

/// The role of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// From a client to a server.
    Request,
    /// From a server to a client.
    Response,
    /// Neither: [`Submit::OneWay`].
    OneWay,
}

/// The outcome of [`crate::Endpoint::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// Copy the payload's `len` bytes to `offset` of `message` (before
    /// draining events).
    Place(Placement),
    /// Acted upon; nothing to copy.
    Consumed,
    /// Ignored and counted.
    Dropped(DropReason),
}

/// Where received bytes belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The incoming message.
    pub message: MessageId,
    /// Length of the whole message.
    pub total: u32,
    /// First byte within the message.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Why a packet was dropped. Reasons of the codec and of the endpoint are counted alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// Shorter than its type demands.
    Truncated,
    /// A type that does not exist.
    UnknownType,
    /// A datagram version that we do not speak (UDP encapsulation).
    UnknownVersion,
    /// Encrypted with a key that we do not have.
    UnknownKey,
    /// A DATA packet without payload, or of a message without bytes.
    EmptyData,
    /// Bytes beyond the message's end, or a length that contradicts the first packet's.
    BeyondEnd,
    /// Bytes that partly overlap received ones (Linux §2.3: discarded whole).
    Overlap,
    /// Bytes of a message that is arriving, far beyond its grant: no honest sender
    /// sends them.
    NotGranted,
    /// Bytes from the middle of a message, if nothing of it is here: they are late, the packets
    /// before them were lost, or they were granted before the message was dropped and started over.
    /// Loss, duplication, reordering and pauses do that.
    NotBegun,
    /// The bytes would open another gap in a message that has as many as are tracked. The sender
    /// will be asked again.
    TooManyGaps,
    /// Bytes that were received before.
    Duplicate,
    /// A message longer than our limit.
    TooLong,
    /// The RPC is not known, or no longer.
    UnknownRpc,
    /// A GRANT for a message that was sent whole: its receiver repeats the last one until the
    /// message is complete (Linux §2.4), and copies arrive late. If requests may be executed again,
    /// also a GRANT for the response of an earlier execution.
    AlreadySent,
    /// The packet does not fit the RPC's state, for example a GRANT for a response that does not
    /// exist: no honest peer sends it.
    WrongState,
    /// The packet comes from another peer than the RPC's.
    WrongPeer,
    /// A configured limit on RPCs or peers is reached.
    TooManyRpcs,
    /// The peer exceeded its share of `max_rpcs`.
    TooManyOfPeer,
    /// The memory budget is spent, or the peer exceeded its share of it. The sender will be asked
    /// again.
    NoMemory,
    /// A request that was executed before.
    AlreadyExecuted,
    /// The packet's peer was never opened.
    UnknownPeer,
    /// No server listens here.
    NoServer,
}

impl DropReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 22] = [
        Self::Truncated,
        Self::UnknownType,
        Self::UnknownVersion,
        Self::UnknownKey,
        Self::EmptyData,
        Self::BeyondEnd,
        Self::Overlap,
        Self::NotGranted,
        Self::NotBegun,
        Self::TooManyGaps,
        Self::Duplicate,
        Self::TooLong,
        Self::UnknownRpc,
        Self::AlreadySent,
        Self::WrongState,
        Self::WrongPeer,
        Self::TooManyRpcs,
        Self::TooManyOfPeer,
        Self::NoMemory,
        Self::AlreadyExecuted,
        Self::UnknownPeer,
        Self::NoServer,
    ];
}

impl DropReason {
    /// True if loss, duplication, reordering, restarts or limits can do this to packets of honest
    /// peers. Any other reason shows a peer that violates the protocol, or an attacker.
    pub const fn is_ordinary(self) -> bool {
        matches!(
            self,
            Self::Overlap
                | Self::NotBegun
                | Self::TooManyGaps
                | Self::Duplicate
                | Self::TooLong
                | Self::UnknownRpc
                | Self::AlreadySent
                | Self::TooManyRpcs
                | Self::TooManyOfPeer
                | Self::NoMemory
                | Self::AlreadyExecuted
                | Self::NoServer
        )
    }
}

macro_rules! explain {
    ($type:ty { $($pattern:pat => $($text:expr),+;)* }) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $($pattern => write!(f, $($text),+),)*
                }
            }
        }

        impl core::error::Error for $type {}
    };
}

explain!(SubmitError {
    Self::EmptyMessage => "a message needs at least one byte";
    Self::MessageTooLong { max } =>
        "the message is longer than {} bytes: split it or raise the limit", max;
    Self::TooManyRpcs { max } => "{} RPCs are in progress: wait for some to finish", max;
    Self::UnknownRpc => "the RPC is finished, cancelled or already answered";
    Self::UnknownPeer => "the peer was not opened";
});

explain!(RpcError {
    Self::DeadlineExceeded => "the deadline passed";
    Self::PeerUnreachable => "the server does not answer: check its address and that it runs";
    Self::Indeterminate => "the server is gone, or lost or gave up the call; whether it was \
        executed is unknown: mark calls idempotent to have them retried";
    Self::RequestTooLong { max } => "the server accepts requests of at most {} bytes", max;
    Self::ResponseTooLong { length, max } =>
        "the response of {} bytes exceeds the limit of {}", length, max;
    Self::Overloaded => "the server is overloaded and did not execute the call: try again later";
    Self::Abandoned => "the server's application ended the call without a response";
    Self::HostUnreachable => "the server's host cannot be reached";
    Self::ProtocolUnreachable => "the server's host does not speak Homa";
    Self::PortUnreachable => "nothing listens at the server's address";
    Self::NotSent { errno } => "the system refused to send the request (error {})", errno;
    Self::EndpointFailed { errno } => "the system refuses to send and receive (error {})", errno;
});
