//! The table of waiters: connects finished calls and received requests with threads and tasks.
//!
//! These are plain tables under the lock of the shared engine. Waking happens after the lock is
//! released, so the table only collects the waiters to wake. A call that ends is removed, and its
//! result is stored in a [`CallSlot`], from which the caller takes it without the lock.

mod requests;

use std::sync::Arc;
use std::task::Waker;

use hashbrown::HashMap;
use homa_proto::{MessageKind, RpcHandle, Time};

use super::alarms::Alarms;
use super::capacity::CapacityQueue;
use super::mailbox::Mailbox;
use super::slot::{CallOutcome, CallSlot};
pub use super::wake_target::WakeTarget;
use super::watch::RequestWatch;
use crate::engine::core::{Core, EngineEvent, Partial};
use crate::error::CallError;
pub use requests::Accepted;
use requests::{OpenRequest, RequestQueue, UnacceptedRequest};

/// A registered call. The key is invalid after the call has ended or was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey(u64);

impl CallKey {
    /// The cookie of the call in the engine.
    pub fn cookie(self) -> u64 {
        self.0
    }
}

/// An entry of the table of calls.
#[derive(Debug, Default)]
struct CallEntry {
    generation: u32,
    call: Option<PendingCall>,
}

/// A call that has not ended.
#[derive(Debug)]
struct PendingCall {
    /// Receives the result.
    slot: Arc<CallSlot>,
    /// Set once the call has started.
    rpc: Option<RpcHandle>,
    waiting: Option<WakeTarget>,
    /// The readable part of the response.
    partial: Option<Partial>,
    /// True if `waiting` should also be woken when more is readable.
    progress: bool,
    /// The prefix of the response that a reader has, or had.
    lent: Option<(Partial, Arc<Vec<u8>>)>,
}

/// The state of a response that is arriving.
#[derive(Debug)]
pub enum ReadProgress {
    /// It is complete, failed, or was taken.
    Ended,
    /// This part is readable.
    Partial(Partial),
    /// Nothing new is readable; the caller will be woken.
    Nothing,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Receives all events if the engine belongs to a socket.
    mailbox: Option<Box<Mailbox>>,
    calls: Vec<CallEntry>,
    free: Vec<u32>,
    queues: HashMap<u16, RequestQueue>,
    open: HashMap<RpcHandle, OpenRequest>,
    capacity: CapacityQueue,
    watch: RequestWatch,
    /// By ticket, tasks that wait until no more calls are taken.
    ends: Vec<(u64, Waker)>,
    alarms: Alarms,
    to_wake: Vec<WakeTarget>,
    /// Wakers that are not needed any more. They are dropped after the lock is released, because a
    /// task may end with its last waker.
    wakers_to_drop: Vec<Waker>,
    tasks: usize,
    next_ticket: u64,
}

impl Waiters {
    /// Sends all events to `mailbox` from now on.
    pub fn install(&mut self, mailbox: Mailbox) {
        self.mailbox = Some(Box::new(mailbox));
    }

    /// The socket's mailbox, and the list of waiters to wake.
    pub fn mailbox(&mut self) -> Option<(&mut Mailbox, &mut Vec<WakeTarget>)> {
        self.mailbox.as_deref_mut().map(|mailbox| (mailbox, &mut self.to_wake))
    }

    /// True if the engine is that of a socket.
    pub fn has_mailbox(&self) -> bool {
        self.mailbox.is_some()
    }

