//! Load shedding: which requests a server refuses because it could not answer them in time.
//!
//! If more is asked than a server can do, requests wait until their deadlines are near, and then
//! its work is wasted: the clients of most answers have given up. So requests that would not be
//! answered in time are refused before they are begun. The first to go are those that waited and
//! whose deadline is now too near (when the application takes the next request), and then the
//! newest (when they arrive). Requests without a deadline are never refused.
//!
//! That alone is not enough if the overload lasts. The queue then is always as long as deadlines
//! permit, so that every answer is just in time by the server's measure, and too late for a client
//! that also waited for its own machine and the network. So once requests of a host have waited
//! for as long as one may take, those that wait for more than a twentieth of their time are
//! refused: 5 of 100 ms (the controlled delay of Maurer, "Fail at Scale", ACM Queue 13(8), 2015,
//! after CoDel). They may wait for two turns of their host in any case, because a server that does
//! long work for few clients always has a request waiting. A burst that is over within the time of
//! its requests loses none by this rule, and hosts whose queue was empty are not affected.
//!
//! The expectation is measured: the time between two requests that the application takes while
//! others wait, which is what each request in front of another costs, however many threads or tasks
//! there are; and the time from there to the answer. A server that takes requests as fast as they
//! arrive has no queue, and nothing is refused: limit it with [`Server::concurrency`].
//!
//! [`Server::concurrency`]: crate::Server::concurrency

use homa_proto::{Duration, Time};

use super::queue::RequestBacklog;

/// Measurements before anything is refused.
const SAMPLES_MIN: u8 = 4;
/// Weight of a measurement: one part in this many.
const WEIGHT: u64 = 8;
/// Behind a standing queue, a request waits for at most one part in this many of its time.
const SOON: u64 = 20;
/// It may wait for this many turns of its host in any case.
const TURNS: u64 = 2;
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
                    // One long pause of the application is not its pace.
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
        // The first answer is the average so far.
        self.service = match self.service {
            Duration::ZERO => after,
            before => average(before, after),
        };
    }

    /// True if a request that arrives behind others will probably be answered by `until`: in three
    /// quarters of the time that it has, because the measurements are averages. Behind a standing
    /// queue, true if it will probably be begun soon.
    pub fn admits(&mut self, now: Time, until: Time, backlog: &RequestBacklog) -> bool {
        if backlog.ahead == 0 {
            // The next time between two requests would be that of the pause.
            self.last = None;
            return true;
        }
        // A request without a deadline is never too late, and few samples show no pace.
        if until == Time::MAX || self.samples < SAMPLES_MIN {
            return true;
        }
        let wait = self.pace.0.saturating_mul(backlog.ahead as u64);
        let time = until.since(now);
        // Behind a queue that does not end, requests have to be begun soon (CoDel).
        match stands(now, time, backlog) {
            true => wait <= self.soon(time, backlog.hosts),
            false => wait.saturating_add(self.service.0) <= time.0 / 4 * 3,
        }
    }

    /// True if a request that arrived at `arrived` and is begun now, with `left` others waiting,
    /// will probably be answered by `until`. In a standing queue it also must not have waited for
    /// long.
    pub fn begins(
        &self,
        now: Time,
        left: usize,
        (arrived, until): (Time, Time),
        backlog: &RequestBacklog,
    ) -> bool {
        // The only request that waits is always begun: nothing better could be done.
        if left == 0 || until == Time::MAX || self.samples < SAMPLES_MIN {
            return true;
        }
        let (waited, time) = (now.since(arrived), until.since(arrived));
        let late = stands(now, time, backlog) && waited.0 > self.soon(time, backlog.hosts);
        !late && self.service <= until.since(now)
    }

    /// How long a host's queue may be empty and still stand: refusals empty it, too.
    pub fn pause(&self) -> Duration {
        Duration(self.pace.0.saturating_mul(TURNS))
    }

    /// How long a request that may take `time` waits behind a standing queue, ns.
    fn soon(&self, time: Duration, hosts: usize) -> u64 {
        // Two turns of its host in any case: long work for few clients always has a request
        // waiting.
        let turns = self.pace.0.saturating_mul(TURNS).saturating_mul(hosts as u64);
        turns.max(time.0 / SOON)
    }
}

