//! The requests that wait for a server, and those that it has not answered.
//!
//! Requests wait in turns of their clients' hosts. Those that could not be answered in time are
//! refused (`engine/fairness/shedder.rs`). A server may limit the requests that it has in service;
//! then others wait here, however fast the application would accept them.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::time::Instant;

use homa_proto::{RpcHandle, RpcId, Time};

use super::{Waiters, WakeTarget};
use crate::engine::core::{Core, QueuedRequest, RequestContext};
use crate::engine::fairness::queue::{FairQueue, Place};
use crate::engine::fairness::shedder::Shedder;
use crate::error::RequestError;
use crate::message::Message;

/// A request that was not accepted.
#[derive(Debug)]
pub(super) struct UnacceptedRequest {
    pub(super) rpc: RpcHandle,
    pub(super) from: SocketAddr,
    pub(super) bytes: QueuedRequest,
    pub(super) id: RpcId,
    pub(super) context: RequestContext,
}

/// A request that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The handle for the reply.
    pub rpc: RpcHandle,
    /// The client.
    pub from: SocketAddr,
    /// Its bytes.
    pub bytes: Message,
    /// Its id.
    pub id: RpcId,
    /// Its deadline and trace.
    pub context: RequestContext,
    /// The deadline on the system's clock.
    pub deadline: Option<Instant>,
    /// Its length, if it is still arriving.
    pub arriving: Option<usize>,
}

/// A request that was not answered.
#[derive(Debug)]
pub(super) struct OpenRequest {
    port: u16,
    /// Its place in the port's queue, if it is still there.
    place: Place,
    /// When it was accepted.
    accepted: Option<Time>,
    /// It does not count as in service any more.
    aside: bool,
    /// The client gave up.
    cancelled: bool,
    /// The rest of a request that was accepted before it was whole.
    rest: Option<Message>,
}

#[derive(Debug)]
pub(super) struct RequestQueue {
    requests: FairQueue<UnacceptedRequest>,
    shedder: Shedder,
    /// Requests that were accepted and not answered, and the most at a time.
    in_service: usize,
    concurrency: usize,
    /// No more requests will come.
    draining: bool,
    /// By ticket, so that a waiter that gives up can be removed.
    acceptors: VecDeque<(u64, WakeTarget)>,
}

impl Default for RequestQueue {
    fn default() -> Self {
        Self {
            requests: FairQueue::default(),
            shedder: Shedder::default(),
            in_service: 0,
            concurrency: usize::MAX,
            draining: false,
            acceptors: VecDeque::new(),
        }
    }
}

impl RequestQueue {
    /// True if a request waits and may be accepted.
    fn has_next(&self) -> bool {
        !self.requests.is_empty() && self.in_service < self.concurrency
    }

    /// Removes all waiters for requests.
    pub(super) fn take_acceptors(&mut self) -> impl Iterator<Item = WakeTarget> {
        self.acceptors.drain(..).map(|(_, waiting)| waiting)
    }
}

impl Waiters {
    /// Opens the queue of a server; false if the port has one.
    pub fn open_queue(&mut self, port: u16) -> bool {
        if self.queues.contains_key(&port) {
            return false;
        }
        self.queues.insert(port, RequestQueue::default());
        true
    }

    /// True from [`Self::open_queue`] to [`Self::close_queue`].
    pub fn has_queue(&self, port: u16) -> bool {
        self.queues.contains_key(&port)
    }

    /// Limits the requests that are accepted and not answered.
    pub fn limit_service(&mut self, port: u16, most: usize) {
        if let Some(queue) = self.queues.get_mut(&port) {
            queue.concurrency = most.max(1);
            self.nudge(port);
        }
    }

    /// Closes the queue of a server; clients of requests that were not accepted are told that
    /// nothing was executed.
    pub fn close_queue(&mut self, port: u16, core: &mut Core) {
        let Some(mut queue) = self.queues.remove(&port) else { return };
        self.wake_acceptors(&mut queue);
        for request in queue.requests.into_requests() {
            core.turn_away(request.rpc, request.bytes);
            self.open.remove(&request.rpc);
        }
    }

