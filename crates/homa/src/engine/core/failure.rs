//! The end of an engine whose descriptors cannot be used any more, because the application closed
//! them by mistake. All calls end, and the engine does not use the descriptors again: their numbers
//! may already belong to files of the application, so they are not closed either.

use std::mem;
use std::ops::{Deref, DerefMut};

use homa_proto::RpcError;

use super::Core;
use super::turn::Arrivals;
use crate::driver::Driver;

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
        if self.failed.is_some() {
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno);
        tracing::error!(%error, "the engine has ended");
        self.tick();
        self.failed = Some(errno);
        self.arrivals = Arrivals::default();
        self.state.endpoint.fail_all(RpcError::EndpointFailed { errno });
        self.state.drain_events();
    }

    /// The error number with which the engine ended, if it did.
    pub fn failed(&self) -> Option<i32> {
        self.failed
    }

    /// Ends an engine that failed before.
    pub(super) fn leak_descriptors(&mut self) {
        self.driver.leak();
    }
}
