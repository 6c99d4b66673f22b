//! The shared engine once it takes no more calls: it drains, or it failed.

use std::sync::Arc;

use super::SharedState;
use crate::error::CallError;

impl SharedState {
    /// An error if new calls are refused.
    pub fn takes_calls(&self) -> Result<(), CallError> {
        match self.core.failed() {
            Some(errno) => Err(CallError::EngineFailed { errno }),
            None if self.draining => Err(CallError::ShuttingDown),
            None => Ok(()),
        }
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
