//! What the core reports to the application.

use std::net::SocketAddr;

use homa_proto::{MessageId, MessageKind, RpcHandle, RpcId};

use super::context::RequestContext;
use crate::engine::fairness::accounts::AccountId;
use crate::error::CallError;
use crate::message::Message;

/// The cookie of a socket's calls. The cookies of a client's calls are keys of a table, and none of
/// them is this one.
pub const SOCKET_CALL: u64 = u64::MAX;

/// An event for the application.
#[derive(Debug)]
pub enum EngineEvent {
    /// A call ended.
    Response {
        /// The call.
        rpc: RpcHandle,
        /// The cookie of the call.
        cookie: u64,
        /// Its response.
        result: Result<Message, CallError>,
        /// Length of the prefix of the response that is lent, and thus missing in it.
        lent: usize,
    },
    /// A request arrived, or its first bytes if its server reads requests while they arrive.
    Request {
        /// The handle for the reply.
        rpc: RpcHandle,
        /// The client.
        from: SocketAddr,
        /// The local port that it was sent to.
        port: u16,
        /// Its bytes.
        bytes: QueuedRequest,
        /// Its id, as the client writes it.
        id: RpcId,
        /// Its deadline and trace.
        context: RequestContext,
    },
    /// A request is whole that was announced when its first bytes arrived.
    Whole {
        /// The request.
        rpc: RpcHandle,
        /// Its bytes, without those that the application took.
        bytes: QueuedRequest,
    },
    /// More of a long message is readable while the rest is in flight.
    Readable(Partial),
    /// A client gave up a request that was not answered.
    Cancelled {
        /// The request.
        rpc: RpcHandle,
    },
}

impl EngineEvent {
    /// False if it is about a call of a client, which may share its engine with a socket.
    pub fn is_of_socket(&self) -> bool {
        match self {
            Self::Response { cookie, .. } => *cookie == SOCKET_CALL,
            Self::Readable(partial) => {
                partial.kind == MessageKind::Request || partial.cookie == SOCKET_CALL
            }
            Self::Request { .. } | Self::Whole { .. } | Self::Cancelled { .. } => true,
        }
    }
}

/// The bytes of a request that the application has not accepted. They count for the client's host
/// until [`Core::accept_request`](super::Core::accept_request).
#[derive(Debug)]
pub struct QueuedRequest {
    /// The bytes; none if the request is still arriving.
    pub bytes: Message,
    /// The request is still arriving, or was begun before it was whole. The protocol counts its
    /// bytes, not the queue.
    pub early: bool,
    /// The account of the client's host.
    pub account: AccountId,
}

/// A message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The RPC.
    pub rpc: RpcHandle,
    /// The message.
    pub message: MessageId,
    /// A request or a response.
    pub kind: MessageKind,
    /// The cookie of the call, if this is its response.
    pub cookie: u64,
    /// The bytes before this offset are readable.
    pub offset: u32,
}
