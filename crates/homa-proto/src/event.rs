//! What the environment tells the endpoint to do, and what the endpoint tells it back.

use crate::packet::{MessageId, PeerId, RpcId};
use crate::units::Time;

/// An RPC as the application names it. Safe to keep: a handle of a finished RPC is refused, never
/// mistaken.
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
    /// A message without response, ack or wire encoding: for the simulator (Homa §5.2 measures
    /// these).
    OneWay {
        /// To whom.
        peer: PeerId,
        /// Bytes in the message, at least 1.
        length: u32,
        /// Returned in events about this message.
        cookie: u64,
    },
    /// Give up an RPC: as client (reaches the server where the profile allows) or as server (no
    /// answer).
    Cancel {
        /// The RPC.
        rpc: RpcHandle,
    },
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// To whom.
    pub peer: PeerId,
    /// The caller's Homa port.
    pub local_port: u16,
    /// The server's Homa port.
    pub remote_port: u16,
    /// Bytes in the request, at least 1.
    pub length: u32,
    /// When to fail with [`RpcError::DeadlineExceeded`].
    pub deadline: Time,
    /// May be executed again when the server lost its state.
    pub idempotent: bool,
    /// Bytes that the environment puts into the request's first packet beside the message
    /// (extensions of the datagram): so many fewer of the message are in it.
    pub head: u8,
    /// Returned in events about this RPC.
    pub cookie: u64,
}

/// The names given to an accepted submission. For `Cancel`, and nothing else, `message` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The RPC.
    pub rpc: RpcHandle,
    /// The outgoing message whose bytes the environment keeps until [`Event::Release`].
    pub message: Option<MessageId>,
}

/// Why a submission was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// Zero bytes: Homa cannot express an empty message; send one byte.
    EmptyMessage,
    /// Longer than our own or the peer's limit of `max` bytes.
    MessageTooLong {
        /// The limit that was exceeded.
        max: u32,
    },
    /// The configured number of RPCs is outstanding: wait for some to finish.
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
    /// Nothing was heard from the server for the profile's timeout.
    PeerUnreachable,
    /// The server lost the RPC, its application gave it up, or it is no longer there, and nobody
    /// can say whether it was executed; not retried, because the call did not say that it is
    /// idempotent.
    Indeterminate,
    /// The request is longer than the server accepts.
    RequestTooLong {
        /// The server's limit in bytes.
        max: u32,
    },
    /// The response is longer than this endpoint accepts.
    ResponseTooLong {
        /// The length the server announced, in bytes.
        length: u32,
    },
    /// The network reported that the server's host cannot be reached (ICMP). As for the next two,
    /// in the profile `default` the call was not executed; where it may have been, and the server
    /// died since, it is [`Self::Indeterminate`], and idempotent calls go on until their deadline.
    HostUnreachable,
    /// The server's host reported that it does not speak the protocol (ICMP).
    ProtocolUnreachable,
    /// Nothing listens at the port: the server's host (ICMP) or another engine there reported it.
    PortUnreachable,
}

/// The packet of ours that a report of the network shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its id, as we wrote it.
    pub id: RpcId,
    /// It was DATA.
    pub data: bool,
}

/// What the network says cannot be reached (ICMP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The peer's host.
    Host,
    /// The protocol at the peer's host, which is there.
    Protocol,
    /// Only this port of the peer.
    Port(u16),
}

impl Unreachable {
    /// How calls that it concerns end.
    pub(crate) const fn error(self) -> RpcError {
        match self {
            Self::Host => RpcError::HostUnreachable,
            Self::Protocol => RpcError::ProtocolUnreachable,
            Self::Port(_) => RpcError::PortUnreachable,
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
        /// Announced length in bytes (do not allocate on it: grants are what was agreed to).
        total: u32,
    },
    /// Bytes before `offset` of a long message (more than one packet) are all here.
    Readable {
        /// The RPC.
        rpc: RpcHandle,
        /// The message.
        message: MessageId,
        /// What it is.
        kind: MessageKind,
        /// End of the contiguous prefix, in bytes.
        offset: u32,
        /// From the request when this is its response; 0 otherwise.
        cookie: u64,
    },
    /// A whole message arrived; its bytes now belong to the application and `message` may be
    /// reused.
    Delivered(Delivered),
    /// A client's RPC failed (after which nothing more is heard of it but `Release`).
    Failed {
        /// The RPC.
        rpc: RpcHandle,
        /// From the request.
        cookie: u64,
        /// Why.
        error: RpcError,
    },
    /// A server's RPC ended before its response was delivered: the client cancelled, vanished or
    /// forgot.
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
    /// What it is.
    pub kind: MessageKind,
    /// From whom.
    pub peer: PeerId,
    /// The sender's Homa port.
    pub remote_port: u16,
    /// Our Homa port it was addressed to.
    pub local_port: u16,
    /// The RPC's number (client's form).
    pub id: RpcId,
    /// Bytes.
    pub length: u32,
    /// From the request when this is its response; 0 otherwise.
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

/// What became of a packet given to `receive`.
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

/// Why a packet was ignored. The codec's reasons ("undecodable") and the endpoint's are counted
/// alike.
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
    /// Bytes that partly overlap what was received (Linux §2.3: discarded whole).
    Overlap,
    /// Bytes of a message that is arriving from its first packet on, far beyond what was granted of
    /// it: no honest sender's.
    NotGranted,
    /// Bytes from the midst of a message of which nothing is here, or nothing more: they are late,
    /// after the end of their RPC, or the packets before them were lost; or bytes granted before a
    /// message was given up that arrives again. Loss, duplication, reordering and pauses do that.
    NotBegun,
    /// Would open another gap in a message that has as many as are tracked; the sender will be
    /// asked again.
    TooManyGaps,
    /// Bytes that were received before.
    Duplicate,
    /// A message longer than our limit.
    TooLong,
    /// The RPC is not known (any more).
    UnknownRpc,
    /// A GRANT for a message of which all is sent: its receiver repeats the last one until the
    /// message is whole (Linux §2.4), and copies come late; where requests may run again, also for
    /// a response of before.
    AlreadySent,
    /// Does not fit the RPC's state (a GRANT for a response that does not exist, say): no honest
    /// peer's.
    WrongState,
    /// The peer of the packet is not the RPC's.
    WrongPeer,
    /// A configured limit on RPCs or peers is reached.
    TooManyRpcs,
    /// The peer has as many RPCs in progress as are left for all others.
    TooManyOfPeer,
    /// The memory budget is spent, or more of it by this peer than is left for all others; the
    /// sender will be asked again.
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
    /// True for what loss, duplication, reordering, restarts and limits do to packets of honest
    /// peers; any other reason says that somebody breaks the protocol, or forges.
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
    Self::ResponseTooLong { length } => "the response of {} bytes exceeds our limit", length;
    Self::HostUnreachable => "the server's host cannot be reached";
    Self::ProtocolUnreachable => "the server's host does not speak Homa";
    Self::PortUnreachable => "nothing listens at the server's address";
});
