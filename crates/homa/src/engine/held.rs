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
pub struct Held {
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
        let left = if self.driver.waiting().is_empty() { 0 } else { self.hold(now, wire) };
        self.state.budgets.sent(now, link, wire - left, |link| self.driver.queued(link));
        self.note_asked(now);
    }

    /// Notes what of a batch of `wire` bytes waits; returns how much of it.
    fn hold(&mut self, now: Time, wire: u32) -> u32 {
        let all = self.packer.outbox().trains.iter().map(|train| train.len).sum();
        let mut left = 0;
        for waiting in self.driver.waiting() {
            let found = self.held.iter().position(|held| held.link == waiting.link);
            let at = found.unwrap_or_else(|| {
                let (link, until, pause) = (waiting.link, now + PAUSE_MIN, PAUSE_MIN);
                self.held.push(Held { link, until, pause, wire: 0, bytes: 0 });
                self.held.len() - 1
            });
            let held = &mut self.held[at];
            let more = share(wire, waiting.bytes.saturating_sub(held.bytes), all);
            held.wire += more;
            held.bytes = waiting.bytes;
            left += more;
        }
        left.min(wire)
    }

    /// Tries again what is due of what waits in the driver.
    pub(super) fn resume_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = self.tick();
        for at in (0..self.held.len()).rev() {
            let held = self.held[at];
            if now < held.until {
                continue;
            }
            self.driver.resume(held.link);
            let waiting = self.driver.waiting().iter().find(|waiting| waiting.link == held.link);
            let bytes = waiting.map_or(0, |waiting| waiting.bytes);
            let left = share(held.wire, bytes, held.bytes);
            let queued = |link| self.driver.queued(link);
            self.state.budgets.sent(now, held.link, held.wire - left, queued);
            let pause = match bytes == held.bytes {
                true => Duration((2 * held.pause.0).min(PAUSE_MAX.0)),
                false => PAUSE_MIN,
            };
            match bytes {
                0 => _ = self.held.swap_remove(at),
                _ => self.held[at] = Held { until: now + pause, pause, wire: left, bytes, ..held },
            }
        }
    }

    /// The links that something waits for.
    pub(super) fn held_links(&self) -> Links {
        self.held.iter().fold(Links::NONE, |links, held| links.with(held.link))
    }

    /// The socket that has no room, if one is why something waits.
    pub fn full_socket(&self) -> Option<RawFd> {
        self.driver.waiting().iter().find_map(|waiting| match waiting.full {
            Full::Socket(fd) => Some(fd),
            Full::Device => None,
        })
    }

    /// Whoever waited may have been told that the socket is writable.
    pub(super) fn retry_full_socket(&mut self) {
        for waiting in self.driver.waiting() {
            if let Full::Socket(_) = waiting.full
                && let Some(held) = self.held.iter_mut().find(|held| held.link == waiting.link)
            {
                held.until = Time::ZERO;
            }
        }
    }

    /// When to try again to send what waits.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.held.iter().map(|held| held.until).min()
    }
}

/// What `part` of `all` bytes is of `wire`.
fn share(wire: u32, part: usize, all: usize) -> u32 {
    (u64::from(wire) * part as u64 / (all as u64).max(1)) as u32
}
