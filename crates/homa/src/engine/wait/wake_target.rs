//! What is woken when a result has arrived.

use std::task::Waker;
use std::thread::{Thread, ThreadId};

/// A thread or a task to be woken.
#[derive(Debug)]
pub enum WakeTarget {
    /// A thread parked in a blocking operation.
    Thread(Thread),
    /// A task of an executor.
    Task(Waker),
}

impl WakeTarget {
    /// True for the thread with this id.
    pub fn is_thread(&self, id: Option<ThreadId>) -> bool {
        matches!(self, Self::Thread(thread) if Some(thread.id()) == id)
    }

    /// Wakes it.
    pub fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }

    /// True for a task, whose waker may run code of the application.
    pub fn is_task(&self) -> bool {
        matches!(self, Self::Task(_))
    }
}
