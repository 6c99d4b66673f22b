//! What an inline engine reports, and how long it may wait for that.

use std::net::SocketAddr;
#[cfg(feature = "encryption")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use homa_proto::wire::datagram::TraceContext;
use homa_proto::{MessageKind, RpcHandle};

use super::super::core;
use crate::error::CallError;
use crate::message::Message;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(super) RpcHandle);

/// A request to be answered. If it is not, the client waits until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) RpcHandle);

/// A message that has arrived in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial(pub(super) core::Partial);

impl Partial {
    /// The call, if this is a response.
    pub fn response_of(&self) -> Option<CallId> {
        (self.0.kind == MessageKind::Response).then_some(CallId(self.0.rpc))
    }

    /// The request, if this is one.
    pub fn request(&self) -> Option<RequestId> {
        (self.0.kind == MessageKind::Request).then_some(RequestId(self.0.rpc))
    }

    /// Bytes that were readable when this was reported.
    pub fn readable(&self) -> usize {
        self.0.offset as usize
    }
}

/// How long [`Engine::poll`](super::Engine::poll) may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return at once, for threads that spin. The clock is read, and timers run, only every few
    /// calls; outer event loops should use [`Engine::turn`](super::Engine::turn).
    No,
    /// Sleep until something is ready, but at most this long.
    For(Duration),
    /// Sleep until something is ready.
    Forever,
}

/// A result of [`Engine::next`](super::Engine::next).
#[derive(Debug)]
pub enum Completion {
    /// A call ended.
    #[non_exhaustive]
    Response {
        /// The call.
        id: CallId,
        /// The number given with the call.
        cookie: u64,
        /// Its response.
        result: Result<Message, CallError>,
    },
    /// A request arrived: answer it with [`Engine::reply`](super::Engine::reply) or
    /// [`Engine::refuse`](super::Engine::refuse).
    #[non_exhaustive]
    Request {
        /// The request.
        id: RequestId,
        /// The client.
        from: SocketAddr,
        /// The local port that it was sent to.
        port: u16,
        /// Its bytes.
        bytes: Message,
        /// The time at which the client stops waiting, if it sent one.
        deadline: Option<Instant>,
        /// The distributed trace that the request belongs to.
        trace: Option<Box<TraceContext>>,
        /// Who the client has proved to be; `None` without
        /// [`Config::keys`](method@crate::Config::keys).
        #[cfg(feature = "encryption")]
        peer_identity: Option<Arc<PeerIdentity>>,
    },
    /// More of a long message is readable, with [`Engine::read`](super::Engine::read), while the
    /// rest is in flight. Only with [`homa_proto::Config::readable_events`].
    #[non_exhaustive]
    Readable {
        /// The message.
        message: Partial,
        /// The number given with the call, if this is its response.
        cookie: u64,
    },
    /// A client gave up a request before it was answered.
    #[non_exhaustive]
    Cancelled {
        /// The request.
        id: RequestId,
    },
}
