//! The queue of a socket, and what a thread takes from it.

use std::net::SocketAddr;

use homa_proto::RpcHandle;

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
    /// The completion.
    pub result: Option<Result<Message, CallFailure>>,
    /// Its position among the completions that any thread may receive.
    pub(super) order: u64,
}

impl SocketCall {
    /// A call that has just started.
    pub fn new(to: SocketAddr, cookie: u64, private: bool) -> Self {
        Self { to, cookie, private, result: None, order: 0 }
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
}

/// A result of [`Mailbox::take`](super::Mailbox::take).
#[derive(Debug)]
pub enum MailboxItem {
    /// A completion.
    Response(RpcHandle, SocketCall),
    /// A request, its client, and its context.
    Request(RpcHandle, SocketAddr, Message, RequestContext),
    /// There is no such call: it was never made, or its completion was received.
    Unknown,
    /// Nothing is left and nothing will come.
    Closed,
    /// Nothing is available yet.
    Nothing,
}
