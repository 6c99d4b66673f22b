//! Engines in simulated time (`homa::testing`): a task of the runtime drives them, as an event
//! loop, and they have no helper.

use std::time::Instant;

use super::{Access, Shared};
use crate::engine::wait::waiters::WakeTarget;

impl Shared {
    /// When the event loop has to drive although nothing arrives.
    pub fn due(&self) -> Option<Instant> {
        let access = self.access();
        access.core.wake_at().and_then(|at| access.core.instant(at))
    }

    /// Ends the engine as its process ends: nothing is sent any more, and what waits here fails.
    pub fn crash(&self, errno: i32) {
        let mut access = self.access();
        access.core.fail(errno);
        let state = &mut *access;
        state.waiters.dispatch(&mut state.core);
        state.end_if_over();
        access.end_event_loop();
    }
}

impl Access<'_> {
    /// Wakes the task that drives, because something is due earlier than it expects.
    pub(super) fn wake_simulation(&mut self) {
        if self.helper.is_some() {
            return;
        }
        let flush = self.event_loop.as_ref().and_then(|event_loop| event_loop.flush.as_ref());
        if let Some(waker) = flush.map(|flush| flush.waker.clone()) {
            self.waiters.wake_later(WakeTarget::Task(waker));
        }
    }

    /// A thread that blocks would stop the time for which it waits.
    ///
    /// # Panics
    /// In simulated time.
    pub(super) fn refuse_to_block(&self) {
        assert!(
            self.helper.is_some(),
            "this engine is one of homa::testing: a blocking function would stop its simulated \
             time, use the asynchronous one (call_async, accept_async, drain_async)"
        );
    }
}
