//! Spinning: whether a thread looks for arrivals before it sleeps.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::driver::{Waker, wait_or_writable};

/// Decides whether to spin before sleeping. It spins while that succeeds, and otherwise tries it
/// from time to time.
pub struct SpinPolicy {
    time: Duration,
    /// Grows with success.
    credit: u8,
    /// Waits until the next attempt without credit.
    pause: u8,
}

impl SpinPolicy {
    const CREDIT_MAX: u8 = 8;
    /// A failure costs this many successes.
    const FAILURE: u8 = 4;
    /// Waits between attempts. Time wasted by spinning stays below a few per cent of the time that
    /// it could save.
    const PAUSE: u8 = 63;

    /// The longest wait for the link that is spun through. If it is longer, the lateness of a sleep
    /// is less than the time of the packets that the pacer then keeps queued.
    const PACED_MAX: Duration = Duration::from_micros(100);

    /// A policy that spins for `time`.
    pub fn new(time: Duration) -> Self {
        Self { time, credit: Self::CREDIT_MAX, pause: 0 }
    }

    /// How long to spin before the next sleep.
    pub fn next(&mut self) -> Duration {
        // Without credit it tries now and then, because peers may have become faster.
        if self.credit > 0 || self.pause == 0 {
            self.pause = Self::PAUSE;
            return self.time;
        }
        self.pause -= 1;
        Duration::ZERO
    }

    /// How long to spin if the link takes a packet after `wait`: all of it if it is short,
    /// otherwise not at all. If nothing arrives in this time, that says nothing about later waits.
    pub fn until_budget(&self, wait: Duration) -> Duration {
        // A user who set no spinning does not want it here either.
        let spins = !self.time.is_zero() && wait <= Self::PACED_MAX;
        if spins { wait } else { Duration::ZERO }
    }

    /// Learns whether something arrived while spinning.
    pub fn learn(&mut self, success: bool) {
        self.credit = match success {
            true => (self.credit + 1).min(Self::CREDIT_MAX),
            // Two failures in a row end the spinning.
            false => self.credit.saturating_sub(Self::FAILURE),
        };
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// Something arrived while spinning.
    Awake,
    /// Something ended the sleep.
    Asleep,
    /// The time passed and nothing arrived.
    Nothing,
}

/// Spins for a while, then sleeps, until something can be received or a full socket is writable.
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
    fn spinning_continues_while_it_pays_and_is_otherwise_rare() {
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
