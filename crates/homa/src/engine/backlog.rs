//! What the driver could not send yet: tried again when the socket is writable, or after a pause.
//! Meanwhile nothing but control packets is pulled for the links that it waits for, so that the
//! order of sending is still decided late; other links go on.

use std::os::fd::RawFd;

use homa_proto::{Duration, LinkId, Links, Time};

use super::Core;
use crate::driver::Full;

/// Between attempts, unless the socket is writable before: doubled after each in vain.
const PAUSE_MIN: Duration = Duration::micros(50);
const PAUSE_MAX: Duration = Duration::millis(1);

/// What waits in the driver for one link.
#[derive(Clone, Copy, Debug)]
pub struct BacklogRetry {
    link: LinkId,
    /// When to try again.
    until: Time,
    pause: Duration,
    /// Wire bytes that wait: the pacer hears of them when they leave.
    wire: u32,
    /// Bytes of datagrams that wait.
    bytes: usize,
}

impl Core {
    /// Sends what was packed, `wire` bytes for a link and control packets for others.
    pub(super) fn send_packed(&mut self, now: Time, link: LinkId, wire: u32) {
        self.driver.send(self.packer.outbox(), &self.state.messages);
        let left = if self.driver.backlog().is_empty() { 0 } else { self.note_backlog(now, wire) };
        self.state.links.sent(now, link, wire - left, |link| self.driver.queued(link));
        self.note_resends(now);
    }

    /// Notes what of a batch of `wire` bytes waits; returns how much of it.
    fn note_backlog(&mut self, now: Time, wire: u32) -> u32 {
        let all = self.packer.outbox().trains.iter().map(|train| train.len).sum();
        let mut left = 0;
        for backlog in self.driver.backlog() {
            let found = self.retries.iter().position(|retry| retry.link == backlog.link);
            let at = found.unwrap_or_else(|| {
                let (link, until, pause) = (backlog.link, now + PAUSE_MIN, PAUSE_MIN);
                self.retries.push(BacklogRetry { link, until, pause, wire: 0, bytes: 0 });
                self.retries.len() - 1
            });
            let retry = &mut self.retries[at];
            let more = share(wire, backlog.bytes.saturating_sub(retry.bytes), all);
            retry.wire += more;
            retry.bytes = backlog.bytes;
            left += more;
        }
        left.min(wire)
    }

    /// Tries again what is due of what waits in the driver.
    pub(super) fn resume_backlog(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        let now = self.tick();
        for at in (0..self.retries.len()).rev() {
            let retry = self.retries[at];
            if now < retry.until {
                continue;
            }
            self.driver.resume(retry.link);
            let backlog = self.driver.backlog().iter().find(|backlog| backlog.link == retry.link);
            let bytes = backlog.map_or(0, |backlog| backlog.bytes);
            let left = share(retry.wire, bytes, retry.bytes);
            let queued = |link| self.driver.queued(link);
            self.state.links.sent(now, retry.link, retry.wire - left, queued);
            let pause = match bytes == retry.bytes {
                true => Duration((2 * retry.pause.0).min(PAUSE_MAX.0)),
                false => PAUSE_MIN,
            };
            match bytes {
                0 => _ = self.retries.swap_remove(at),
                _ => {
                    self.retries[at] =
                        BacklogRetry { until: now + pause, pause, wire: left, bytes, ..retry }
                }
            }
        }
    }

    /// The links that something waits for.
    pub(super) fn backlogged_links(&self) -> Links {
        self.retries.iter().fold(Links::NONE, |links, retry| links.with(retry.link))
    }

    /// The socket that has no room, if one is why something waits.
    pub fn full_socket(&self) -> Option<RawFd> {
        self.driver.backlog().iter().find_map(|backlog| match backlog.full {
            Full::Socket(fd) => Some(fd),
            Full::Device => None,
        })
    }

    /// Whoever waited may have been told that the socket is writable.
    pub(super) fn retry_full_socket(&mut self) {
        for backlog in self.driver.backlog() {
            if let Full::Socket(_) = backlog.full
                && let Some(retry) =
                    self.retries.iter_mut().find(|retry| retry.link == backlog.link)
            {
                retry.until = Time::ZERO;
            }
        }
    }

    /// When to try again to send what waits.
    pub(super) fn backlog_due(&self) -> Option<Time> {
        self.retries.iter().map(|retry| retry.until).min()
    }
}

/// What `part` of `all` bytes is of `wire`.
fn share(wire: u32, part: usize, all: usize) -> u32 {
    (u64::from(wire) * part as u64 / (all as u64).max(1)) as u32
}
