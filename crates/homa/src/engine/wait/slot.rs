//! The result of a call, until its caller takes it.
//!
//! A slot serves one call at a time and has a separate lock. The driving thread stores the result
//! while it holds the engine's lock and the call is registered. So a slot that was emptied, or
//! whose call was removed, can serve another call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::CallError;
use crate::message::Message;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CallSlot(Mutex<Option<CallOutcome>>);

/// The result of a call.
#[derive(Debug)]
pub struct CallOutcome {
    /// The response, or the error.
    pub result: Result<Message, CallError>,
    /// The first bytes of the response, if `result` contains only the bytes after them.
    pub lent: Option<Arc<Vec<u8>>>,
}

impl CallSlot {
    fn lock(&self) -> MutexGuard<'_, Option<CallOutcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result.
    pub fn put(&self, outcome: CallOutcome) {
        *self.lock() = Some(outcome);
    }

    /// Takes the result if the call has ended.
    pub fn take(&self) -> Option<Result<Message, CallError>> {
        let CallOutcome { mut result, lent } = self.lock().take()?;
        // A reader had the first bytes, so the response is put together here.
        if let (Ok(rest), Some(lent)) = (&mut result, lent) {
            let mut whole = Arc::unwrap_or_clone(lent);
            whole.extend_from_slice(rest);
            *rest = whole.into();
        }
        Some(result)
    }
}

/// Slots that are not in use.
#[derive(Debug, Default)]
pub struct CallSlots(Mutex<Vec<Arc<CallSlot>>>);

impl CallSlots {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<CallSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a new call.
    pub fn get(&self) -> Arc<CallSlot> {
        self.lock().pop().unwrap_or_default()
    }

    /// Returns a slot whose call was removed and whose result was taken.
    pub fn put_back(&self, slot: Arc<CallSlot>) {
        self.lock().push(slot);
    }
}
