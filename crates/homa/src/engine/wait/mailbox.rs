//! Everything that arrives at a [`Socket`](crate::Socket), in one place: ended calls and requests,
//! who waits for them, and a descriptor that tells pollers.
//!
//! A plain table under the shared engine's lock. The descriptor is brought up to date just before
//! the lock is released, so that what a blocked thread takes at once costs no system call.
//!
//! A socket that drains takes no more requests; the calls in progress end, and until they do
//! whoever may take one of their ends waits for it. A closed one makes nobody wait.
//!
//! Invariants: unlocked, the bell is readable exactly when something waits that anybody may take,
//! or nothing will; whoever waits for something that is there, or will not come, has been woken.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::Thread;

use hashbrown::HashMap;
use homa_proto::{RpcHandle, Time};

use super::waiters::WakeTarget;
use crate::driver::Waker;
use crate::engine::core::{Core, EngineEvent, QueuedRequest, RequestContext};
use crate::engine::fairness::queue::{FairQueue, Place};
use crate::error::{CallError, ReplyError};
use crate::message::Message;
use crate::payload::Payload;

/// Why a call of a socket ended without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// It failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It was aborted here, with this reason.
    #[error("the call was aborted with error {0}")]
    Aborted(i32),
}

/// A call in progress, or ended and not taken.
#[derive(Debug)]
pub struct SocketCall {
    /// The server.
    pub to: SocketAddr,
    /// The caller's number for it.
    pub cookie: u64,
    /// Only those who name it may take its end.
    pub private: bool,
    /// How it ended.
    pub result: Option<Result<Message, CallFailure>>,
    /// Its place among what anybody may take.
    order: u64,
}

impl SocketCall {
    /// A call that has just started.
    pub fn new(to: SocketAddr, cookie: u64, private: bool) -> Self {
        Self { to, cookie, private, result: None, order: 0 }
    }
}

/// What a thread wants to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Requests.
    pub requests: bool,
    /// The end of any call that is not private; without effect when `call` names one.
    pub responses: bool,
    /// The end of this call.
    pub call: Option<RpcHandle>,
}

/// What a look into the mailbox finds.
#[derive(Debug)]
pub enum MailboxItem {
    /// A call ended.
    Response(RpcHandle, SocketCall),
    /// A request, its client, and what that says of it.
    Request(RpcHandle, SocketAddr, Message, RequestContext),
    /// The call that was named is not known: it never was, or its end was taken.
    Unknown,
    /// Nothing is left and nothing will come.
    Closed,
    /// Nothing yet.
    Nothing,
}

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
    /// Until when it waits.
    until: Time,
    /// Its place in the queue of requests, to which it may still belong.
    place: Place,
}

