//! Endpoints over the time of a report. Scrapes in between notice that a process was replaced.
//!
//! Invariant: the two scrapes of a report are of one process. An endpoint that does not answer for
//! a while, as during a restart, ends nothing; one that does not answer at the end does.

use std::io;
use std::net::SocketAddr;
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

/// An endpoint that is watched.
pub struct Watch {
    endpoint: SocketAddr,
    began: Instant,
    /// The first scrape of the present process.
    first: Scrape,
    /// The last one; `None` if that is the first.
    last: Option<Scrape>,
    /// Processes that were replaced.
    pub restarts: u32,
}

impl Watch {
    /// Begins with a scrape.
    pub fn begin(endpoint: SocketAddr) -> Result<Self, Failure> {
        Scrape::of_engine(endpoint).map(|first| Self::new(endpoint, first))
    }

    fn new(endpoint: SocketAddr, first: Scrape) -> Self {
        Self { endpoint, began: first.taken, first, last: None, restarts: 0 }
    }

    /// The scrapes between which the present process was watched.
    pub fn scrapes(&self) -> (&Scrape, &Scrape) {
        (&self.first, self.last.as_ref().unwrap_or(&self.first))
    }

    /// Takes another scrape.
    fn see(&mut self, scrape: Scrape) {
        match scrape.is_another_engine_than(self.scrapes().1) {
            true => {
                self.restarts += 1;
                (self.first, self.last) = (scrape, None);
            }
            false => self.last = Some(scrape),
        }
    }

    fn look(&mut self) -> io::Result<()> {
        Scrape::fetch(self.endpoint).map(|scrape| self.see(scrape))
    }

    /// The last look, for which the endpoint may be late.
    fn finish(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + GRACE;
        while let Err(error) = self.look() {
            if Instant::now() >= until {
                let silent = self.scrapes().1.taken.elapsed().as_secs();
                let error = anyhow::Error::from(error);
                let what = format!("no answer of {} for {silent} s", self.endpoint);
                let hint = "is the process running? Run this again when it is: what it counted \
                            before it ended is lost";
                return Err(Failure::new(error.context(what), hint));
            }
            thread::sleep(RETRY);
        }
        Ok(())
    }

    /// What a reader must know about restarts.
    pub fn note(&self) -> Option<String> {
        let (first, last) = self.scrapes();
        let into = first.taken.duration_since(self.began).as_secs_f64();
        let since = last.taken.duration_since(first.taken).as_secs_f64();
        let restarts = match self.restarts {
            0 => return None,
            1 => "was restarted".to_owned(),
            more => format!("was restarted {more} times"),
        };
        Some(format!(
            "The process at {} {restarts}, at the latest {into:.0} s after this began, and counts \
             anew: this is about the {since:.0} s since.",
            self.endpoint
        ))
    }
}

/// Watches endpoints for a time.
pub fn watch(all: &mut [Watch], time: Duration) -> Result<(), Failure> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        thread::sleep(left.min(PAUSE));
        if left <= PAUSE {
            return all.iter_mut().try_for_each(Watch::finish);
        }
        for watch in all.iter_mut() {
            // Silence is fine until the end, and is noticed there.
            let _ = watch.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(opened: u32, calls: u32, seconds: u64) -> Scrape {
        let mut page = Scrape::parse(&format!(
            "homa_engine_opened_timestamp_seconds {opened}\n\
             homa_protocol_requests_sent_total {calls}\n"
        ));
        page.taken += Duration::from_secs(seconds);
        page
    }

    #[test]
    fn both_scrapes_are_of_the_process_that_is_there_at_the_end() {
        let at = SocketAddr::from(([127, 0, 0, 1], 9464));
        let mut watch = Watch::new(at, page(1, 10, 0));
        watch.see(page(1, 20, 10));
        assert_eq!((watch.restarts, watch.note()), (0, None));
        let sent = |watch: &Watch| {
            let (first, last) = watch.scrapes();
            [first, last].map(|page| page.value("homa_protocol_requests_sent_total"))
        };
        assert_eq!(sent(&watch), [10.0, 20.0]);
        // It grew past the old one's count before it was seen.
        watch.see(page(2, 30, 12));
        assert_eq!(sent(&watch), [30.0, 30.0]);
        watch.see(page(2, 34, 30));
        assert_eq!((watch.restarts, sent(&watch)), (1, [30.0, 34.0]));
        let note = watch.note().expect("a note");
        assert!(note.contains("127.0.0.1:9464 was restarted, at the latest 12 s after"), "{note}");
        assert!(note.ends_with("about the 18 s since."), "{note}");
        watch.see(page(3, 1, 31));
        assert!(watch.note().is_some_and(|note| note.contains("restarted 2 times")));
    }
}
