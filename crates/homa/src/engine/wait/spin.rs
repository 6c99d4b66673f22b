//! Whether a thread that waits looks for arrivals before it sleeps.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::driver::{Waker, wait_or_writable};

/// Decides whether to spin before sleeping: yes while it succeeds, now and then otherwise, to find
/// out.
pub struct SpinPolicy {
    time: Duration,
    /// Rises with success.
    credit: u8,
    /// Waits until the next attempt without credit.
    pause: u8,
}

impl SpinPolicy {
    const CREDIT_MAX: u8 = 8;
    /// A failure costs as much as so many successes bring.
    const FAILURE: u8 = 4;
    /// Waits between attempts: keeps the time spun in vain below a few per cent of what it could
    /// save.
    const PAUSE: u8 = 63;

    /// The longest wait for room on the link that is spun through: from here on, the lateness of a
    /// sleep is less than the packets that the pacer then keeps below.
    const PACED_MAX: Duration = Duration::from_micros(100);

    /// Spins for `time` when it does.
    pub fn new(time: Duration) -> Self {
        Self { time, credit: Self::CREDIT_MAX, pause: 0 }
    }

    /// How long to spin this time.
    pub fn next(&mut self) -> Duration {
        if self.credit > 0 || self.pause == 0 {
            self.pause = Self::PAUSE;
            return self.time;
        }
        self.pause -= 1;
        Duration::ZERO
    }

    /// How long to spin where the link has room for a packet after `wait`: all of it if that is
    /// short, else not at all. That nothing arrives meanwhile says nothing about later waits.
    pub fn until_budget(&self, wait: Duration) -> Duration {
        let spins = !self.time.is_zero() && wait <= Self::PACED_MAX;
        if spins { wait } else { Duration::ZERO }
    }

    /// Whether spinning was enough this time.
    pub fn learn(&mut self, success: bool) {
        self.credit = match success {
            true => (self.credit + 1).min(Self::CREDIT_MAX),
            false => self.credit.saturating_sub(Self::FAILURE),
        };
    }
}

/// How something to do was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// While looking.
    Awake,
    /// It ended a sleep.
    Asleep,
    /// Not at all: the time was over.
    Nothing,
}

/// Looks for something to receive, or room in a full socket, for a while, then sleeps.
pub fn spin_then_wait(
    (handles, full): (&[RawFd], Option<RawFd>),
    waker: &Waker,
    spin: Duration,
    timeout: Option<Duration>,
) -> io::Result<WaitOutcome> {
    if !spin.is_zero() {
        // A time beyond the clock's range never comes.
        let until = Instant::now().checked_add(timeout.map_or(spin, |t| t.min(spin)));
        while until.is_none_or(|until| Instant::now() < until) {
            if wait_or_writable(handles, full, Some(waker), Some(Duration::ZERO))? {
                return Ok(WaitOutcome::Awake);
            }
        }
    }
    let left = timeout.map(|timeout| timeout.saturating_sub(spin));
    let found = wait_or_writable(handles, full, Some(waker), left)?;
    Ok(if found { WaitOutcome::Asleep } else { WaitOutcome::Nothing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_goes_on_while_it_pays_and_is_tried_rarely_when_it_does_not() {
        let mut policy = SpinPolicy::new(Duration::from_micros(20));
        for _ in 0..100 {
            assert!(!policy.next().is_zero());
            policy.learn(true);
        }
        let mut spun = 0;
        for _ in 0..1000 {
            if !policy.next().is_zero() {
                spun += 1;
                policy.learn(false);
            }
        }
        assert!(spun <= 2 + 1000 / 64 + 1, "{spun} of 1000");
    }
}
