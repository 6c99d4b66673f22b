//! Whether an engine does its work: for watchdogs and for checks from outside.

use std::thread;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::wait::shared::PendingWork;
use crate::sharded::Sharded;

/// How long work may be left undone.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// True if the engine does its work. It is not healthy if
    ///
    /// - it has ended, because the system refuses its descriptors for good, or because it
    ///   [handed over](Self::hand_over);
    /// - it belongs to another process (`fork`);
    /// - there is work (something has arrived, or is due to be sent or repeated), and no thread did
    ///   any for a second. That is so, for example, if a waker or a policy of the application
    ///   blocks the thread that drives the engine.
    ///
    /// An engine without work is healthy, also while it drains, and so is one whose thread is busy.
    /// If there is work, the answer comes as soon as some was done, at most after a second.
    ///
    /// ```
    /// let client = homa::Client::new()?;
    /// assert!(client.engine().healthy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn healthy(&self) -> bool {
        let Some(shared) = self.shared() else { return false };
        if self.clock().is_simulated() {
            // A look at the time would stop it.
            return shared.work() != PendingWork::Ended;
        }
        let (began, before) = (Instant::now(), shared.turns());
        loop {
            match shared.work() {
                PendingWork::Ended => return false,
                PendingWork::Nothing => return true,
                PendingWork::Some if shared.turns() != before => return true,
                PendingWork::Some if began.elapsed() >= TIMEOUT => return false,
                PendingWork::Some => thread::sleep(PAUSE),
            }
        }
    }
}

impl Sharded {
    /// True if all engines are [healthy](Engine::healthy).
    pub fn healthy(&self) -> bool {
        self.engines().all(|engine| engine.healthy())
    }
}
