//! Messages that are written while they are sent, of declared length. Pushing never blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homa::error::WriteError;
use homa::{Call, CallWriter, ReplyWriter};
use pyo3::prelude::*;

use super::{buffer, errors};

fn lock<T>(writer: &Mutex<T>) -> MutexGuard<'_, T> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The request of a call.
#[pyclass(frozen, module = "homa.rpc")]
pub struct RequestWriter(Mutex<Option<CallWriter>>);

impl RequestWriter {
    /// Of a call that has begun.
    pub fn new(writer: CallWriter) -> Self {
        Self(Mutex::new(Some(writer)))
    }

    /// The call, once its request is whole or the call has ended.
    pub fn finish(&self, py: Python<'_>) -> PyResult<Call> {
        let writer = lock(&self.0).take().ok_or_else(|| errors::write(py, WriteError::Gone))?;
        writer.finish().map_err(|error| errors::write(py, error))
    }
}

#[pymethods]
impl RequestWriter {
    /// Bytes of the declared length that were not written.
    #[getter]
    fn left(&self) -> usize {
        lock(&self.0).as_ref().map_or(0, CallWriter::left)
    }

    /// Sends the next bytes.
    fn push(&self, py: Python<'_>, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = buffer::copied(piece)?;
        let pushed = lock(&self.0).as_mut().map_or(Err(WriteError::Gone), |to| to.push(&bytes));
        pushed.map_err(|error| errors::write(py, error))
    }

    /// Gives the call up, unless it was finished.
    fn abandon(&self) {
        let abandoned = lock(&self.0).take();
        drop(abandoned);
    }
}

/// The response to a request.
#[pyclass(frozen, module = "homa.rpc")]
pub struct ResponseWriter(Mutex<Option<ReplyWriter>>);

impl ResponseWriter {
    /// Of a response that has begun.
    pub fn new(writer: ReplyWriter) -> Self {
        Self(Mutex::new(Some(writer)))
    }
}

#[pymethods]
impl ResponseWriter {
    /// Bytes of the declared length that were not written.
    #[getter]
    fn left(&self) -> usize {
        lock(&self.0).as_ref().map_or(0, ReplyWriter::left)
    }

    /// Sends the next bytes.
    fn push(&self, py: Python<'_>, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = buffer::copied(piece)?;
        let pushed = lock(&self.0).as_mut().map_or(Err(WriteError::Gone), |to| to.push(&bytes));
        pushed.map_err(|error| errors::write(py, error))
    }

    /// Checks that the response is whole; otherwise it is given up.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let writer = lock(&self.0).take().ok_or_else(|| errors::write(py, WriteError::Gone))?;
        writer.finish().map_err(|error| errors::write(py, error))
    }

    /// Gives the response up, unless it was finished.
    fn abandon(&self) {
        let abandoned = lock(&self.0).take();
        drop(abandoned);
    }
}