/// A request that nobody took.
#[derive(Debug)]
struct UnreceivedRequest {
    rpc: RpcHandle,
    bytes: QueuedRequest,
    context: RequestContext,
    /// Its place among what anybody may take.
    order: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Mailbox {
    calls: HashMap<RpcHandle, SocketCall>,
    ended: BTreeMap<u64, RpcHandle>,
    requests: FairQueue<UnreceivedRequest>,
    open: HashMap<RpcHandle, UnansweredRequest>,
    next_order: u64,
    waiters: Vec<BlockedReceiver>,
    next_ticket: u64,
    event_counter: Waker,
    signalled: bool,
    /// Calls in progress whose end anybody may take.
    running: usize,
    phase: MailboxPhase,
}

/// What may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MailboxPhase {
    /// Anything.
    Open,
    /// The ends of calls in progress.
    Draining,
    /// Nothing.
    Closed,
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new(event_counter: Waker) -> Self {
        Self {
            calls: HashMap::new(),
            ended: BTreeMap::new(),
            requests: FairQueue::default(),
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

    /// Brings the descriptor up to date; due before the lock is released.
    pub fn signal(&mut self) {
        let signalled = !self.ended.is_empty() || !self.requests.is_empty() || self.nothing_comes();
        if signalled != std::mem::replace(&mut self.signalled, signalled) {
            if signalled { self.event_counter.wake() } else { self.event_counter.reset() }
        }
    }

    /// Nothing that anybody may take will come.
    fn nothing_comes(&self) -> bool {
        match self.phase {
            MailboxPhase::Open => false,
            MailboxPhase::Draining => self.running == 0,
            MailboxPhase::Closed => true,
        }
    }

    /// A call started.
    pub fn started(&mut self, rpc: RpcHandle, call: SocketCall) {
        self.running += usize::from(!call.private);
        self.calls.insert(rpc, call);
    }

    /// A call in progress is no longer.
    fn stopped(&mut self, private: bool, wakes: &mut Vec<WakeTarget>) {
        self.running -= usize::from(!private);
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

    /// Takes in what is ready.
    pub fn post(&mut self, core: &mut Core, ready: EngineEvent, wakes: &mut Vec<WakeTarget>) {
        match ready {
            EngineEvent::Response { rpc, result, .. } => {
                if self.calls.get(&rpc).is_some_and(|call| call.result.is_none()) {
                    self.end(rpc, result.map_err(CallFailure::Call), wakes);
                } else {
                    core.accepted(result.map_or(0, |bytes| bytes.len()));
                }
            }
            EngineEvent::Request { rpc, bytes, .. } if self.phase != MailboxPhase::Open => {
                core.accept_request(bytes);
                core.cancel(rpc);
            }
            EngineEvent::Request { rpc, from, bytes, context, .. } => {
                let (order, until) = (self.next_order(), context.until);
                let place =
                    self.requests.push(from, UnreceivedRequest { rpc, bytes, context, order });
                self.open.insert(rpc, UnansweredRequest { from, cancelled: false, until, place });
                self.wake_one(wakes, |wanted| wanted.requests);
            }
            EngineEvent::Cancelled { rpc } => {
                let Some(open) = self.open.get_mut(&rpc) else { return };
                open.cancelled = true;
                if let Some(request) = self.requests.remove(open.place) {
                    core.accept_request(request.bytes);
                    self.open.remove(&rpc);
                }
            }
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
            self.ended.insert(order, rpc);
        }
        self.stopped(private, wakes);
        let named = self.wake_one(wakes, |wanted| wanted.call == Some(rpc));
        if !named && !private {
            self.wake_one(wakes, |wanted| wanted.responses && wanted.call.is_none());
        }
    }

    /// Wakes the waiter who came last, which is the leader if that one waits: it needs no wake-up.
    fn wake_one(&mut self, wakes: &mut Vec<WakeTarget>, who: impl Fn(&Selection) -> bool) -> bool {
        let found = self.waiters.iter().rposition(|waiter| who(&waiter.wanted));
        if let Some(at) = found {
            wakes.push(WakeTarget::Thread(self.waiters.remove(at).thread));
        }
        found.is_some()
    }

    /// Takes the oldest of what is wanted, but for requests, among which hosts take turns.
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
        if call.result.is_none() {
            self.stopped(call.private, wakes);
        }
        if let Some(Ok(bytes)) = &call.result {
            core.accepted(bytes.len());
        }
        self.nudge(rpc, wakes);
        MailboxItem::Response(rpc, call)
    }

    /// The next request is one whose client still waits.
    fn drop_late(&mut self, core: &mut Core) {
        while self.requests.first().is_some_and(|first| core.is_late(&first.context))
            && let Some(UnreceivedRequest { rpc, bytes, .. }) = self.requests.pop()
        {
            self.open.remove(&rpc);
            core.expire(rpc, bytes);
        }
    }

    fn take_request(&mut self, core: &mut Core, wakes: &mut Vec<WakeTarget>) -> MailboxItem {
        let Some(UnreceivedRequest { rpc, bytes, context, .. }) = self.requests.pop() else {
            return MailboxItem::Nothing;
        };
        let bytes = core.accept_request(bytes);
        let Some(open) = self.open.get(&rpc) else { return MailboxItem::Nothing };
        let from = open.from;
        self.nudge(rpc, wakes);
        MailboxItem::Request(rpc, from, bytes, context)
    }

    /// Something was taken, perhaps not by the one who was woken for it: whoever waits for what is
    /// left, or for the very same, has to look.
    fn nudge(&mut self, taken: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        while self.wake_one(wakes, |wanted| wanted.call == Some(taken)) {}
        if !self.ended.is_empty() {
            self.wake_one(wakes, |wanted| wanted.responses && wanted.call.is_none());
        }
        if !self.requests.is_empty() {
            self.wake_one(wakes, |wanted| wanted.requests);
        }
    }

    /// Notes who waits; returns a ticket for [`Self::stop_waiting`].
    pub fn wait(&mut self, wanted: Selection, thread: Thread) -> u64 {
        self.next_ticket += 1;
        self.waiters.push(BlockedReceiver { ticket: self.next_ticket, wanted, thread });
        self.next_ticket
    }

    /// A waiter came back.
    pub fn stop_waiting(&mut self, ticket: u64) {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
    }

    /// Answers a request, and takes the response if that is sent. That the client gave up meanwhile
    /// is no error; `Gone` means that no such request (of the client `to`) waits for an answer.
    pub fn reply(
        &mut self,
        rpc: RpcHandle,
        to: Option<SocketAddr>,
        response: &mut Option<Payload>,
        core: &mut Core,
    ) -> Result<(), ReplyError> {
        let open = self.open.get(&rpc).ok_or(ReplyError::Gone)?;
        if self.requests.contains(open.place) || to.is_some_and(|to| to != open.from) {
            return Err(ReplyError::Gone);
        }
        if !open.cancelled
            && let Some(bytes) = response.take()
            && let Err((error, refused)) = core.reply(rpc, bytes)
        {
            *response = Some(refused);
            if error != ReplyError::Gone {
                return Err(error);
            }
        }
        self.open.remove(&rpc);
        Ok(())
    }

    /// Until when the client waits for the answer to a request that was received, and whether it
    /// gave up; `None` when no such waits for an answer.
    pub fn client_of(&self, rpc: RpcHandle) -> Option<(Time, bool)> {
        let open = self.open.get(&rpc).filter(|open| !self.requests.contains(open.place))?;
        Some((open.until, open.cancelled))
    }

    /// Gives up a request that was received; false when none such waits for an answer.
    pub fn refuse(&mut self, rpc: RpcHandle, core: &mut Core) -> bool {
        let waits = self.open.get(&rpc).is_some_and(|o| !self.requests.contains(o.place));
        if waits {
            self.open.remove(&rpc);
            core.cancel(rpc);
        }
        waits
    }

    /// Gives up a call: forgets it, or ends it with `error`. False when it is not known.
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
        running.sort_unstable_by_key(|rpc| (rpc.generation, rpc.index));
        running
    }

    /// From here on only the ends of calls in progress come.
    pub fn drain(&mut self, wakes: &mut Vec<WakeTarget>) {
        if self.phase == MailboxPhase::Open {
            self.phase = MailboxPhase::Draining;
            self.wake_all(wakes);
        }
    }

    /// From here on nothing comes.
    pub fn close(&mut self, wakes: &mut Vec<WakeTarget>) {
        self.phase = MailboxPhase::Closed;
        self.wake_all(wakes);
    }
}
