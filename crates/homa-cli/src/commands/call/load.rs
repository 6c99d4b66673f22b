//! Many calls from one thread: one after the other, several at a time, or at a given rate
//! independent of the server.
//!
//! With a rate, calls are due at the times of a Poisson process, and latency counts from there, so
//! that a stall of the server shows in all calls that were due meanwhile. Without a rate, a call
//! that fails is followed by a pause, which doubles with each further failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine, Wait};
use homa::{CallError, CallOptions};
use homa_workload::rng::Rng;

use super::pace::Pace;
use super::summary::Ended;
use crate::commands::work::Work;
use crate::failure::{Failure, Hint};
use crate::values::Sizes;

/// Longest sleep: how late Ctrl-C is noticed.
const NAP: Duration = Duration::from_millis(50);

/// The pause after a failure that follows an answer, and the longest one.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// The load on the server.
pub struct Load<'a> {
    /// The server's address.
    pub server: SocketAddr,
    /// Bytes of the requests.
    pub sizes: &'a Sizes,
    /// The text of all requests instead of a number of bytes.
    pub text: Option<&'a [u8]>,
    /// How each call is made.
    pub options: CallOptions,
    /// Calls due per second; absent: as soon as there is room.
    pub rate: Option<f64>,
    /// Most calls in progress.
    pub concurrency: usize,
    /// Calls to make, at most.
    pub count: u64,
    /// No call begins later.
    pub duration: Option<Duration>,
}

/// The results of a load.
pub struct Loaded {
    /// The calls that ended.
    pub ended: Ended,
    /// From the start to the end of the last one.
    pub took: Duration,
    /// When calls were due and ended; `None` without a rate.
    pub pace: Option<Pace>,
    /// The last failure.
    pub error: Option<CallError>,
}

/// A call in progress.
#[derive(Clone, Copy)]
struct Started {
    due: Instant,
    bytes: usize,
}

impl Load<'_> {
    /// Makes the calls; Ctrl-C ends it, and what ended until then is reported.
    pub fn run(&self, engine: &mut Engine) -> Result<Loaded, Failure> {
        let stopped = on_the_end();
        let mut running = Running::new(self);
        while !running.is_through() && !stopped.load(Ordering::Relaxed) {
            running.start_due(engine);
            let wait = running.until_due().min(NAP);
            engine.poll(Wait::For(wait)).hint("the socket failed: run it again")?;
            running.collect(engine);
            running.show();
        }
        running.work.finish();
        let took = running.began.elapsed();
        let Running { ended, pace, error, .. } = running;
        Ok(Loaded { ended, took, pace, error })
    }
}

/// True once the user or the system asks to end.
fn on_the_end() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&stopped);
    // It ends with the process. Without signal handlers, Ctrl-C ends that at once.
    thread::spawn(move || {
        if crate::commands::wait_for_the_end(None, || ()).is_ok() {
            tell.store(true, Ordering::Relaxed);
        }
    });
    stopped
}

struct Running<'a> {
    load: &'a Load<'a>,
    payload: Vec<u8>,
    rng: Rng,
    began: Instant,
    /// When the next call begins, if there is room.
    due: Instant,
    pause: Duration,
    begun: u64,
    in_progress: Vec<Option<Started>>,
    free: Vec<usize>,
    ended: Ended,
    /// Only with a rate.
    pace: Option<Pace>,
    error: Option<CallError>,
    work: Work,
}

impl<'a> Running<'a> {
    fn new(load: &'a Load<'a>) -> Self {
        let now = Instant::now();
        let payload = load.text.map_or_else(|| vec![7; load.sizes.largest() as usize], Vec::from);
        Self {
            load,
            payload,
            rng: Rng::stream(1, "calls"),
            began: now,
            due: now,
            pause: PAUSE[0],
            begun: 0,
            in_progress: Vec::new(),
            free: Vec::new(),
            ended: Ended::default(),
            pace: load.rate.map(|_| Pace::default()),
            error: None,
            work: Work::new(),
        }
    }

    fn outstanding(&self) -> usize {
        self.in_progress.len() - self.free.len()
    }

    /// No call is to begin any more.
    fn is_over(&self) -> bool {
        let late = self.load.duration.is_some_and(|duration| self.began.elapsed() >= duration);
        late || self.begun >= self.load.count
    }

    fn is_through(&self) -> bool {
        self.is_over() && self.outstanding() == 0
    }

    fn until_due(&self) -> Duration {
        if self.is_over() || self.outstanding() >= self.load.concurrency {
            return NAP;
        }
        self.due.saturating_duration_since(Instant::now())
    }

    fn start_due(&mut self, engine: &mut Engine) {
        while !self.is_over()
            && self.outstanding() < self.load.concurrency
            && Instant::now() >= self.due
        {
            let due = match self.load.rate {
                None => Instant::now(),
                Some(rate) => {
                    let due = self.due;
                    self.due += Duration::from_secs_f64(self.rng.exponential(1.0 / rate));
                    due
                }
            };
            let bytes = match self.load.text {
                Some(text) => text.len(),
                None => self.load.sizes.sample(&mut self.rng) as usize,
            };
            self.begun += 1;
            if let Some(pace) = &mut self.pace {
                pace.due(due.saturating_duration_since(self.began));
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.in_progress.push(None);
                self.in_progress.len() - 1
            });
            let request = &self.payload[..bytes];
            let (server, options) = (self.load.server, &self.load.options);
            match engine.call(server, request, slot as u64, options) {
                Ok(_) => self.in_progress[slot] = Some(Started { due, bytes }),
                Err(error) => {
                    self.free.push(slot);
                    self.failed(bytes, error);
                }
            }
        }
    }

    fn collect(&mut self, engine: &mut Engine) {
        while let Some(completion) = engine.next() {
            let Completion::Response { cookie, result, .. } = completion else { continue };
            let slot = cookie as usize;
            let Some(Started { due, bytes }) = self.in_progress[slot].take() else { continue };
            self.free.push(slot);
            match result {
                Ok(_) => {
                    self.pause = PAUSE[0];
                    self.ended_now();
                    self.ended.answered(bytes, due.elapsed());
                }
                Err(error) => self.failed(bytes, error),
            }
        }
    }

    fn ended_now(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.ended(self.began.elapsed());
        }
    }

    fn failed(&mut self, bytes: usize, error: CallError) {
        self.ended_now();
        self.ended.failed(bytes, &error);
        self.error = Some(error);
        if self.load.rate.is_none() {
            let now = Instant::now();
            // Several calls that fail together are one reason to wait.
            if self.due <= now {
                self.due = now + self.pause;
                self.pause = (2 * self.pause).min(PAUSE[1]);
            }
        }
    }

    fn show(&mut self) {
        let by_count = self.ended.calls() as f64 / self.load.count as f64;
        let by_time = self
            .load
            .duration
            .map_or(0.0, |duration| self.began.elapsed().as_secs_f64() / duration.as_secs_f64());
        let (calls, failures) = (self.ended.calls(), self.ended.failures());
        let what = || format!("{calls} calls, {failures} without an answer");
        self.work.show_with(by_count.max(by_time).min(1.0), what);
    }
}
