//! What the shared engine does once its lock is released, because that may run somebody's code:
//! wakes whoever has to be woken, drops the wakers of those who wait no longer (a task may end with
//! the last one) and the payloads that are over (`Bytes::from_owner` may own them). Any of this may
//! call back.

use std::cell::Cell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;
use std::thread::{self, ThreadId};

use super::Core;
use super::switchboard::{Switchboard, Waiting};
use crate::payload::Payload;

/// See the module's documentation. Its memory serves the thread the next time.
#[derive(Default)]
pub struct After {
    wakes: Vec<Waiting>,
    retired: Vec<Waker>,
    over: Vec<Payload>,
}

thread_local! {
    static AFTER: Cell<After> = Cell::default();
}

impl After {
    /// What there is; due just before the lock is released.
    pub fn of(board: &mut Switchboard, core: &mut Core) -> Option<Self> {
        let (wakes, retired) = board.leavers();
        let over = core.over();
        if wakes.is_empty() && retired.is_empty() && over.is_empty() {
            return None;
        }
        let mut after = AFTER.try_with(Cell::take).unwrap_or_default();
        mem::swap(wakes, &mut after.wakes);
        mem::swap(retired, &mut after.retired);
        mem::swap(over, &mut after.over);
        Some(after)
    }

    /// True where it wakes this thread.
    pub fn wakes(&self, thread: Option<ThreadId>) -> bool {
        self.wakes.iter().any(|waiting| waiting.is_thread(thread))
    }

    /// Does it; due when the lock is released.
    pub fn run(mut self) {
        let mut panicked = None;
        for waiting in self.wakes.drain(..) {
            // The others wait no less.
            if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| waiting.wake())) {
                panicked = Some(panic);
            }
        }
        self.retired.clear();
        self.over.clear();
        // A thread that ends has no use for it.
        let _ = AFTER.try_with(|after| after.set(self));
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

    /// Where the second is not woken, this hangs.
    #[test]
    fn a_waker_that_panics_does_not_keep_the_others_from_being_woken() {
        let wakers = [Arc::new(Panics).into(), Arc::new(Parked(thread::current())).into()];
        let after = After { wakes: wakers.map(Waiting::Task).into(), ..After::default() };
        let result = panic::catch_unwind(AssertUnwindSafe(|| after.run()));
        assert!(result.is_err(), "nobody hears of the panic");
        thread::park();
    }
}
