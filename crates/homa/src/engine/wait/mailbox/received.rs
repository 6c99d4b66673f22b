//! Requests that were received, or wait to be, until they are answered.

use std::net::SocketAddr;
#[cfg(feature = "encryption")]
use std::sync::Arc;

use homa_proto::{RpcHandle, Time};

use super::Mailbox;
use super::pieces::{ArrivingRequest, WrittenReply};
use crate::engine::core::Core;
use crate::engine::fairness::queue::Place;
use crate::engine::wait::waiters::WakeTarget;
use crate::error::ReplyError;
use crate::payload::Payload;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;

/// A request that was not answered.
#[derive(Debug)]
pub(super) struct UnansweredRequest {
    pub(super) from: SocketAddr,
    /// The client gave up.
    pub(super) cancelled: bool,
    /// The client's deadline.
    pub(super) until: Time,
    /// Its place in the queue of requests, if it is still there.
    pub(super) place: Place,
    /// When it was received.
    pub(super) taken: Option<Time>,
    /// Set while it is read.
    pub(super) arriving: Option<ArrivingRequest>,
    /// Set while its response is written.
    pub(super) written: Option<WrittenReply>,
    /// Who its client has proved to be.
    #[cfg(feature = "encryption")]
    pub(super) identity: Option<Arc<PeerIdentity>>,
}

impl Mailbox {
    /// A request that was received and not answered.
    fn received(&self, rpc: RpcHandle) -> Option<&UnansweredRequest> {
        self.open.get(&rpc).filter(|open| !self.requests.contains(open.place))
    }

    /// Answers a request; takes the response if it is sent. It is not an error if the client gave
    /// up. `Gone` means that no such request (of client `to`) waits for an answer.
    pub fn reply(
        &mut self,
        rpc: RpcHandle,
        to: Option<SocketAddr>,
        response: &mut Option<Payload>,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Result<(), ReplyError> {
        let open = self.received(rpc).ok_or(ReplyError::Gone)?;
        if open.written.is_some() || to.is_some_and(|to| to != open.from) {
            return Err(ReplyError::Gone);
        }
        let mut written = None;
        if !open.cancelled
            && let Some(bytes) = response.take()
        {
            written = WrittenReply::begun(&bytes);
            if let Err((error, refused)) = core.reply(rpc, bytes) {
                *response = Some(refused);
                if error != ReplyError::Gone {
                    return Err(error);
                }
                written = None;
            }
        }
        match written {
            Some(written) => self.begin_writing(rpc, written, wakes),
            None => self.close_request(rpc, core, wakes),
        }
        Ok(())
    }

    /// A request was answered or dropped.
    pub(super) fn close_request(
        &mut self,
        rpc: RpcHandle,
        core: &Core,
        wakes: &mut Vec<WakeTarget>,
    ) {
        self.stop_reading(rpc, wakes);
        if let Some(at) = self.open.remove(&rpc).and_then(|open| open.taken) {
            self.shedder.answered(core.time().since(at));
        }
    }

    /// The deadline of a received request's client, and whether it gave up; `None` if no such
    /// request waits for an answer.
    pub fn client_of(&self, rpc: RpcHandle) -> Option<(Time, bool)> {
        self.received(rpc).map(|open| (open.until, open.cancelled))
    }

    /// Who the client of a received request has proved to be; `None` if no such request waits for
    /// an answer, or without keys.
    #[cfg(feature = "encryption")]
    pub fn identity(&self, rpc: RpcHandle) -> Option<Arc<PeerIdentity>> {
        self.received(rpc)?.identity.clone()
    }

    /// Drops a received request; false if no such request waits for an answer.
    pub fn refuse(&mut self, rpc: RpcHandle, core: &mut Core, wakes: &mut Vec<WakeTarget>) -> bool {
        let waits = self.received(rpc).is_some();
        if waits {
            self.close_request(rpc, core, wakes);
            core.abandon(rpc);
        }
        waits
    }
}
