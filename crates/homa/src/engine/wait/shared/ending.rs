//! The shared engine once it takes no more calls: it drains, or it failed.

use std::sync::Arc;

use homa_proto::RpcHandle;

use super::SharedState;
use crate::error::CallError;

impl SharedState {
    /// An accepted request was answered or dropped.
    pub fn answered(&mut self, rpc: RpcHandle) {
        let now = self.core.time();
        self.waiters.answered(rpc, now);
    }

    /// An error if new calls are refused.
    pub fn takes_calls(&self) -> Result<(), CallError> {
        match self.core.failed() {
            Some(errno) => Err(CallError::EngineFailed { errno }),
            None if self.draining => Err(CallError::ShuttingDown),
            None => Ok(()),
        }
    }

    /// True if no request will come at a port any more, and none waits there.
    pub fn ends(&self, port: u16) -> bool {
        let ends = self.draining || self.waiters.is_draining(port);
        let waits = self.waiters.has_requests(port) && self.core.failed().is_none();
        ends && !waits
    }

    /// If the engine has failed, nothing will come: waiters return.
    pub(super) fn end_if_failed(&mut self) {
        if self.core.failed().is_some() && !self.handles.is_empty() {
            self.draining = true;
            self.handles = Arc::new([]);
            self.waiters.wake_all();
            if let Some((mailbox, wakes)) = self.waiters.mailbox() {
                mailbox.close(wakes);
            }
        }
    }
}
