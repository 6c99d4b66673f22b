//! The queue of a socket, and what a thread takes from it.

use std::net::SocketAddr;

use homa_proto::RpcHandle;

use super::responses::ArrivingResponse;
use crate::engine::core::RequestContext;
use crate::error::CallError;
use crate::message::Message;

/// Why a call of a socket ended without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The call was aborted by this socket with an error number.
    #[error("the call was aborted with error {0}")]
    Aborted(i32),
}

/// A call in progress, or a completion that was not received yet.
#[derive(Debug)]
pub struct SocketCall {
    /// The server.
    pub to: SocketAddr,
    /// The number that the caller gave it.
    pub cookie: u64,
    /// Its completion is only received by its id.
    pub private: bool,
    /// Bytes of its request that were not written.
    pub unwritten: usize,
    /// Set if its response is read while it arrives.
    pub arriving: Option<ArrivingResponse>,
    /// The completion.
    pub result: Option<Result<Message, CallFailure>>,
    /// Its position among the completions that any thread may receive.
    pub(super) order: u64,
}

impl SocketCall {
    /// A call that has just started.
    pub fn new(to: SocketAddr, cookie: u64, private: bool) -> Self {
        Self { to, cookie, private, unwritten: 0, arriving: None, result: None, order: 0 }
    }

    /// True if a receive of this call returns now.
    pub(super) fn is_due(&self) -> bool {
        self.result.is_some() || self.arriving.as_ref().is_some_and(ArrivingResponse::is_due)
    }
}

/// The messages that a thread wants to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Requests.
    pub requests: bool,
    /// Completions of calls that are not private; without effect if `call` is set.
    pub responses: bool,
    /// The completion of this call.
    pub call: Option<RpcHandle>,
    /// More of this request or response, or its end.
    pub piece: Option<RpcHandle>,
}

/// A result of [`Mailbox::take`](super::Mailbox::take).
#[derive(Debug)]
pub enum MailboxItem {
    /// A completion.
    Response(RpcHandle, SocketCall),
    /// A request, its client, its bytes, its whole length, and its context.
    Request(RpcHandle, SocketAddr, Message, usize, RequestContext),
    /// More of a request or of a response can be read, or a request has ended.
    More {
        /// The RPC.
        rpc: RpcHandle,
        /// A request of others.
        request: bool,
        /// The peer.
        from: SocketAddr,
        /// The number that the caller gave a call.
        cookie: u64,
        /// Bytes that were not read.
        left: usize,
    },
    /// There is no such call: it was never made, or its completion was received.
    Unknown,
    /// Nothing is left and nothing will come.
    Closed,
    /// Nothing is available yet.
    Nothing,
}
