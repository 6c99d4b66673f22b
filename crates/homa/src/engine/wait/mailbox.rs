//! The queue of a [`Socket`](crate::Socket): completions and requests, the threads that wait for
//! them, and the descriptor for pollers.
//!
//! It is a plain table under the lock of the shared engine. The descriptor is updated just before
//! the lock is released, so a message that a blocked thread takes at once costs no system call.
//!
//! A socket that drains accepts no requests. Its calls in progress still complete, and threads that
//! may receive one of their completions wait for it. A closed socket makes no thread wait.
//!
//! Invariants: while the lock is free, the descriptor is readable exactly if a message that any
//! thread may take is available, or if none will come. Every thread whose message is available, or
//! will not come, has been woken.

mod item;

use std::collections::BTreeMap;
use std::net::SocketAddr;
#[cfg(feature = "encryption")]
use std::sync::Arc;
use std::thread::Thread;

use hashbrown::HashMap;
use homa_proto::{RpcHandle, Time};

use super::waiters::WakeTarget;
use crate::driver::Waker;
use crate::engine::core::{Core, EngineEvent, QueuedRequest, RequestContext};
use crate::engine::fairness::queue::{FairQueue, Place};
use crate::engine::fairness::shedder::Shedder;
use crate::error::ReplyError;
use crate::message::Message;
use crate::payload::Payload;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;
pub use item::{CallFailure, MailboxItem, Selection, SocketCall};

#[derive(Debug)]
struct BlockedReceiver {
    ticket: u64,
    wanted: Selection,
    thread: Thread,
}

/// A request that was not answered.
#[derive(Debug)]
struct UnansweredRequest {
    from: SocketAddr,
    /// The client gave up.
    cancelled: bool,
    /// The client's deadline.
    until: Time,
    /// Its place in the queue of requests, if it is still there.
    place: Place,
    /// When it was received.
    taken: Option<Time>,
    /// Who its client has proved to be.
    #[cfg(feature = "encryption")]
    identity: Option<Arc<PeerIdentity>>,
}

/// A request that was not received by a thread.
#[derive(Debug)]
struct UnreceivedRequest {
    rpc: RpcHandle,
    bytes: QueuedRequest,
    context: RequestContext,
    /// Its position among all messages.
    order: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Mailbox {
    calls: HashMap<RpcHandle, SocketCall>,
    ended: BTreeMap<u64, RpcHandle>,
    requests: FairQueue<UnreceivedRequest>,
    shedder: Shedder,
    open: HashMap<RpcHandle, UnansweredRequest>,
    next_order: u64,
    waiters: Vec<BlockedReceiver>,
    next_ticket: u64,
    event_counter: Waker,
    signalled: bool,
    /// Calls in progress that are not private.
    running: usize,
    phase: MailboxPhase,
}

/// The messages that may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MailboxPhase {
    /// All messages.
    Open,
    /// Completions of calls in progress.
    Draining,
    /// No messages.
    Closed,
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new(event_counter: Waker) -> Self {
        Self {
            calls: HashMap::new(),
            ended: BTreeMap::new(),
            requests: FairQueue::default(),
            shedder: Shedder::default(),
            open: HashMap::new(),
            next_order: 0,
            waiters: Vec::new(),
            next_ticket: 0,
            event_counter,
            signalled: false,
            running: 0,
            phase: MailboxPhase::Open,
        }
    }

    /// Updates the descriptor; call it before the lock is released.
    pub fn signal(&mut self) {
        let signalled = !self.ended.is_empty() || !self.requests.is_empty() || self.nothing_comes();
        // The descriptor costs a system call, so it changes only if the answer does.
        if signalled != std::mem::replace(&mut self.signalled, signalled) {
            if signalled { self.event_counter.wake() } else { self.event_counter.reset() }
        }
    }

    /// True if no message that any thread may take will come.
    fn nothing_comes(&self) -> bool {
        match self.phase {
            MailboxPhase::Open => false,
            MailboxPhase::Draining => self.running == 0,
            MailboxPhase::Closed => true,
        }
    }

