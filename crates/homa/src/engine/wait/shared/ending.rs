//! The shared engine once it takes no more calls: it drains, hands its place over, or failed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use homa_proto::{Executions, RpcHandle};

use super::{Access, Lead, Shared, SharedState};
use crate::driver::wait_or_writable;
use crate::error::CallError;

/// Most looks at what was received before the engine hands over. Each leaves less of the last
/// batch.
const LAST_LOOKS: usize = 64;

impl SharedState {
    /// An accepted request was answered or dropped.
    pub fn answered(&mut self, rpc: RpcHandle) {
        let now = self.core.time();
        self.waiters.answered(rpc, now);
    }

    /// An error if new calls are refused.
    pub fn takes_calls(&self) -> Result<(), CallError> {
        match self.core.ended() {
            Some(end) => Err(end.error()),
            None if self.draining => Err(CallError::ShuttingDown),
            None => Ok(()),
        }
    }

    /// Ends the calls of clients.
    pub fn end_calls(&mut self) {
        for rpc in self.waiters.end_calls(&CallError::ShuttingDown) {
            self.core.cancel(rpc);
        }
    }

    /// True if new requests may come at a port of a server.
    pub fn serves(&self, port: u16) -> bool {
        !self.draining && !self.waiters.is_draining(port)
    }

    /// True if no request will come at a port any more, and none waits there.
    pub fn ends(&self, port: u16) -> bool {
        let over = self.core.ended().is_some();
        // While it hands over, requests that were begun may still be accepted.
        let ends = self.draining && (over || !self.handing_over) || self.waiters.is_draining(port);
        let waits = self.waiters.has_requests(port) && !over;
        ends && !waits
    }

    /// If the engine has ended, nothing will come: waiters return.
    pub(super) fn end_if_over(&mut self) {
        // Its descriptors are not to be watched again.
        if self.core.ended().is_some() && !self.handles.is_empty() {
            self.draining = true;
            self.handles = Arc::new([]);
            self.waiters.wake_all();
            if let Some((mailbox, wakes)) = self.waiters.mailbox() {
                mailbox.close(wakes);
            }
        }
    }
}

/// What there is to do for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingWork {
    /// The engine has ended.
    Ended,
    /// Nothing has arrived, and nothing is due.
    Nothing,
    /// Something has arrived or is due, or a thread works with the engine.
    Some,
}

impl Shared {
    /// Stops the helper.
    pub fn close(&self) {
        let mut access = self.access();
        access.core.transmit();
        access.closing = true;
        access.end_event_loop();
        access.kick(Lead::Helper);
        access.call_helper();
    }

    /// The engine's turns so far.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// What there is to do. It does not wait for a thread that works with the engine.
    pub fn work(&self) -> PendingWork {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A thread that holds the lock works with the engine.
            Err(TryLockError::WouldBlock) => return PendingWork::Some,
        };
        if state.core.ended().is_some() {
            return PendingWork::Ended;
        }
        // A look must not wait for a thread that is blocked, so the lock is given back first.
        let due = state.core.idle().is_some_and(|left| left.is_zero());
        let handles = state.handles.clone();
        drop(state);
        // An error is exhausted memory.
        let waits =
            due || wait_or_writable(&handles, None, None, Some(Duration::ZERO)).unwrap_or(true);
        if waits { PendingWork::Some } else { PendingWork::Nothing }
    }
}

impl Access<'_> {
    /// Begins to hand over: there is no room for new calls and requests.
    pub fn begin_hand_over(&mut self) {
        (self.draining, self.handing_over) = (true, true);
        self.core.postpone_requests();
        self.waiters.wake_all();
        self.submitted();
    }

    /// Ends the engine for another one. Clients of requests that were not accepted are told that
    /// nothing was executed.
    pub fn hand_over(&mut self) -> (Executions, Duration) {
        let state = &mut **self;
        // Each look frees room for the rest of the batch that was received.
        for _ in 0..LAST_LOOKS {
            let is_more_left = state.core.settle();
            state.waiters.dispatch(&mut state.core);
            if !is_more_left {
                break;
            }
        }
        state.waiters.turn_all_away(&mut state.core);
        let executions = state.core.hand_over();
        state.waiters.dispatch(&mut state.core);
        state.end_if_over();
        self.end_event_loop();
        // A thread that sleeps on the sockets returns.
        [Lead::Thread, Lead::Helper].into_iter().for_each(|leader| self.kick(leader));
        executions
    }
}
