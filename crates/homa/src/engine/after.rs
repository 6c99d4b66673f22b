//! What the shared engine does once its lock is released, because that may run somebody's code:
//! wakes whoever has to be woken, drops the wakers of those who wait no longer (a task may end with
//! the last one) and the payloads that are over (`Bytes::from_owner` may own them). Any of this may
//! call back.

use std::cell::Cell;
use std::mem;
use std::task::Waker;
use std::thread::ThreadId;

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
        self.wakes.drain(..).for_each(Waiting::wake);
        self.retired.clear();
        self.over.clear();
        // A thread that ends has no use for it.
        let _ = AFTER.try_with(|after| after.set(self));
    }
}
