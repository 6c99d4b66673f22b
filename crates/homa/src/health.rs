//! Whether an engine does its work: for watchdogs and for checks from outside.

use std::thread;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::wait::shared::PendingWork;
use crate::sharded::Sharded;

/// How long work may be left undone.
const PATIENCE: Duration = Duration::from_secs(1);
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
    /// An engine without work is healthy, also while it drains. The answer comes at once, unless
    /// there is work and none was done yet: then it takes up to a second.
    ///
    /// ```
    /// let client = homa::Client::new()?;
    /// assert!(client.engine().healthy());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn healthy(&self) -> bool {
        let Some(shared) = self.shared() else { return false };
        #[cfg(feature = "testing")]
        if self.clock().is_simulated() {
            // A look at the time would stop it.
            return !matches!(shared.work(), Some(PendingWork::Ended));
        }
        let until = Instant::now() + PATIENCE;
        let mut turns_before = None;
        loop {
            match shared.work() {
                Some(PendingWork::Ended) => return false,
                Some(PendingWork::Nothing) => return true,
                Some(PendingWork::Waits { turns }) => match turns_before {
                    Some(before) if before != turns => return true,
                    _ => turns_before = Some(turns),
                },
                // A thread works.
                None => {}
            }
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Sharded {
    /// True if all engines are [healthy](Engine::healthy).
    pub fn healthy(&self) -> bool {
        self.engines().all(|engine| engine.healthy())
    }
}
