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
mod pieces;
mod received;
mod responses;

use std::collections::BTreeMap;
use std::thread::Thread;

use hashbrown::HashMap;
use homa_proto::{MessageKind, RpcHandle, Time};

use super::waiters::WakeTarget;
use crate::driver::Waker;
use crate::engine::core::{Core, EngineEvent, QueuedRequest, RequestContext};
use crate::engine::fairness::queue::FairQueue;
use crate::engine::fairness::shedder::Shedder;
use crate::message::Message;
pub use item::{CallFailure, MailboxItem, Selection, SocketCall};
use pieces::ArrivingRequest;
pub use pieces::Unread;
use received::UnansweredRequest;
pub use responses::ArrivingResponse;

#[derive(Debug)]
struct BlockedReceiver {
    ticket: u64,
    wanted: Selection,
    thread: Thread,
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
    /// Requests that are to be reported because more can be read, by position.
    reports: BTreeMap<u64, RpcHandle>,
    /// Requests that will be reported once more has come, by deadline.
    wanted: BTreeMap<(Time, u64), RpcHandle>,
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
            reports: BTreeMap::new(),
            wanted: BTreeMap::new(),
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
        let waits = !self.ended.is_empty() || !self.requests.is_empty() || !self.reports.is_empty();
        let signalled = waits || self.nothing_comes();
        // The descriptor costs a system call, so it changes only if the answer does.
        if signalled != std::mem::replace(&mut self.signalled, signalled) {
            if signalled { self.event_counter.wake() } else { self.event_counter.reset() }
        }
    }

    /// True if no message that any thread may take will come.
    fn nothing_comes(&self) -> bool {
        match self.phase {
            MailboxPhase::Open => false,
            MailboxPhase::Draining => self.running == 0 && self.wanted.is_empty(),
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
        self.wake_if_over(wakes);
    }

    /// Wakes threads that wait in vain.
    fn wake_if_over(&mut self, wakes: &mut Vec<WakeTarget>) {
        // The last completion has come, so threads must not wait for another.
        if self.phase == MailboxPhase::Draining && self.nothing_comes() {
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
            EngineEvent::Response { rpc, result, lent, .. } => {
                if self.calls.get(&rpc).is_some_and(|call| call.result.is_none()) {
                    let result = self.without_taken(rpc, result, lent, core);
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
                        arriving: None,
                        written: None,
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
                } else {
                    self.more(rpc, wakes);
                }
            }
            EngineEvent::Whole { rpc, bytes } => self.whole(rpc, bytes, core, wakes),
            EngineEvent::Readable(partial) if partial.kind == MessageKind::Request => {
                self.more(partial.rpc, wakes);
            }
            EngineEvent::Readable(partial) => self.more_of_response(partial, wakes),
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
        let is_told = call.arriving.as_ref().is_some_and(|arriving| !arriving.is_wanted());
        let private = call.private;
        // A private completion is only taken by the id of its call.
        if !private && (result.is_err() || !is_told) {
            self.ended.remove(&call.order);
            call.order = order;
            self.ended.insert(order, rpc);
        }
        call.result = Some(result);
        self.stopped(private, wakes);
        self.wake_readers(rpc, wakes);
        self.wake_for_call(rpc, private, wakes);
    }

    /// Wakes a thread that receives a call.
    fn wake_for_call(&mut self, rpc: RpcHandle, private: bool, wakes: &mut Vec<WakeTarget>) {
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
                Some(call) if call.is_due() => return self.receive_call(rpc, core, wakes),
                Some(_) => {}
            }
        }
        loop {
            // A request that has ended meanwhile is not received.
            if let Some(item) = self.take_oldest(wanted, core, wakes) {
                return item;
            }
        }
    }

    /// Takes what came first; `None` if it was a request that has ended.
    fn take_oldest(
        &mut self,
        wanted: &Selection,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Option<MailboxItem> {
        let any = wanted.responses && wanted.call.is_none();
        let ended = self.ended.first_key_value().filter(|_| any).map(|(&order, &rpc)| (order, rpc));
        self.drop_late(core);
        let request = self.requests.first().map(|request| request.order);
        let report = self.reports.first_key_value().map(|(&order, _)| order);
        let next = [request, report].into_iter().flatten().filter(|_| wanted.requests).min();
        let nothing = match self.phase {
            MailboxPhase::Open => MailboxItem::Nothing,
            MailboxPhase::Draining if wanted.call.is_some() => MailboxItem::Nothing,
            MailboxPhase::Draining if wanted.responses && self.running > 0 => MailboxItem::Nothing,
            MailboxPhase::Draining if wanted.requests && !self.wanted.is_empty() => {
                MailboxItem::Nothing
            }
            MailboxPhase::Draining | MailboxPhase::Closed => MailboxItem::Closed,
        };
        match (ended, next) {
            // The older of the two, so that neither kind of message starves.
            (Some((at, rpc)), next) if next.is_none_or(|next| at < next) => {
                Some(self.receive_call(rpc, core, wakes))
            }
            (_, Some(next)) if report == Some(next) => self.take_report(wakes),
            (_, Some(_)) => self.take_request(core, wakes),
            (_, None) => Some(nothing),
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

    /// Takes the next request; `None` if it has ended meanwhile.
    fn take_request(
        &mut self,
        core: &mut Core,
        wakes: &mut Vec<WakeTarget>,
    ) -> Option<MailboxItem> {
        let now = core.time();
        let UnreceivedRequest { rpc, bytes, context, .. } = self.requests.pop(now)?;
        let arriving = match bytes.early.then(|| core.begin_early(rpc)) {
            Some(None) => {
                self.open.remove(&rpc);
                return None;
            }
            begun => begun.flatten(),
        };
        let bytes = core.accept_request(bytes);
        core.note_taken(rpc);
        let now = core.time();
        self.shedder.taken(now, self.requests.len());
        let open = self.open.get_mut(&rpc)?;
        open.taken = Some(now);
        open.arriving = arriving.map(ArrivingRequest::new);
        let from = open.from;
        self.nudge(rpc, wakes);
        let total = arriving.unwrap_or(bytes.len());
        Some(MailboxItem::Request(rpc, from, bytes, total, context))
    }

    /// A message was taken, perhaps not by the thread that was woken for it. Wakes the threads that
    /// wait for the same message or for others that are left.
    fn nudge(&mut self, taken: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        // Several threads may wait for the same call.
        let of_taken = |wanted: &Selection| [wanted.call, wanted.piece].contains(&Some(taken));
        while self.wake_one(wakes, of_taken) {}
        if !self.ended.is_empty() {
            self.wake_one(wakes, |wanted| wanted.responses && wanted.call.is_none());
        }
        if !self.requests.is_empty() || !self.reports.is_empty() {
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
