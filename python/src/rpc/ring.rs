//! Wake-ups of Python's event loop: numbers of futures that can continue, and one byte that wakes
//! the loop.
//!
//! While the loop drives the engine, a wake-up only stores a number, because the loop takes all
//! numbers next. Other wake-ups, for example of the engine's own thread if the loop was busy, store
//! a number and, if it is the first, make a descriptor readable. None needs the interpreter.

use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// The list and the pair of descriptors.
#[derive(Debug)]
pub struct Ring {
    ready: Mutex<Ready>,
    bell: UnixStream,
    ear: UnixStream,
}

#[derive(Debug, Default)]
struct Ready {
    numbers: Vec<u64>,
    /// The loop will take the numbers without a byte.
    silent: bool,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without any wake-up yet.
    pub fn new() -> io::Result<Arc<Self>> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        Ok(Arc::new(Self { ready: Mutex::default(), bell, ear }))
    }

    /// Readable after a wake-up from outside of the loop.
    pub fn handle(&self) -> RawFd {
        self.ear.as_raw_fd()
    }

    /// Notes a number and wakes the loop.
    pub fn ring(&self, number: u64) {
        let mut ready = self.lock();
        let wakes = ready.numbers.is_empty() && !ready.silent;
        ready.numbers.push(number);
        drop(ready);
        if wakes {
            // What does not fit is behind bytes that wake the loop as well.
            let _ = (&self.bell).write(&[0]);
        }
    }

    /// Takes all numbers, including those that are stored while `drives` runs. A byte is read
    /// before, because a number that is stored later wakes the loop again.
    pub fn take(&self, drives: impl FnOnce()) -> Vec<u64> {
        let mut ready = self.lock();
        let has_byte = !ready.numbers.is_empty();
        ready.silent = true;
        drop(ready);
        if has_byte {
            let _ = (&self.ear).read(&mut [0; 16]);
        }
        drives();
        let mut ready = self.lock();
        ready.silent = false;
        mem::take(&mut ready.numbers)
    }
}

/// Rings for one number.
#[derive(Debug)]
pub struct Ringer {
    /// The ring.
    pub ring: Arc<Ring>,
    /// The number to store.
    pub number: u64,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring.ring(self.number);
    }
}
