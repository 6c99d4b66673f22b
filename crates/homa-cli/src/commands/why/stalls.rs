//! Time in which a process did not run.

use super::groups::{SLOW, grown, watched};
use crate::commands::scrape::Scrape;

/// How often and how long a process did not run although its engine had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    pub times: f64,
    pub seconds: f64,
    /// Their share of the time that was watched.
    pub share: f64,
}

impl Stalls {
    /// Those between two scrapes.
    pub fn between(before: &Scrape, after: &Scrape) -> Self {
        let seconds = grown("homa_engine_stalled_seconds_total", before, after);
        let times = grown("homa_protocol_stalls_total", before, after);
        Self { times, seconds, share: seconds / watched(before, after) }
    }

    /// How long, on average, the slowest requests waited in the socket until the process ran again,
    /// seconds. No engine measures this. It is inferred: requests arrive at any time, so those that
    /// arrive during a stall wait for half of it on average, and they are the slowest.
    ///
    /// Example: stalls of 0.1 s. If they take 1 % of the time, a fifth of the slowest 5 % waited,
    /// for 50 ms each: 10 ms on average. If they take half of the time, the slowest 5 % arrived in
    /// the first tenth of a stall: 95 ms.
    pub fn unseen(&self) -> f64 {
        let mean = self.seconds / self.times.max(1.0);
        match self.share < SLOW {
            true => mean / 2.0 * self.share / SLOW,
            false => mean * (1.0 - SLOW / self.share / 2.0),
        }
    }
}
