//! Wake-ups from the engine's threads to Python's event loop: numbers of futures that can continue,
//! and one byte that wakes the loop.
//!
//! A wake-up does not need the interpreter: it stores a number under a separate lock and, if no
//! number was stored before, makes the loop's descriptor readable. The loop then takes all numbers
//! at once, so that many answers cost one wake-up.

use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// The list and the pair of descriptors.
#[derive(Debug)]
pub struct Ring {
    ready: Mutex<Vec<u64>>,
    bell: UnixStream,
    ear: UnixStream,
}

impl Ring {
    /// Without any wake-up yet.
    pub fn new() -> io::Result<Arc<Self>> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        Ok(Arc::new(Self { ready: Mutex::default(), bell, ear }))
    }

    /// Readable after a wake-up.
    pub fn handle(&self) -> RawFd {
        self.ear.as_raw_fd()
    }

    /// Notes a number and wakes the loop.
    pub fn ring(&self, number: u64) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ready.is_empty();
        ready.push(number);
        drop(ready);
        if first {
            // What does not fit is behind bytes that wake the loop as well.
            let _ = (&self.bell).write(&[0]);
        }
    }

    /// Takes all numbers. The bytes are read first, because a number that is stored later wakes the
    /// loop again.
    pub fn take(&self) -> Vec<u64> {
        let _ = (&self.ear).read(&mut [0; 16]);
        mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
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