    /// Tells clients of requests that were not accepted, of all servers, that nothing was executed.
    pub fn turn_all_away(&mut self, core: &mut Core) {
        for queue in self.queues.values_mut() {
            for request in mem::take(&mut queue.requests).into_requests() {
                core.turn_away(request.rpc, request.bytes);
                self.open.remove(&request.rpc);
            }
        }
    }

    pub(super) fn wake_acceptors(&mut self, queue: &mut RequestQueue) {
        for waiting in queue.take_acceptors() {
            self.tasks -= usize::from(waiting.is_task());
            self.to_wake.push(waiting);
        }
    }

    /// A request arrived.
    pub(super) fn arrived(&mut self, port: u16, request: UnacceptedRequest, core: &mut Core) {
        // The server has closed its queue, and the request was not begun.
        let Some(queue) = self.queues.get_mut(&port) else {
            return core.turn_away(request.rpc, request.bytes);
        };
        let UnacceptedRequest { rpc, from, .. } = request;
        let now = core.time();
        let RequestQueue { requests, shedder, .. } = queue;
        if !shedder.admits(now, request.context.until, &requests.before(from)) {
            return core.shed(rpc, request.bytes);
        }
        let place = requests.push(now, from, request, shedder.pause());
        let (accepted, aside, cancelled, rest) = (None, false, false, None);
        self.open.insert(rpc, OpenRequest { port, place, accepted, aside, cancelled, rest });
        // The last to come is the leader, if that is an acceptor: it needs no wake-up.
        if queue.has_next()
            && let Some((_, waiting)) = queue.acceptors.pop_back()
        {
            self.tasks -= usize::from(waiting.is_task());
            self.to_wake.push(waiting);
        }
    }

    /// The next request at a port that can be answered before its deadline.
    pub fn accept(&mut self, port: u16, core: &mut Core) -> Option<Accepted> {
        loop {
            let queue = self.queues.get_mut(&port)?;
            if !queue.has_next() {
                return None;
            }
            // What it waited for is read before it leaves the queue.
            let (arrived, backlog) = queue.requests.before_first()?;
            let now = core.time();
            let request = queue.requests.pop(now)?;
            let left = queue.requests.len();
            let until = request.context.until;
            // The client has given up, so that its work would be wasted.
            if until <= now && until != Time::MAX {
                self.open.remove(&request.rpc);
                core.expire(request.rpc, request.bytes);
            } else if !queue.shedder.begins(now, left, (arrived, until), &backlog) {
                self.open.remove(&request.rpc);
                core.shed(request.rpc, request.bytes);
            } else {
                let arriving = match request.bytes.early.then(|| core.begin_early(request.rpc)) {
                    // It ended, or was executed for its client at another address.
                    Some(None) => {
                        self.open.remove(&request.rpc);
                        continue;
                    }
                    begun => begun.flatten(),
                };
                queue.shedder.taken(now, left);
                queue.in_service += 1;
                if let Some(open) = self.open.get_mut(&request.rpc) {
                    open.accepted = Some(now);
                }
                let UnacceptedRequest { rpc, from, bytes, id, context } = request;
                core.note_taken(rpc);
                let (bytes, deadline) = (core.accept_request(bytes), core.instant(context.until));
                return Some(Accepted { rpc, from, bytes, id, context, deadline, arriving });
            }
        }
    }

    /// A client gave up: a request that was not accepted leaves the queue.
    pub(super) fn cancelled(&mut self, rpc: RpcHandle, core: &mut Core) {
        let Some(open) = self.open.get_mut(&rpc) else { return };
        open.cancelled = true;
        let (port, place) = (open.port, open.place);
        self.watch.ended(rpc, &mut self.to_wake);
        self.capacity.cancelled(rpc, &mut self.to_wake);
        let queue = self.queues.get_mut(&port);
        if let Some(request) = queue.and_then(|queue| queue.requests.remove(core.time(), place)) {
            core.accept_request(request.bytes);
            self.open.remove(&rpc);
        }
    }

