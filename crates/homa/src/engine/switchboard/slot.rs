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
pub struct Slot(Mutex<Option<Outcome>>);

/// How a call ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its result.
    pub result: Result<Message, CallError>,
    /// The first bytes of the response, if `result` has only those after them.
    pub lent: Option<Arc<Vec<u8>>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call ended.
    pub fn put(&self, outcome: Outcome) {
        *self.lock() = Some(outcome);
    }

    /// The call's result, if it ended.
    pub fn take(&self) -> Option<Result<Message, CallError>> {
        let Outcome { mut result, lent } = self.lock().take()?;
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
pub struct Slots(Mutex<Vec<Arc<Slot>>>);

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a call about to start.
    pub fn get(&self) -> Arc<Slot> {
        self.lock().pop().unwrap_or_default()
    }

    /// The call is off the board, its result taken.
    pub fn put_back(&self, slot: Arc<Slot>) {
        self.lock().push(slot);
    }
}
