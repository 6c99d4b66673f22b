//! Messages that are written while they are sent, of declared length. Pushing never blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homa::error::WriteError;
use homa::{Call, CallWriter, ReplyWriter};
use pyo3::prelude::*;

use super::{buffer, errors};

/// A writer, until it is finished or abandoned.
struct Unfinished<T>(Mutex<Option<T>>);

impl<T> Unfinished<T> {
    fn new(writer: T) -> Self {
        Self(Mutex::new(Some(writer)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the next bytes by `push`.
    fn push(
        &self,
        piece: &Bound<'_, PyAny>,
        push: impl FnOnce(&mut T, &[u8]) -> Result<(), WriteError>,
    ) -> PyResult<()> {
        let bytes = buffer::copied(piece)?;
        let pushed = self.lock().as_mut().map_or(Err(WriteError::Gone), |to| push(to, &bytes));
        pushed.map_err(|error| errors::write(piece.py(), error))
    }

    /// Ends it by `finish`.
    fn finish<R>(
        &self,
        py: Python<'_>,
        finish: impl FnOnce(T) -> Result<R, WriteError>,
    ) -> PyResult<R> {
        let writer = self.lock().take().ok_or(WriteError::Gone);
        writer.and_then(finish).map_err(|error| errors::write(py, error))
    }

    /// Drops the writer, which gives an unfinished message up.
    fn abandon(&self) {
        let abandoned = self.lock().take();
        drop(abandoned);
    }
}

/// The request of a call.
#[pyclass(frozen, module = "homa.rpc")]
pub struct RequestWriter(Unfinished<CallWriter>);

impl RequestWriter {
    /// Of a call that has begun.
    pub fn new(writer: CallWriter) -> Self {
        Self(Unfinished::new(writer))
    }

    /// The call, once its request is whole or the call has ended.
    pub fn finish(&self, py: Python<'_>) -> PyResult<Call> {
        self.0.finish(py, CallWriter::finish)
    }
}

#[pymethods]
impl RequestWriter {
    /// Bytes of the declared length that were not written.
    #[getter]
    fn left(&self) -> usize {
        self.0.lock().as_ref().map_or(0, CallWriter::left)
    }

    /// Sends the next bytes.
    fn push(&self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.push(piece, CallWriter::push)
    }

    /// Gives the call up, unless it was finished.
    fn abandon(&self) {
        self.0.abandon();
    }
}

/// The response to a request.
#[pyclass(frozen, module = "homa.rpc")]
pub struct ResponseWriter(Unfinished<ReplyWriter>);

impl ResponseWriter {
    /// Of a response that has begun.
    pub fn new(writer: ReplyWriter) -> Self {
        Self(Unfinished::new(writer))
    }
}

#[pymethods]
impl ResponseWriter {
    /// Bytes of the declared length that were not written.
    #[getter]
    fn left(&self) -> usize {
        self.0.lock().as_ref().map_or(0, ReplyWriter::left)
    }

    /// Sends the next bytes.
    fn push(&self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.push(piece, ReplyWriter::push)
    }

    /// Checks that the response is whole; otherwise it is given up.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.finish(py, ReplyWriter::finish)
    }

    /// Gives the response up, unless it was finished.
    fn abandon(&self) {
        self.0.abandon();
    }
}
