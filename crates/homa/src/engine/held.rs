//! What the driver could not send yet: tried again when the socket is writable, or after a pause.
//! Meanwhile nothing more is pulled, so that the order of sending is still decided late.

use std::os::fd::RawFd;

use homa_proto::{Duration, LinkId, Time};

use super::Core;
use crate::driver::Full;

/// Between attempts, unless the socket is writable before: doubled after each in vain.
const PAUSE_MIN: Duration = Duration::micros(50);
const PAUSE_MAX: Duration = Duration::millis(1);

/// A batch of which a part waits in the driver.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// When to try again.
    until: Time,
    /// The link that it is for.
    link: LinkId,
    pause: Duration,
    /// Wire bytes that wait: the pacer hears of them when they leave.
    wire: u32,
    /// Bytes of datagrams that wait.
    bytes: usize,
}

impl Core {
    /// Sends what was packed, `wire` bytes on their link.
    pub(super) fn send_packed(&mut self, now: Time, link: LinkId, wire: u32) {
        let outbox = self.packer.outbox();
        self.driver.send(outbox, &self.state.messages);
        let left = match (self.driver.waiting(), self.held) {
            (None, _) => 0,
            // Behind what waits already: probes of several paths may be due at once.
            (Some(waiting), Some(held)) => {
                let (wire, bytes) = (held.wire + wire, waiting.bytes);
                self.held = Some(Held { wire, bytes, ..held });
                wire - held.wire
            }
            (Some(waiting), None) => {
                let all = outbox.trains.iter().map(|train| train.len).sum();
                let left = share(wire, waiting.bytes, all);
                let (until, pause) = (now + PAUSE_MIN, PAUSE_MIN);
                self.held = Some(Held { until, link, pause, wire: left, bytes: waiting.bytes });
                left
            }
        };
        self.state.budgets.sent(now, link, wire - left, || self.driver.queued());
        self.note_asked(now);
    }

    /// True while something waits in the driver, after an attempt if one is due.
    pub(super) fn is_held(&mut self) -> bool {
        let Some(held) = self.held else { return false };
        let now = self.tick();
        if now < held.until {
            return true;
        }
        self.driver.resume();
        let (left, bytes) = match self.driver.waiting() {
            None => (0, 0),
            Some(waiting) => (share(held.wire, waiting.bytes, held.bytes), waiting.bytes),
        };
        let sent = held.wire - left;
        self.state.budgets.sent(now, held.link, sent, || self.driver.queued());
        let pause = match bytes == held.bytes {
            true => Duration((2 * held.pause.0).min(PAUSE_MAX.0)),
            false => PAUSE_MIN,
        };
        self.held =
            (bytes > 0).then_some(Held { until: now + pause, pause, wire: left, bytes, ..held });
        self.held.is_some()
    }

    /// The socket that has no room, if one is why something waits.
    pub fn full_socket(&self) -> Option<RawFd> {
        self.held?;
        match self.driver.waiting()?.full {
            Full::Socket(fd) => Some(fd),
            Full::Device => None,
        }
    }

    /// Whoever waited may have been told that the socket is writable.
    pub(super) fn retry_full_socket(&mut self) {
        if self.full_socket().is_some()
            && let Some(held) = &mut self.held
        {
            held.until = Time::ZERO;
        }
    }

    /// When to try again to send what waits.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.held.map(|held| held.until)
    }
}

/// What `part` of `all` bytes is of `wire`.
fn share(wire: u32, part: usize, all: usize) -> u32 {
    (u64::from(wire) * part as u64 / (all as u64).max(1)) as u32
}
