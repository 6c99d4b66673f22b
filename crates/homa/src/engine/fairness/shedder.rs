//! Load shedding: which requests a server refuses because it could not answer them in time.
//!
//! If more is asked than a server can do, requests wait until their deadlines are near, and then
//! its work is wasted: the clients of most answers have given up. So requests that would not be
//! answered in time are refused before they are begun. The first to go are those that waited and
//! whose deadline is now too near (when the application takes the next request), and then the
//! newest (when they arrive). Requests without a deadline are never refused.
//!
//! The expectation is measured: the time between two requests that the application takes while
//! others wait, which is what each request in front of another costs, however many threads or tasks
//! there are; and the time from there to the answer. A server that takes requests as fast as they
//! arrive has no queue, and nothing is refused: limit it with [`Server::concurrency`].
//!
//! [`Server::concurrency`]: crate::Server::concurrency

use homa_proto::{Duration, Time};

/// Measurements before anything is refused.
const SAMPLES_MIN: u8 = 4;
/// Weight of a measurement: one part in this many.
const WEIGHT: u64 = 8;
/// A single pause of the application changes little: a sample counts at most twice the average and
/// this.
const SLACK: Duration = Duration::millis(1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Shedder {
    /// Usual time between two requests that are taken while others wait.
    pace: Duration,
    samples: u8,
    /// When a request was last taken, if others waited then.
    last: Option<Time>,
    /// Usual time from taking a request to its answer.
    service: Duration,
}

/// Moves an average towards a sample.
fn average(average: Duration, sample: Duration) -> Duration {
    Duration(average.0 - average.0 / WEIGHT + sample.0 / WEIGHT)
}

impl Shedder {
    /// The application took a request and left some waiting.
    pub fn taken(&mut self, now: Time, left: usize) {
        match self.last.take() {
            Some(last) => {
                let sample = now.since(last);
                self.pace = match self.samples {
                    0 => sample,
                    _ => average(self.pace, sample.min(self.pace + self.pace + SLACK)),
                };
                self.samples = self.samples.saturating_add(1);
            }
            // Nothing waited, so the application is faster than what was measured under load.
            None => self.pace = average(self.pace, Duration::ZERO),
        }
        self.last = (left > 0).then_some(now);
    }

    /// The application answered a request this long after it took it.
    pub fn answered(&mut self, after: Duration) {
        self.service = match self.service {
            Duration::ZERO => after,
            before => average(before, after),
        };
    }

    /// True if a request that arrives behind `ahead` others will probably be answered by `until`:
    /// in three quarters of the time that it has, because the measurements are averages.
    pub fn admits(&self, now: Time, ahead: usize, until: Time) -> bool {
        if ahead == 0 || until == Time::MAX || self.samples < SAMPLES_MIN {
            return true;
        }
        let wait = self.pace.0.saturating_mul(ahead as u64).saturating_add(self.service.0);
        wait <= until.since(now).0 / 4 * 3
    }

    /// True if a request that is begun now will probably be answered by `until`.
    pub fn begins(&self, now: Time, left: usize, until: Time) -> bool {
        left == 0
            || until == Time::MAX
            || self.samples < SAMPLES_MIN
            || self.service <= until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::millis;

    /// A shedder of an application that takes a request every `pace` ms, and answers it then.
    fn busy(pace: u64) -> (Shedder, Time) {
        let (mut shedder, mut now) = (Shedder::default(), Time(1));
        for _ in 0..50 {
            now += MS(pace);
            shedder.taken(now, 10);
            shedder.answered(MS(pace));
        }
        (shedder, now)
    }

    #[test]
    fn requests_are_taken_as_far_as_they_are_answered_in_time() {
        let (shedder, now) = busy(5);
        let admitted = (0..100).filter(|&ahead| shedder.admits(now, ahead, now + MS(200))).count();
        assert!((28..=32).contains(&admitted), "{admitted} in three quarters of 200 ms");
        assert!(shedder.admits(now, 1_000_000, Time::MAX), "no deadline");
        assert!(shedder.begins(now, 3, now + MS(6)) && !shedder.begins(now, 3, now + MS(3)));
        assert!(shedder.begins(now, 0, now + MS(1)), "the application has nothing else to do");
    }

    #[test]
    fn a_pause_or_an_unloaded_server_refuses_nothing() {
        let mut fresh = Shedder::default();
        assert!(fresh.admits(Time(1), 1_000, Time(2)), "nothing was measured");
        // It takes requests at once, and its first request takes long.
        fresh.answered(Duration::secs(5));
        for n in 0..100 {
            fresh.taken(Time(0) + MS(n), 0);
        }
        assert!(fresh.admits(Time(0) + MS(100), 10, Time(0) + MS(101)));
        let (mut shedder, now) = busy(1);
        shedder.taken(now + Duration::secs(10), 100);
        assert!(shedder.admits(now, 200, now + Duration::secs(1)), "one pause of 10 s");
    }

    #[test]
    fn after_an_overload_the_measurements_fade() {
        let (mut shedder, mut now) = busy(100);
        assert!(!shedder.admits(now, 10, now + MS(1_000)));
        for _ in 0..40 {
            now += MS(1);
            shedder.taken(now, 0);
            shedder.answered(MS(1));
        }
        assert!(shedder.admits(now, 10, now + MS(1_000)));
    }
}
