//! The requests that the application of an inline engine did not take before the next turn.

use std::net::SocketAddr;

use hashbrown::HashMap;
use homa_proto::{RpcHandle, Time};

use crate::engine::core::{QueuedRequest, RequestContext};
use crate::engine::fairness::queue::{FairQueue, Place};
use crate::engine::fairness::shedder::Shedder;

/// Most requests that wait for their turn.
pub const MAX_LEFT: usize = 4096;

/// Requests that the application did not take before the next turn.
#[derive(Default)]
pub struct LeftRequests {
    queue: FairQueue<LeftRequest>,
    /// Their places in the queue.
    places: HashMap<RpcHandle, Place>,
    shedder: Shedder,
}

/// A request, with its port and client.
pub struct LeftRequest {
    /// The handle for the reply.
    pub rpc: RpcHandle,
    /// The client.
    pub from: SocketAddr,
    /// The local port that it was sent to.
    pub port: u16,
    /// Its bytes.
    pub bytes: QueuedRequest,
    /// Its deadline and trace.
    pub context: RequestContext,
}

impl LeftRequests {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// True if a request that arrives now can probably be answered by its deadline.
    pub fn admits(&mut self, now: Time, from: SocketAddr, until: Time) -> bool {
        self.shedder.admits(now, until, &self.queue.before(from))
    }

    /// Adds a request.
    pub fn push(&mut self, now: Time, request: LeftRequest) {
        let rpc = request.rpc;
        self.places.insert(rpc, self.queue.push(now, request.from, request, self.shedder.pause()));
    }

    /// The next request, in turns of their clients' hosts.
    pub fn pop(&mut self, now: Time) -> Option<LeftRequest> {
        let request = self.queue.pop(now)?;
        self.places.remove(&request.rpc);
        self.shedder.taken(now, self.queue.len());
        Some(request)
    }

    /// Removes a request that has ended.
    pub fn remove(&mut self, now: Time, rpc: RpcHandle) -> Option<LeftRequest> {
        self.queue.remove(now, self.places.remove(&rpc)?)
    }
}