/// True if requests of the host have waited for as long as this one may take.
fn stands(now: Time, time: Duration, backlog: &RequestBacklog) -> bool {
    backlog.since.is_some_and(|since| now.since(since) >= time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fairness::queue::FairQueue;

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

    /// Behind `ahead` requests, if no other request of its host waits.
    fn behind(ahead: usize) -> RequestBacklog {
        RequestBacklog { ahead, hosts: 1, since: None }
    }

    #[test]
    fn requests_are_taken_as_far_as_they_are_answered_in_time() {
        let (mut shedder, now) = busy(5);
        let admitted =
            (0..100).filter(|&ahead| shedder.admits(now, now + MS(200), &behind(ahead))).count();
        assert!((28..=32).contains(&admitted), "{admitted} in three quarters of 200 ms");
        assert!(shedder.admits(now, Time::MAX, &behind(1_000_000)), "no deadline");
        let begins = |left, ms| shedder.begins(now, left, (now, now + MS(ms)), &behind(0));
        assert!(begins(3, 6) && !begins(3, 3));
        assert!(begins(0, 1), "the application has nothing else to do");
    }

    #[test]
    fn a_pause_or_an_unloaded_server_refuses_nothing() {
        let mut fresh = Shedder::default();
        assert!(fresh.admits(Time(1), Time(2), &behind(1_000)), "nothing was measured");
        // It takes requests at once, and its first request takes long.
        fresh.answered(Duration::secs(5));
        for n in 0..100 {
            fresh.taken(Time(0) + MS(n), 0);
        }
        assert!(fresh.admits(Time(0) + MS(100), Time(0) + MS(101), &behind(10)));
        let (mut shedder, now) = busy(1);
        shedder.taken(now + Duration::secs(10), 100);
        assert!(shedder.admits(now, now + Duration::secs(1), &behind(200)), "one pause of 10 s");
    }

    #[test]
    fn after_an_overload_the_measurements_fade() {
        let (mut shedder, mut now) = busy(100);
        assert!(!shedder.admits(now, now + MS(1_000), &behind(10)));
        for _ in 0..40 {
            now += MS(1);
            shedder.taken(now, 0);
            shedder.answered(MS(1));
        }
        assert!(shedder.admits(now, now + MS(1_000), &behind(10)));
    }

    /// A server that takes a request every 5 ms, and hosts with the time between their requests and
    /// the time that each may take, ms (`None`: no deadline).
    struct OverloadedServer {
        queue: FairQueue<(u8, Time)>,
        shedder: Shedder,
        hosts: Vec<(u64, Option<u64>)>,
    }

    impl OverloadedServer {
        fn new(hosts: &[(u64, Option<u64>)]) -> Self {
            let (queue, shedder) = (FairQueue::default(), Shedder::default());
            Self { queue, shedder, hosts: hosts.to_vec() }
        }

        fn arrive(&mut self, now: Time) {
            for (host, (every, time)) in (0..).zip(self.hosts.clone()) {
                if !(now.0 / MS(1).0).is_multiple_of(every) {
                    continue;
                }
                let from = ([10, 0, 0, host], 1).into();
                let until = time.map_or(Time::MAX, |time| now + MS(time));
                let backlog = self.queue.before(from);
                if !self.shedder.admits(now, until, &backlog) {
                    continue;
                }
                self.queue.push(now, from, (host, until), self.shedder.pause());
            }
        }

        /// The host of the request that is begun, and how long it waited.
        fn begin(&mut self, now: Time) -> Option<(u8, Duration)> {
            loop {
                let (arrived, backlog) = self.queue.before_first()?;
                let (host, until) = self.queue.pop(now)?;
                let left = self.queue.len();
                if until > now && self.shedder.begins(now, left, (arrived, until), &backlog) {
                    self.shedder.taken(now, left);
                    return Some((host, now.since(arrived)));
                }
            }
        }

        /// Runs for a second; what was begun in its second half.
        fn run(mut self) -> Vec<(u8, Duration)> {
            let mut begun = Vec::new();
            for ms in 1..1_000 {
                let now = Time(0) + MS(ms);
                self.arrive(now);
                if ms % 5 == 0 {
                    self.shedder.answered(MS(5));
                    begun.extend(self.begin(now).filter(|_| ms > 500));
                }
            }
            begun
        }
    }

    #[test]
    fn in_a_lasting_overload_requests_are_begun_soon_or_refused() {
        let begun = OverloadedServer::new(&[(3, Some(200))]).run();
        assert!(begun.len() >= 99, "the server never pauses: {}", begun.len());
        let most = begun.iter().map(|&(_, waited)| waited).max().unwrap();
        assert!(most <= MS(15), "{most:?} of 200 ms: a twentieth, and until the next is taken");
    }

    #[test]
    fn a_standing_queue_of_one_host_leaves_the_others_alone() {
        // The first host asks for all of the server, and waits for ever.
        for greedy in [None, Some(10_000)] {
            let begun = OverloadedServer::new(&[(5, greedy), (40, Some(100))]).run();
            let served = begun.iter().filter(|&&(host, _)| host == 1).count();
            assert!(served >= 12, "{served} of 12 requests of the second host, {greedy:?}");
        }
    }

    #[test]
    fn long_work_for_few_clients_is_not_refused() {
        // Two requests of a host are always there, which take a tenth of their time.
        let (mut shedder, now) = busy(10);
        let standing = RequestBacklog { ahead: 2, hosts: 1, since: Some(Time(1)) };
        assert!(shedder.admits(now, now + MS(100), &standing));
        let arrived = Time(now.0 - MS(20).0);
        assert!(shedder.begins(now, 1, (arrived, arrived + MS(100)), &standing));
        assert!(!shedder.admits(now, now + MS(100), &RequestBacklog { ahead: 3, ..standing }));
    }
}