    /// Registers a call that is about to start; the key is its cookie.
    pub fn reserve(&mut self, slot: Arc<CallSlot>) -> CallKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.calls.push(CallEntry::default());
            self.calls.len() as u32 - 1
        });
        let entry = &mut self.calls[index as usize];
        let (rpc, waiting, partial, lent) = (None, None, None, None);
        entry.call = Some(PendingCall { slot, rpc, waiting, partial, progress: false, lent });
        CallKey(self.cookie(index))
    }

    /// The cookie of the call in an entry.
    fn cookie(&self, index: u32) -> u64 {
        u64::from(self.calls[index as usize].generation) << 32 | u64::from(index)
    }

    /// The call started.
    pub fn started(&mut self, key: CallKey, rpc: RpcHandle) {
        if let Some(call) = self.call(key.0) {
            call.rpc = Some(rpc);
        }
    }

    /// The RPC of a call, until it ends.
    pub fn rpc_of(&mut self, key: CallKey) -> Option<RpcHandle> {
        self.call(key.0)?.rpc
    }

    fn entry(&mut self, cookie: u64) -> Option<&mut CallEntry> {
        let entry = self.calls.get_mut(cookie as u32 as usize)?;
        // The entry may serve another call by now.
        (u64::from(entry.generation) == cookie >> 32).then_some(entry)
    }

    fn call(&mut self, cookie: u64) -> Option<&mut PendingCall> {
        self.entry(cookie)?.call.as_mut()
    }

    /// Removes a call.
    fn leave(&mut self, cookie: u64) -> Option<PendingCall> {
        let entry = self.entry(cookie)?;
        let call = entry.call.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(cookie as u32);
        Some(call)
    }

    /// Forgets a call; returns the RPC if it has started and not ended.
    pub fn give_up(&mut self, key: CallKey) -> Option<RpcHandle> {
        let call = self.leave(key.0)?;
        self.drop_waker_later(call.waiting);
        call.rpc
    }

    /// Ends all calls with an error; returns the RPCs of those that have started.
    pub fn end_calls(&mut self, error: &CallError) -> Vec<RpcHandle> {
        let mut started = Vec::new();
        for index in 0..self.calls.len() as u32 {
            let Some(call) = self.leave(self.cookie(index)) else { continue };
            call.slot.put(CallOutcome { result: Err(error.clone()), lent: None });
            self.wake_caller(call.waiting);
            started.extend(call.rpc);
        }
        started
    }

    /// Wakes the waiter of a call, if there is one, after the lock is released.
    fn wake_caller(&mut self, waiting: Option<WakeTarget>) {
        self.tasks -= usize::from(waiting.as_ref().is_some_and(WakeTarget::is_task));
        self.to_wake.extend(waiting);
    }

    /// Registers the waiter for a call's result; false if the result is in its slot.
    pub fn wait(&mut self, key: CallKey, waiting: WakeTarget) -> bool {
        // It has ended, so its result is in the slot.
        let Some(call) = self.call(key.0) else { return false };
        call.progress = false;
        let before = call.waiting.replace(waiting);
        self.tasks += usize::from(call.waiting.as_ref().is_some_and(WakeTarget::is_task));
        self.drop_waker_later(before);
        true
    }

    /// Drops the waker of a waiter that was not woken, after the lock is released.
    fn drop_waker_later(&mut self, waiting: Option<WakeTarget>) {
        if let Some(WakeTarget::Task(waker)) = waiting {
            self.tasks -= 1;
            self.wakers_to_drop.push(waker);
        }
    }

    /// Returns the readable part if it has more than `seen` bytes; otherwise registers the waiter.
    pub fn progress(&mut self, key: CallKey, seen: usize, waiting: WakeTarget) -> ReadProgress {
        let Some(call) = self.call(key.0) else { return ReadProgress::Ended };
        if let Some(partial) = call.partial.filter(|partial| partial.offset as usize > seen) {
            return ReadProgress::Partial(partial);
        }
        self.wait(key, waiting);
        if let Some(call) = self.call(key.0) {
            call.progress = true;
        }
        ReadProgress::Nothing
    }

    /// The lent prefix of a response, which its reader has returned. A call lends only one at a
    /// time.
    pub fn take_lent(&mut self, key: CallKey) -> Option<(Partial, Vec<u8>)> {
        let (partial, lent) = self.call(key.0)?.lent.take()?;
        Some((partial, Arc::unwrap_or_clone(lent)))
    }

    /// Notes the lent prefix of a response.
    pub fn lend(&mut self, key: CallKey, partial: Partial, lent: Arc<Vec<u8>>) {
        if let Some(call) = self.call(key.0) {
            call.lent = Some((partial, lent));
        }
    }

    /// Registers a task that waits until no more calls are taken; returns a ticket for
    /// [`Self::leave_end`].
    #[cfg(feature = "balance")]
    pub fn wait_for_end(&mut self, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.ends.push((self.next_ticket, waker));
        self.next_ticket
    }

    /// Removes a task that waits for the end.
    #[cfg(feature = "balance")]
    pub fn leave_end(&mut self, ticket: u64) {
        if let Some(at) = self.ends.iter().position(|(other, _)| *other == ticket) {
            self.wakers_to_drop.push(self.ends.swap_remove(at).1);
        }
    }

    /// Wakes all waiters for requests, capacity, a time, or the end.
    pub fn wake_all(&mut self) {
        self.alarms.passed(Time::MAX, &mut self.to_wake);
        self.capacity.all(&mut self.to_wake);
        self.to_wake.extend(self.ends.drain(..).map(|(_, waker)| WakeTarget::Task(waker)));
        for waiting in self.queues.values_mut().flat_map(RequestQueue::take_acceptors) {
            self.tasks -= usize::from(waiting.is_task());
            self.to_wake.push(waiting);
        }
    }

    /// Waiters for capacity.
    pub fn capacity(&mut self) -> &mut CapacityQueue {
        &mut self.capacity
    }

    /// Waiters for the end of an accepted request.
    pub fn watch(&mut self) -> &mut RequestWatch {
        &mut self.watch
    }

    /// Tasks that wait for a time.
    pub fn alarms(&mut self) -> &mut Alarms {
        &mut self.alarms
    }

    /// Wakes the waiters for which there is capacity.
    pub fn offer_capacity(&mut self, core: &Core) {
        if self.capacity.len() > 0 {
            self.capacity.served(core, &mut self.to_wake);
        }
    }

    /// Number of waiting tasks. Unlike threads, they cannot drive the engine.
    pub fn tasks(&self) -> usize {
        self.tasks + self.capacity.len() + self.watch.tasks() + self.alarms.len()
    }

    /// Distributes the engine's events.
    pub fn dispatch(&mut self, core: &mut Core) {
        while let Some(ready) = core.next() {
            if let Some(mailbox) = self.mailbox.as_mut().filter(|_| ready.is_of_socket()) {
                mailbox.post(core, ready, &mut self.to_wake);
                continue;
            }
            match ready {
                EngineEvent::Response { cookie, result, lent, .. } => {
                    // Counted here, not when the caller takes it: calls may be awaited in any
                    // order, and the next one must not wait for memory that other responses hold.
                    core.accepted(result.as_ref().map_or(0, |bytes| bytes.len()));
                    let Some(call) = self.leave(cookie) else { continue };
                    let lent = call.lent.filter(|_| lent > 0).map(|(_, bytes)| bytes);
                    call.slot.put(CallOutcome { result, lent });
                    self.wake_caller(call.waiting);
                }
                EngineEvent::Request { rpc, from, port, bytes, id, context } => {
                    let request = UnacceptedRequest { rpc, from, bytes, id, context };
                    self.arrived(port, request, core);
                }
                EngineEvent::Whole { rpc, bytes } => self.whole(rpc, bytes, core),
                EngineEvent::Readable(partial) => {
                    if partial.kind == MessageKind::Request {
                        self.watch.ended(partial.rpc, &mut self.to_wake);
                    } else if let Some(call) = self.call(partial.cookie) {
                        call.partial = Some(partial);
                        if call.progress {
                            let waiting = call.waiting.take();
                            self.wake_caller(waiting);
                        }
                    }
                }
                EngineEvent::Cancelled { rpc } => self.cancelled(rpc, core),
            }
        }
        self.offer_capacity(core);
        // The engine made a turn for these deadlines.
        if let Some(now) = core.alarmed() {
            self.watch.passed(now, &mut self.to_wake);
            if let Some(mailbox) = &mut self.mailbox {
                mailbox.passed(now, &mut self.to_wake);
            }
            self.alarms.passed(now, &mut self.to_wake);
            core.set_alarm(self.next_alarm());
        }
    }

    /// When a turn is needed for waiters.
    pub fn next_alarm(&self) -> Option<Time> {
        let of_mailbox = self.mailbox.as_ref().and_then(|mailbox| mailbox.next_alarm());
        [self.watch.next(), self.alarms.next(), of_mailbox].into_iter().flatten().min()
    }

    /// Removes a waiter for capacity.
    pub fn leave_capacity(&mut self, ticket: u64) {
        self.wakers_to_drop.extend(self.capacity.leave(ticket));
    }

    /// Removes a waiter for the end of a request.
    pub fn leave_watch(&mut self, rpc: RpcHandle, ticket: u64) {
        self.wakers_to_drop.extend(self.watch.leave(rpc, ticket));
    }

    /// Removes a task that waits for a time.
    pub fn leave_alarm(&mut self, until: Time, ticket: u64) {
        self.wakers_to_drop.extend(self.alarms.leave(until, ticket));
    }

    /// Updates the descriptor of a socket; call it before the lock is released.
    pub fn signal(&mut self) {
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.signal();
        }
    }

    /// Wakes a waiter after the lock is released.
    pub fn wake_later(&mut self, waiting: WakeTarget) {
        self.to_wake.push(waiting);
    }

    /// True if a task will be woken, which may run code of the application.
    pub fn wakes_tasks(&self) -> bool {
        self.to_wake.iter().any(WakeTarget::is_task)
    }

    /// True if wakers must be dropped after the lock is released.
    pub fn has_wakers_to_drop(&self) -> bool {
        !self.wakers_to_drop.is_empty()
    }

    /// The waiters to wake and the wakers to drop, after the lock is released.
    pub fn deferred(&mut self) -> (&mut Vec<WakeTarget>, &mut Vec<Waker>) {
        (&mut self.to_wake, &mut self.wakers_to_drop)
    }
}
