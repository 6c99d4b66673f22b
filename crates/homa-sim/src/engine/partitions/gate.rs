//! A gate at which threads wait for each other after every window.
//!
//! A thread that comes early spins for a short time, because windows take microseconds, and then
//! sleeps. If spinning was in vain the last times, it spins less: the others have much more to do,
//! or no core. Invariant: if a thread panics, the others leave instead of waiting for it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Looks at the gate before a thread sleeps: at most some ten microseconds.
const MOST_LOOKS: u32 = 4_096;
const LEAST_LOOKS: u32 = 64;

/// A gate for a number of threads.
#[derive(Debug)]
pub(super) struct Gate {
    threads: usize,
    arrived: AtomicUsize,
    /// Number of times that the gate has opened.
    opened: AtomicU64,
    sleepers: AtomicUsize,
    abandoned: AtomicBool,
    lock: Mutex<()>,
    bell: Condvar,
}

/// A thread's way through the gate, which is abandoned if the thread panics.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    looks: u32,
}

impl Gate {
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            lock: Mutex::new(()),
            bell: Condvar::new(),
        }
    }

    pub fn pass(&self) -> Pass<'_> {
        Pass { gate: self, looks: MOST_LOOKS }
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all threads pass.
    fn open(&self) {
        self.opened.fetch_add(1, Ordering::SeqCst);
        // A thread counts itself as a sleeper before it looks at `opened` for the last time.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.guard());
            self.bell.notify_all();
        }
    }

    fn sleep(&self, since: u64) {
        let mut guard = self.guard();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.opened.load(Ordering::SeqCst) == since && !self.is_abandoned() {
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pass<'_> {
    /// Waits until all threads are here. False if one of them panicked.
    pub fn wait(&mut self) -> bool {
        let gate = self.gate;
        if gate.threads == 1 {
            return true;
        }
        let since = gate.opened.load(Ordering::Acquire);
        if gate.arrived.fetch_add(1, Ordering::AcqRel) + 1 == gate.threads {
            gate.arrived.store(0, Ordering::Relaxed);
            gate.open();
            return !gate.is_abandoned();
        }
        for _ in 0..self.looks {
            if gate.opened.load(Ordering::Acquire) != since || gate.is_abandoned() {
                self.looks = (self.looks * 2).min(MOST_LOOKS);
                return !gate.is_abandoned();
            }
            spin_loop();
        }
        self.looks = (self.looks / 2).max(LEAST_LOOKS);
        gate.sleep(since);
        !gate.is_abandoned()
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.gate.abandoned.store(true, Ordering::SeqCst);
            self.gate.open();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_before_all_are_there() {
        const ROUNDS: usize = 2_000;
        let (gate, count) = (Gate::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut pass = gate.pass();
                    for round in 0..ROUNDS {
                        count.fetch_add(1, Ordering::Relaxed);
                        assert!(pass.wait());
                        // All three of this round have counted, and of the next one at most two.
                        let counted = count.load(Ordering::Relaxed);
                        assert!((3 * round + 3..=3 * round + 5).contains(&counted), "{counted}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_thread_that_panics_does_not_keep_the_others_waiting() {
        let gate = Gate::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _pass = gate.pass();
                // Without the message of a panic.
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(!gate.pass().wait());
            assert!(other.join().is_err());
        });
    }
}
