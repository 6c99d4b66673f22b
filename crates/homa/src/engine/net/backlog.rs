//! When to send a driver's backlog again: as soon as its socket is writable, or after a pause.
//!
//! Until a link's backlog has left, the engine pulls only control packets for that link, so that
//! the order of messages is still decided late. Other links are not affected.

use homa_proto::{Duration, LinkId, Links, Time};

use crate::driver::{Driver, LinkBacklog, Outbox};

/// The pause between attempts doubles with each attempt that sends nothing.
const PAUSE_MIN: Duration = Duration::micros(50);
const PAUSE_MAX: Duration = Duration::millis(1);

/// The next attempt for one link.
#[derive(Clone, Copy, Debug)]
struct BacklogRetry {
    link: LinkId,
    due: Time,
    pause: Duration,
    /// Wire bytes that wait. The pacer is charged for them when they leave.
    wire: u32,
    /// Bytes of datagrams that wait.
    bytes: usize,
}

/// The links that a driver has a backlog for.
#[derive(Debug, Default)]
pub struct Backlog {
    retries: Vec<BacklogRetry>,
}

impl Backlog {
    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.retries.is_empty()
    }

    /// The links that have a backlog.
    pub fn links(&self) -> Links {
        self.retries.iter().fold(Links::NONE, |links, retry| links.with(retry.link))
    }

    /// When the next attempt is due.
    pub fn due(&self) -> Option<Time> {
        self.retries.iter().map(|retry| retry.due).min()
    }

    /// Notes what the driver could not send of a batch of `wire` bytes. Returns the wire bytes that
    /// wait.
    pub fn note(&mut self, now: Time, batch: &Outbox, wire: u32, waiting: &[LinkBacklog]) -> u32 {
        let all = batch.trains.iter().map(|train| train.len).sum();
        let mut left = 0;
        for waiting in waiting {
            let found = self.retries.iter().position(|retry| retry.link == waiting.link);
            let at = found.unwrap_or_else(|| {
                let (link, due, pause) = (waiting.link, now + PAUSE_MIN, PAUSE_MIN);
                self.retries.push(BacklogRetry { link, due, pause, wire: 0, bytes: 0 });
                self.retries.len() - 1
            });
            let retry = &mut self.retries[at];
            // Wire bytes are charged by the share of the batch's bytes that waits.
            let more = share(wire, waiting.bytes.saturating_sub(retry.bytes), all);
            retry.wire += more;
            retry.bytes = waiting.bytes;
            left += more;
        }
        left.min(wire)
    }

    /// Has the driver try again for the links that are due. `sent` is called with the wire bytes
    /// that left by each.
    pub fn resume(
        &mut self,
        now: Time,
        driver: &mut dyn Driver,
        mut sent: impl FnMut(&dyn Driver, LinkId, u32),
    ) {
        // Backwards, because an entry may be removed.
        for at in (0..self.retries.len()).rev() {
            let retry = self.retries[at];
            if now < retry.due {
                continue;
            }
            driver.resume(retry.link);
            let waiting = driver.backlog().iter().find(|waiting| waiting.link == retry.link);
            let bytes = waiting.map_or(0, |waiting| waiting.bytes);
            let left = share(retry.wire, bytes, retry.bytes);
            sent(driver, retry.link, retry.wire - left);
            // The queue is still full, so the next attempt comes later.
            let pause = match bytes == retry.bytes {
                true => Duration((2 * retry.pause.0).min(PAUSE_MAX.0)),
                false => PAUSE_MIN,
            };
            match bytes {
                0 => _ = self.retries.swap_remove(at),
                _ => {
                    let due = now + pause;
                    self.retries[at] = BacklogRetry { due, pause, wire: left, bytes, ..retry };
                }
            }
        }
    }

    /// Makes the attempts for full sockets due, because poll may have reported that one is
    /// writable.
    pub fn retry_full_sockets(&mut self, waiting: &[LinkBacklog]) {
        // Other backlogs wait for the queue of a device, which poll does not report.
        for waiting in waiting.iter().filter(|waiting| waiting.socket.is_some()) {
            let mut retries = self.retries.iter_mut();
            if let Some(retry) = retries.find(|retry| retry.link == waiting.link) {
                retry.due = Time::ZERO;
            }
        }
    }
}

/// The part of `wire` that belongs to `part` of `all` bytes.
fn share(wire: u32, part: usize, all: usize) -> u32 {
    (u64::from(wire) * part as u64 / (all as u64).max(1)) as u32
}