    /// Registers a call that started.
    pub fn started(&mut self, rpc: RpcHandle, call: SocketCall) {
        self.running += usize::from(!call.private);
        self.calls.insert(rpc, call);
    }

    /// A call is no longer in progress.
    fn stopped(&mut self, private: bool, wakes: &mut Vec<WakeTarget>) {
        self.running -= usize::from(!private);
        // The last completion has come, so threads must not wait for another.
        if self.phase == MailboxPhase::Draining && self.running == 0 {
            self.wake_all(wakes);
        }
    }

    fn wake_all(&mut self, wakes: &mut Vec<WakeTarget>) {
        wakes.extend(self.waiters.drain(..).map(|waiter| WakeTarget::Thread(waiter.thread)));
    }

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Takes an event of the engine.
    pub fn post(&mut self, core: &mut Core, ready: EngineEvent, wakes: &mut Vec<WakeTarget>) {
        match ready {
            EngineEvent::Response { rpc, result, .. } => {
                // It was aborted or forgotten, so no thread will take its response.
                if self.calls.get(&rpc).is_some_and(|call| call.result.is_none()) {
                    self.end(rpc, result.map_err(CallFailure::Call), wakes);
                } else {
                    core.accepted(result.map_or(0, |bytes| bytes.len()));
                }
            }
            // A socket that drains accepts nothing: clients are told that nothing was executed.
            EngineEvent::Request { rpc, bytes, .. } if self.phase != MailboxPhase::Open => {
                core.turn_away(rpc, bytes);
            }
            // Refused at once if it could not be answered by its deadline.
            EngineEvent::Request { rpc, from, bytes, context, .. } => {
                let now = core.time();
                if !self.shedder.admits(now, context.until, &self.requests.before(from)) {
                    return core.shed(rpc, bytes);
                }
                let until = context.until;
                let order = self.next_order();
                #[cfg(feature = "encryption")]
                let identity = context.identity.clone();
                let request = UnreceivedRequest { rpc, bytes, context, order };
                let place = self.requests.push(now, from, request, self.shedder.pause());
                self.open.insert(
                    rpc,
                    UnansweredRequest {
                        from,
                        cancelled: false,
                        until,
                        place,
                        taken: None,
                        #[cfg(feature = "encryption")]
                        identity,
                    },
                );
                self.wake_one(wakes, |wanted| wanted.requests);
            }
            EngineEvent::Cancelled { rpc } => {
                let Some(open) = self.open.get_mut(&rpc) else { return };
                open.cancelled = true;
                // No thread has seen it, so none has to be told.
                if let Some(request) = self.requests.remove(core.time(), open.place) {
                    core.accept_request(request.bytes);
                    self.open.remove(&rpc);
                }
            }
            EngineEvent::Whole { bytes, .. } => drop(core.accept_request(bytes)),
            // Messages are received whole.
            EngineEvent::Readable(_) => {}
        }
    }

    fn end(
        &mut self,
        rpc: RpcHandle,
        result: Result<Message, CallFailure>,
        wakes: &mut Vec<WakeTarget>,
    ) {
        let order = self.next_order();
        let Some(call) = self.calls.get_mut(&rpc) else { return };
        call.result = Some(result);
        call.order = order;
        let private = call.private;
        if !private {
            // A private completion is only taken by the id of its call.
            self.ended.insert(order, rpc);
        }
        self.stopped(private, wakes);
        // A thread that waits for this call comes before those that take any.
        let named = self.wake_one(wakes, |wanted| wanted.call == Some(rpc));
        if !named && !private {
            self.wake_one(wakes, |wanted| wanted.responses && wanted.call.is_none());
        }
    }

    /// Wakes the waiter that came last. If the leader waits, it is the last, and needs no wake-up.
    fn wake_one(&mut self, wakes: &mut Vec<WakeTarget>, who: impl Fn(&Selection) -> bool) -> bool {
        let found = self.waiters.iter().rposition(|waiter| who(&waiter.wanted));
        if let Some(at) = found {
            wakes.push(WakeTarget::Thread(self.waiters.remove(at).thread));
        }
        found.is_some()
    }