    /// A request that was announced with its first bytes is whole.
    pub(super) fn whole(&mut self, rpc: RpcHandle, bytes: QueuedRequest, core: &mut Core) {
        // It was refused while it arrived.
        let Some(open) = self.open.get_mut(&rpc) else {
            return drop(core.accept_request(bytes));
        };
        if open.accepted.is_some() {
            open.rest = Some(core.accept_request(bytes));
            return self.watch.ended(rpc, &mut self.to_wake);
        }
        // It was not accepted yet, and is whole when it will be.
        let queue = self.queues.get_mut(&open.port);
        if let Some(request) = queue.and_then(|queue| queue.requests.get_mut(open.place)) {
            request.bytes = bytes;
        }
    }

    /// The rest of an accepted request, once it is whole; [`RequestError::Gone`] if that will not
    /// come.
    pub fn rest(&mut self, rpc: RpcHandle) -> Option<Result<Message, RequestError>> {
        match self.open.get_mut(&rpc) {
            Some(open) if !open.cancelled => open.rest.take().map(Ok),
            _ => Some(Err(RequestError::Gone)),
        }
    }

    /// Registers a waiter for a request; returns a ticket for [`Self::stop_waiting`].
    pub fn wait_for_request(&mut self, port: u16, waiting: WakeTarget) -> u64 {
        self.next_ticket += 1;
        self.tasks += usize::from(waiting.is_task());
        if let Some(queue) = self.queues.get_mut(&port) {
            queue.acceptors.push_back((self.next_ticket, waiting));
        } else {
            self.tasks -= usize::from(waiting.is_task());
            self.to_wake.push(waiting);
        }
        self.next_ticket
    }

    /// Removes a waiter for requests that returned or gives up.
    pub fn stop_waiting(&mut self, port: u16, ticket: u64) {
        let Some(queue) = self.queues.get_mut(&port) else { return };
        if let Some(at) = queue.acceptors.iter().position(|(other, _)| *other == ticket) {
            let waiting = queue.acceptors.remove(at).map(|(_, waiting)| waiting);
            self.drop_waker_later(waiting);
        }
    }

    /// Wakes a waiter if a request may be accepted: the one that was woken for it will not use it,
    /// or another request was answered.
    pub fn nudge(&mut self, port: u16) {
        let Some(queue) = self.queues.get_mut(&port) else { return };
        if queue.has_next()
            && let Some((_, waiting)) = queue.acceptors.pop_back()
        {
            self.tasks -= usize::from(waiting.is_task());
            self.to_wake.push(waiting);
        }
    }

    /// No more requests will come at a port; wakes its waiters.
    pub fn drain_queue(&mut self, port: u16) {
        let Some(mut queue) = self.queues.remove(&port) else { return };
        queue.draining = true;
        self.wake_acceptors(&mut queue);
        self.queues.insert(port, queue);
    }

    /// True if no more requests will come at a port.
    pub fn is_draining(&self, port: u16) -> bool {
        self.queues.get(&port).is_none_or(|queue| queue.draining)
    }

    /// True if requests wait at a port.
    pub fn has_requests(&self, port: u16) -> bool {
        self.queues.get(&port).is_some_and(|queue| !queue.requests.is_empty())
    }

    /// An accepted request was answered or dropped at `now`.
    pub fn answered(&mut self, rpc: RpcHandle, now: Time) {
        if let Some(OpenRequest { port, accepted: Some(at), aside: false, .. }) =
            self.open.remove(&rpc)
        {
            if let Some(queue) = self.queues.get_mut(&port) {
                queue.shedder.answered(now.since(at));
            }
            self.leave_service(port);
        }
    }

    /// An accepted request does not count as in service any more.
    pub fn set_aside(&mut self, rpc: RpcHandle) {
        if let Some(open) = self.open.get_mut(&rpc)
            && open.accepted.is_some()
            && !mem::replace(&mut open.aside, true)
        {
            let port = open.port;
            self.leave_service(port);
        }
    }

    fn leave_service(&mut self, port: u16) {
        if let Some(queue) = self.queues.get_mut(&port) {
            // The queue may be that of another server, opened at the same port since.
            queue.in_service = queue.in_service.saturating_sub(1);
            // One more may be accepted.
            if queue.concurrency != usize::MAX {
                self.nudge(port);
            }
        }
    }

    /// True if the client of an unanswered request gave up.
    pub fn is_cancelled(&self, rpc: RpcHandle) -> bool {
        self.open.get(&rpc).is_some_and(|open| open.cancelled)
    }
}
