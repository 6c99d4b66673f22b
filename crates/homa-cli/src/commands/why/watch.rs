//! Endpoints over the time of a report. Scrapes in between notice that a process was replaced.
//!
//! Invariants: the two scrapes of a window are of one process, and both endpoints are compared over
//! the same time. An endpoint that does not answer for a while, as during a restart, ends nothing.
//! If the engine's does not answer at the end, that is an error; if the server's does not, the
//! report is without it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::commands::scrape::Scrape;
use crate::failure::Failure;

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an endpoint may be silent at the end.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between tries at the end.
const RETRY: Duration = Duration::from_millis(100);
/// The server's part is left out if it is known for less than this share of the time.
const COMMON: f64 = 0.25;

/// The scrapes at the ends of a time.
pub type Window<'a> = (&'a Scrape, &'a Scrape);

fn length(window: Window<'_>) -> Duration {
    window.1.taken.duration_since(window.0.taken)
}

/// An endpoint that is watched.
#[derive(Debug)]
struct Watch {
    endpoint: SocketAddr,
    began: Instant,
    /// The first scrape of the present process, the one nearest the moment since which the present
    /// processes of both endpoints have run, and the last one.
    first: Arc<Scrape>,
    common: Arc<Scrape>,
    last: Arc<Scrape>,
    /// Processes that were replaced.
    restarts: u32,
}

impl Watch {
    fn begin(endpoint: SocketAddr) -> Result<Self, Failure> {
        Scrape::of_engine(endpoint).map(|first| Self::new(endpoint, first))
    }

    fn new(endpoint: SocketAddr, first: Scrape) -> Self {
        let (began, first) = (first.taken, Arc::new(first));
        let (common, last) = (Arc::clone(&first), Arc::clone(&first));
        Self { endpoint, began, first, common, last, restarts: 0 }
    }

    /// Takes another scrape. True if it is of another process.
    fn see(&mut self, scrape: Scrape) -> bool {
        let replaced = scrape.is_another_engine_than(&self.last);
        self.last = Arc::new(scrape);
        if replaced {
            self.restarts += 1;
            self.first = Arc::clone(&self.last);
            self.common = Arc::clone(&self.last);
        }
        replaced
    }

    /// The process of the other endpoint was replaced.
    fn other_replaced(&mut self) {
        self.common = Arc::clone(&self.last);
    }

    fn look(&mut self) -> io::Result<bool> {
        Scrape::fetch(self.endpoint).map(|scrape| self.see(scrape))
    }

    /// The last look, for which the endpoint may be late.
    fn finish(&mut self) -> io::Result<()> {
        let until = Instant::now() + GRACE;
        while let Err(error) = self.look() {
            if Instant::now() >= until {
                return Err(error);
            }
            thread::sleep(RETRY);
        }
        Ok(())
    }

    fn silent(&self, now: Instant) -> u64 {
        now.duration_since(self.last.taken).as_secs()
    }

    fn failure(&self, error: io::Error) -> Failure {
        let silent = self.silent(Instant::now());
        let what = format!("no answer of {} for {silent} s", self.endpoint);
        let hint = "is the process running? Run this again when it is: what it counted before it \
                    ended is lost";
        Failure::new(anyhow::Error::from(error).context(what), hint)
    }

    fn own(&self) -> Window<'_> {
        (&self.first, &self.last)
    }

    fn common(&self) -> Window<'_> {
        (&self.common, &self.last)
    }

    /// How often it was restarted, and when; `None` if it was not.
    fn restarted(&self) -> Option<String> {
        let into = self.first.taken.duration_since(self.began).as_secs_f64();
        let restarts = match self.restarts {
            0 => return None,
            1 => "was restarted".to_owned(),
            more => format!("was restarted {more} times"),
        };
        Some(format!("at {} {restarts}, at the latest {into:.0} s after this began", self.endpoint))
    }
}

/// The engine's endpoint, and that of the server that it calls.
#[derive(Debug)]
pub struct Watches {
    engine: Watch,
    server: Option<Watch>,
    /// The server did not answer at the end for that many seconds.
    unanswered: Option<u64>,
}

impl Watches {
    /// Begins with a scrape of each.
    pub fn begin(engine: SocketAddr, server: Option<SocketAddr>) -> Result<Self, Failure> {
        let engine = Watch::begin(engine)?;
        Ok(Self { engine, server: server.map(Watch::begin).transpose()?, unanswered: None })
    }

    /// Watches for a time.
    pub fn watch(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(PAUSE));
            if left <= PAUSE {
                break;
            }
            // Silence is fine until the end, and is noticed there.
            let (engine, server) = self.each(Watch::look);
            let replaced = |look: io::Result<bool>| look.is_ok_and(|replaced| replaced);
            self.seen(replaced(engine), server.is_some_and(replaced));
        }
        let (engine, server) = self.each(Watch::finish);
        if let (Some(Err(_)), Some(server)) = (server, &self.server) {
            self.unanswered = Some(server.silent(Instant::now()));
        }
        engine.map_err(|error| self.engine.failure(error))
    }

    /// Looks at both at once, so that one that is silent does not delay the other.
    fn each<T: Send>(&mut self, look: fn(&mut Watch) -> T) -> (T, Option<T>) {
        let Self { engine, server, .. } = self;
        thread::scope(|scope| {
            let other = server.as_mut().map(|server| scope.spawn(|| look(server)));
            let engine = look(engine);
            let joined = other.map(|other| other.join());
            (
                engine,
                joined.map(|server| server.unwrap_or_else(|bug| std::panic::resume_unwind(bug))),
            )
        })
    }

    /// Notes which processes were replaced at the last look.
    fn seen(&mut self, engine: bool, server: bool) {
        if server && !engine {
            self.engine.other_replaced();
        }
        if let Some(other) = self.server.as_mut().filter(|_| engine && !server) {
            other.other_replaced();
        }
    }

    /// The server's window, if it tells enough.
    fn of_server(&self) -> Option<Window<'_>> {
        let server = self.server.as_ref().filter(|_| self.unanswered.is_none())?;
        let enough = length(self.engine.own()).as_secs_f64() * COMMON;
        let common = length(server.common()).min(length(self.engine.common()));
        (!common.is_zero() && common.as_secs_f64() >= enough).then(|| server.common())
    }

    /// What the report is about: a window of the engine, and one of the server over the same time.
    pub fn windows(&self) -> (Window<'_>, Option<Window<'_>>) {
        let server = self.of_server();
        (if server.is_some() { self.engine.common() } else { self.engine.own() }, server)
    }

    /// Processes that were replaced.
    pub fn restarts(&self) -> u32 {
        self.engine.restarts + self.server.as_ref().map_or(0, |server| server.restarts)
    }

    /// What a reader must know about restarts and silence.
    pub fn notes(&self) -> Vec<String> {
        let since = length(self.windows().0).as_secs_f64();
        let since = format!("counts anew: this is about the {since:.0} s since.");
        let engine = self.engine.restarted();
        let engine = engine.map(|restarted| format!("The process {restarted}, and {since}"));
        let server = self.server.as_ref().and_then(|server| {
            if let Some(silent) = self.unanswered {
                let at = server.endpoint;
                return Some(format!(
                    "The server at {at} did not answer for {silent} s: this is without its part."
                ));
            }
            let restarted = server.restarted();
            let without =
                "counts anew: what it counted since is too little, so this is without it.";
            let rest = if self.of_server().is_some() { &since } else { without };
            restarted.map(|restarted| format!("The server's process {restarted}, and {rest}"))
        });
        engine.into_iter().chain(server).collect()
    }
}

#[cfg(test)]
mod tests;
