//! The shared engine once it takes no more calls: it drains, hands its place over, or failed.

use std::sync::Arc;

use homa_proto::{Executions, RpcHandle};

use super::{Access, Lead, SharedState};
use crate::error::CallError;

/// Most looks at what was received before the engine hands over. Each leaves less of the last batch.
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

    /// True if no request will come at a port any more, and none waits there.
    pub fn ends(&self, port: u16) -> bool {
        let over = self.core.ended().is_some();
        let ends = self.draining && (over || !self.handing_over) || self.waiters.is_draining(port);
        let waits = self.waiters.has_requests(port) && !over;
        ends && !waits
    }

    /// If the engine has ended, nothing will come: waiters return.
    pub(super) fn end_if_over(&mut self) {
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
    pub fn hand_over(&mut self) -> Executions {
        let state = &mut **self;
        for _ in 0..LAST_LOOKS {
            if !state.core.settle() {
                break;
            }
            state.waiters.dispatch(&mut state.core);
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
