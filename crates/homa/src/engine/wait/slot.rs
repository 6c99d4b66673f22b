//! Where the result of a call waits for its caller.
//!
//! A slot serves one call at a time and has a lock of its own. Whoever drives the engine puts the
//! result in, for which it holds the engine's lock, too, and only while the call is on the board:
//! so a slot that its caller emptied, or whose call left the board, can serve another call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::CallError;
use crate::message::Message;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CallSlot(Mutex<Option<CallOutcome>>);

/// How a call ended.
#[derive(Debug)]
pub struct CallOutcome {
    /// Its result.
    pub result: Result<Message, CallError>,
    /// The first bytes of the response, if `result` has only those after them.
    pub lent: Option<Arc<Vec<u8>>>,
}

impl CallSlot {
    fn lock(&self) -> MutexGuard<'_, Option<CallOutcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call ended.
    pub fn put(&self, outcome: CallOutcome) {
        *self.lock() = Some(outcome);
    }

    /// The call's result, if it ended.
    pub fn take(&self) -> Option<Result<Message, CallError>> {
        let CallOutcome { mut result, lent } = self.lock().take()?;
        if let (Ok(rest), Some(lent)) = (&mut result, lent) {
            let mut whole = Arc::unwrap_or_clone(lent);
            whole.extend_from_slice(rest);
            *rest = whole.into();
        }
        Some(result)
    }
}

/// Slots that serve no call, under a lock of their own.
#[derive(Debug, Default)]
pub struct CallSlots(Mutex<Vec<Arc<CallSlot>>>);

impl CallSlots {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<CallSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a call about to start.
    pub fn get(&self) -> Arc<CallSlot> {
        self.lock().pop().unwrap_or_default()
    }

    /// The call is off the board, its result taken.
    pub fn put_back(&self, slot: Arc<CallSlot>) {
        self.lock().push(slot);
    }
}
