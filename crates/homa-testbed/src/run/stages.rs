//! The stages all hosts of a run walk through together.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::sys;

/// A point every host passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its sockets are open.
    Listening,
    /// It has connected to the others.
    Connected,
    /// It has warmed its paths.
    Warm,
    /// Idle times are measured and the start is set.
    Idle,
    /// Its own RPCs have ended.
    Loaded,
    /// It will not look at its sockets again, so that others may close theirs.
    Through,
}

/// Counts hosts by stage, and keeps the common start.
pub(crate) struct Stages {
    hosts: usize,
    passed: [AtomicUsize; 6],
    start_ns: AtomicU64,
    abandoned: AtomicBool,
}

impl Stages {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            hosts,
            passed: Default::default(),
            start_ns: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    /// A host has passed a stage.
    pub(crate) fn arrive(&self, stage: Stage) {
        self.passed[stage as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// An error when another host has failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "another host failed"));
        }
        Ok(())
    }

    /// True when every host has passed the stage; an error when one has failed.
    pub(crate) fn complete(&self, stage: Stage) -> io::Result<bool> {
        self.check()?;
        Ok(self.passed[stage as usize].load(Ordering::SeqCst) >= self.hosts)
    }

    /// Waits, without serving anyone, until every host has passed the stage.
    pub(crate) fn wait(&self, stage: Stage) -> io::Result<()> {
        while !self.complete(stage)? {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Tells the others that a host failed.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// Sets the start of the load, to be called before the stage `Idle` is complete.
    pub(crate) fn start_in(&self, delay: Duration) {
        let start = sys::monotonic_ns() + delay.as_nanos() as u64;
        self.start_ns.store(start, Ordering::SeqCst);
    }

    /// The start of the load, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::SeqCst)
    }

    /// Seconds since the start of the load.
    pub(crate) fn seconds_since_start(&self) -> f64 {
        sys::monotonic_ns().saturating_sub(self.start_ns()) as f64 / 1e9
    }
}