    /// Takes the oldest wanted message; but requests are taken in turns of their clients' hosts.
    pub fn take(
        &mut self,
        wanted: &Selection,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> MailboxItem {
        if let Some(rpc) = wanted.call {
            match self.calls.get(&rpc) {
                None => return MailboxItem::Unknown,
                Some(call) if call.result.is_some() => return self.take_call(rpc, core, wakes),
                Some(_) => {}
            }
        }
        let any = wanted.responses && wanted.call.is_none();
        let ended = self.ended.first_key_value().filter(|_| any).map(|(&order, &rpc)| (order, rpc));
        self.drop_late(core);
        let request = self.requests.first().filter(|_| wanted.requests);
        match (ended, request.map(|request| request.order)) {
            // The older of the two, so that neither kind of message starves.
            (Some((at, rpc)), request) if request.is_none_or(|request| at < request) => {
                self.take_call(rpc, core, wakes)
            }
            (_, Some(_)) => self.take_request(core, wakes),
            (_, None) => match self.phase {
                MailboxPhase::Open => MailboxItem::Nothing,
                MailboxPhase::Draining if wanted.call.is_some() => MailboxItem::Nothing,
                MailboxPhase::Draining if wanted.responses && self.running > 0 => {
                    MailboxItem::Nothing
                }
                MailboxPhase::Draining | MailboxPhase::Closed => MailboxItem::Closed,
            },
        }
    }

    fn take_call(
        &mut self,
        rpc: RpcHandle,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> MailboxItem {
        let Some(call) = self.calls.remove(&rpc) else { return MailboxItem::Unknown };
        self.ended.remove(&call.order);
        // It is forgotten before it has ended.
        if call.result.is_none() {
            self.stopped(call.private, wakes);
        }
        if let Some(Ok(bytes)) = &call.result {
            core.accepted(bytes.len());
        }
        self.nudge(rpc, wakes);
        MailboxItem::Response(rpc, call)
    }

    /// Drops requests at the head of the queue whose deadline has passed or is too near.
    fn drop_late(&mut self, core: &mut Core) {
        loop {
            let (now, left) = (core.time(), self.requests.len().saturating_sub(1));
            let Some((arrived, backlog)) = self.requests.before_first() else { return };
            let until = self.requests.first().map_or(Time::MAX, |first| first.context.until);
            let late = until <= now && until != Time::MAX;
            // The head is in time, and those behind it will be judged at their turn.
            if !late && self.shedder.begins(now, left, (arrived, until), &backlog) {
                return;
            }
            let Some(UnreceivedRequest { rpc, bytes, .. }) = self.requests.pop(now) else { return };
            self.open.remove(&rpc);
            match late {
                true => core.expire(rpc, bytes),
                false => core.shed(rpc, bytes),
            }
        }
    }

    /// A request that was taken at a time was answered or dropped.
    fn answered(&mut self, taken: Option<Time>, core: &Core) {
        if let Some(at) = taken {
            self.shedder.answered(core.time().since(at));
        }
    }

    fn take_request(&mut self, core: &mut Core, wakes: &mut Vec<WakeTarget>) -> MailboxItem {
        let now = core.time();
        let Some(UnreceivedRequest { rpc, bytes, context, .. }) = self.requests.pop(now) else {
            return MailboxItem::Nothing;
        };
        let bytes = core.accept_request(bytes);
        core.note_taken(rpc);
        let now = core.time();
        self.shedder.taken(now, self.requests.len());
        let Some(open) = self.open.get_mut(&rpc) else { return MailboxItem::Nothing };
        open.taken = Some(now);
        let from = open.from;
        self.nudge(rpc, wakes);
        MailboxItem::Request(rpc, from, bytes, context)
    }

    /// A message was taken, perhaps not by the thread that was woken for it. Wakes the threads that
    /// wait for the same message or for others that are left.
    fn nudge(&mut self, taken: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        // Several threads may wait for the same call.
        while self.wake_one(wakes, |wanted| wanted.call == Some(taken)) {}
        if !self.ended.is_empty() {
            self.wake_one(wakes, |wanted| wanted.responses && wanted.call.is_none());
        }
        if !self.requests.is_empty() {
            self.wake_one(wakes, |wanted| wanted.requests);
        }
    }

    /// Registers a thread; returns a ticket for [`Self::stop_waiting`].
    pub fn wait(&mut self, wanted: Selection, thread: Thread) -> u64 {
        self.next_ticket += 1;
        self.waiters.push(BlockedReceiver { ticket: self.next_ticket, wanted, thread });
        self.next_ticket
    }

    /// Removes a thread that returned.
    pub fn stop_waiting(&mut self, ticket: u64) {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
    }

    /// Answers a request; takes the response if it is sent. It is not an error if the client gave
    /// up. `Gone` means that no such request (of client `to`) waits for an answer.
    pub fn reply(
        &mut self,
        rpc: RpcHandle,
        to: Option<SocketAddr>,
        response: &mut Option<Payload>,
        core: &mut Core,
    ) -> Result<(), ReplyError> {
        let open = self.open.get(&rpc).ok_or(ReplyError::Gone)?;
        // A request that was not received, or of another client, cannot be answered.
        if self.requests.contains(open.place) || to.is_some_and(|to| to != open.from) {
            return Err(ReplyError::Gone);
        }
        // The client does not wait any more, which is no error of the server.
        if !open.cancelled
            && let Some(bytes) = response.take()
            && let Err((error, refused)) = core.reply(rpc, bytes)
        {
            *response = Some(refused);
            if error != ReplyError::Gone {
                return Err(error);
            }
        }
        let taken = self.open.remove(&rpc).and_then(|open| open.taken);
        self.answered(taken, core);
        Ok(())
    }

    /// The deadline of a received request's client, and whether it gave up; `None` if no such
    /// request waits for an answer.
    pub fn client_of(&self, rpc: RpcHandle) -> Option<(Time, bool)> {
        let open = self.open.get(&rpc).filter(|open| !self.requests.contains(open.place))?;
        Some((open.until, open.cancelled))
    }

    /// Who the client of a received request has proved to be; `None` if no such request waits for
    /// an answer, or without keys.
    #[cfg(feature = "encryption")]
    pub fn identity(&self, rpc: RpcHandle) -> Option<Arc<PeerIdentity>> {
        let open = self.open.get(&rpc).filter(|open| !self.requests.contains(open.place))?;
        open.identity.clone()
    }

    /// Drops a received request; false if no such request waits for an answer.
    pub fn refuse(&mut self, rpc: RpcHandle, core: &mut Core) -> bool {
        let waits = self.open.get(&rpc).is_some_and(|o| !self.requests.contains(o.place));
        if waits {
            let taken = self.open.remove(&rpc).and_then(|open| open.taken);
            self.answered(taken, core);
            core.abandon(rpc);
        }
        waits
    }

    /// Cancels a call, and forgets it or completes it with `error`. False if there is no such call.
    pub fn abort(
        &mut self,
        rpc: RpcHandle,
        error: Option<i32>,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> bool {
        let Some(call) = self.calls.get(&rpc) else { return false };
        if call.result.is_none() {
            core.cancel(rpc);
        }
        match error {
            Some(error) if call.result.is_none() => {
                self.end(rpc, Err(CallFailure::Aborted(error)), wakes);
            }
            Some(_) => {}
            None => drop(self.take_call(rpc, core, wakes)),
        }
        true
    }

    /// All calls in progress, oldest handle first.
    pub fn running(&self) -> Vec<RpcHandle> {
        let running = self.calls.iter().filter(|(_, call)| call.result.is_none());
        let mut running: Vec<_> = running.map(|(&rpc, _)| rpc).collect();
        // A table has no order, and callers may depend on one.
        running.sort_unstable_by_key(|rpc| (rpc.generation, rpc.index));
        running
    }

    /// From now on only completions of calls in progress come.
    pub fn drain(&mut self, wakes: &mut Vec<WakeTarget>) {
        if self.phase == MailboxPhase::Open {
            self.phase = MailboxPhase::Draining;
            self.wake_all(wakes);
        }
    }

    /// From now on nothing comes.
    pub fn close(&mut self, wakes: &mut Vec<WakeTarget>) {
        self.phase = MailboxPhase::Closed;
        self.wake_all(wakes);
    }
}
