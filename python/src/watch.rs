//! Python's signals and progress callbacks while a simulation runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use homa_lab::error::LabError;
use pyo3::prelude::*;

use crate::errors::raised;

/// Stops the work when Ctrl-C was pressed, or the callback raised.
pub struct Watch {
    callback: Option<Py<PyAny>>,
    stop: Arc<AtomicBool>,
    failed: Option<PyErr>,
}

impl Watch {
    /// The callback takes the share done, 0 to 1, and the current step.
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, stop: Arc::default(), failed: None }
    }

    /// The flag that stops the work.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// The work went on.
    pub fn tell(&mut self, done: f64, what: &str) {
        if self.failed.is_some() {
            return;
        }
        let told = Python::attach(|py| {
            py.check_signals()?;
            match &self.callback {
                Some(callback) => callback.call1(py, (done, what)).map(drop),
                None => Ok(()),
            }
        });
        if let Err(failure) = told {
            self.failed = Some(failure);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The end of the work, as Python sees it.
    pub fn end<T>(self, py: Python<'_>, result: Result<T, LabError>) -> PyResult<T> {
        match (self.failed, result) {
            (Some(failure), _) => Err(failure),
            (None, result) => result.map_err(|error| raised(py, error)),
        }
    }
}
