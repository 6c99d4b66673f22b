//! Work that the shared engine defers until its lock is released, because it may run code of the
//! application: waking threads and tasks, dropping wakers that are not needed any more (a task may
//! end with its last waker), and dropping released payloads (`Bytes::from_owner`). Such code may
//! call back into the engine.

use std::cell::Cell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;
use std::thread::{self, ThreadId};

use super::waiters::{Waiters, WakeTarget};
use crate::engine::core::Core;
use crate::payload::Payload;

/// See the module's documentation. Each thread reuses its vectors.
#[derive(Default)]
pub struct Deferred {
    wakes: Vec<WakeTarget>,
    wakers_to_drop: Vec<Waker>,
    payloads_to_drop: Vec<Payload>,
}

thread_local! {
    static DEFERRED: Cell<Deferred> = Cell::default();
}

impl Deferred {
    /// Takes the deferred work, just before the lock is released.
    pub fn of(waiters: &mut Waiters, core: &mut Core) -> Option<Self> {
        let (wakes, wakers_to_drop) = waiters.deferred();
        let payloads_to_drop = core.payloads_to_drop();
        // Nearly always: nothing is taken, and no other lock is needed.
        if wakes.is_empty() && wakers_to_drop.is_empty() && payloads_to_drop.is_empty() {
            return None;
        }
        // A thread that is ending has lost its vectors, and gets new ones.
        let mut deferred = DEFERRED.try_with(Cell::take).unwrap_or_default();
        mem::swap(wakes, &mut deferred.wakes);
        mem::swap(wakers_to_drop, &mut deferred.wakers_to_drop);
        mem::swap(payloads_to_drop, &mut deferred.payloads_to_drop);
        Some(deferred)
    }

    /// True if this thread will be woken.
    pub fn wakes(&self, thread: Option<ThreadId>) -> bool {
        self.wakes.iter().any(|waiting| waiting.is_thread(thread))
    }

    /// Does the work, after the lock has been released.
    pub fn run(mut self) {
        let mut panicked = None;
        for waiting in self.wakes.drain(..) {
            // A panic of one waker must not keep the others from being woken.
            if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| waiting.wake())) {
                panicked = Some(panic);
            }
        }
        self.wakers_to_drop.clear();
        self.payloads_to_drop.clear();
        // A thread that is ending cannot keep the vectors.
        let _ = DEFERRED.try_with(|deferred| deferred.set(self));
        // A second panic while the thread unwinds would end the process.
        if let Some(panic) = panicked.filter(|_| !thread::panicking()) {
            panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic::resume_unwind(Box::new("a waker's"));
        }
    }

    struct Parked(thread::Thread);

    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// If the second waker is not called, this test hangs.
    #[test]
    fn a_waker_that_panics_does_not_stop_the_others() {
        let wakers = [Arc::new(Panics).into(), Arc::new(Parked(thread::current())).into()];
        let deferred =
            Deferred { wakes: wakers.map(WakeTarget::Task).into(), ..Deferred::default() };
        let result = panic::catch_unwind(AssertUnwindSafe(|| deferred.run()));
        assert!(result.is_err(), "the panic is lost");
        thread::park();
    }
}
