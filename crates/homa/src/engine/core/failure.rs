//! The end of an engine before it is dropped: it failed, or handed its place over.
//!
//! It failed if its descriptors cannot be used any more, because the application closed them by
//! mistake. All calls end, and the engine does not use the descriptors again: their numbers may
//! already belong to files of the application, so they are not closed either.
//!
//! An engine that handed its place over neither receives nor sends, because the next engine at the
//! socket does.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use homa_proto::{Executions, RpcError};

use super::Core;
use super::turn::Arrivals;
use crate::driver::Driver;
use crate::error::CallError;

/// Why an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineEnd {
    /// The system refuses its descriptors for good: the error number.
    Failed(i32),
    /// Another engine has its place.
    HandedOver,
}

impl EngineEnd {
    /// What a new call fails with.
    pub fn error(self) -> CallError {
        match self {
            Self::Failed(errno) => CallError::EngineFailed { errno },
            Self::HandedOver => CallError::ShuttingDown,
        }
    }
}

/// The driver of an engine.
pub struct OwnedDriver(Option<Box<dyn Driver>>);

impl OwnedDriver {
    /// Owns a driver.
    pub fn new(driver: Box<dyn Driver>) -> Self {
        Self(Some(driver))
    }

    /// Leaves the driver's descriptors open for good. It cannot be used afterwards.
    fn leak(&mut self) {
        mem::forget(self.0.take());
    }
}

impl Deref for OwnedDriver {
    type Target = dyn Driver;
    fn deref(&self) -> &Self::Target {
        self.0.as_deref().expect("there until the engine is dropped")
    }
}

impl DerefMut for OwnedDriver {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_deref_mut().expect("there until the engine is dropped")
    }
}

impl Core {
    /// Ends the engine: every call fails, and every request of others is cancelled.
    pub fn fail(&mut self, errno: i32) {
        // The first reason is the one that counts.
        if self.ended.is_some() {
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno);
        tracing::error!(%error, "the engine has ended");
        self.end(EngineEnd::Failed(errno), RpcError::EndpointFailed { errno });
    }

    /// Ends the engine for another one, which takes over which requests were executed. Calls in
    /// progress fail as [`CallError::Indeterminate`]. Also returns the time on the machine's clock.
    pub fn hand_over(&mut self) -> (Executions, Duration) {
        // Servers then forget the calls that are done, because the next engine knows none of them.
        self.flush_acks();
        self.transmit();
        let now = self.tick();
        let executions = self.state.endpoint.executions(now);
        self.end(EngineEnd::HandedOver, RpcError::Indeterminate);
        (executions, self.clock.uptime_at(now))
    }

    fn end(&mut self, end: EngineEnd, error: RpcError) {
        self.tick();
        self.ended = Some(end);
        // The rest of the last batch is in buffers of the driver, which is not used any more.
        self.arrivals = Arrivals::default();
        self.state.endpoint.fail_all(error);
        self.state.drain_events();
    }

    /// Why the engine ended, if it did.
    pub fn ended(&self) -> Option<EngineEnd> {
        self.ended
    }

    /// Whether a ticket will come; none does after the end.
    pub fn awaits_ticket(&self) -> bool {
        self.ended.is_none() && self.driver.awaits_ticket()
    }

    /// Ends an engine that failed before.
    pub(super) fn leak_descriptors(&mut self) {
        self.driver.leak();
    }
}
