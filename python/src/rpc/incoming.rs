//! A request at a server, as Python sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use homa::{Client, Message, Request, RequestError};
use pyo3::prelude::*;

use super::buffer;

/// A request that was accepted, until it is answered or refused.
#[pyclass(frozen, module = "homa.rpc")]
pub struct Incoming {
    #[pyo3(get)]
    payload: Py<PyAny>,
    #[pyo3(get)]
    peer: String,
    #[pyo3(get)]
    trace: Option<String>,
    #[pyo3(get)]
    peer_identity: Option<String>,
    /// Bytes in the whole request, also if it is still arriving.
    #[pyo3(get)]
    length: usize,
    held: Mutex<Held>,
}

/// The parts needed for the answer.
#[derive(Default)]
pub struct Held {
    /// `None` once answered or refused, and while it is read.
    pub request: Option<Arc<Request>>,
    /// While it is read.
    read: Option<ReadRequest>,
    /// The task that watches whether the client still waits; it also has the request.
    pub watch: Option<u64>,
}

/// What calls on behalf of a request need while a future reads it.
struct ReadRequest {
    client: Client,
    deadline: Option<Instant>,
}

impl Incoming {
    /// Of a request that was just accepted.
    pub fn new(py: Python<'_>, mut request: Request) -> PyResult<Self> {
        let payload = buffer::lent(py, request.take_bytes())?.into_any().unbind();
        let (peer, trace) = (request.from().to_string(), request.trace_context());
        let peer_identity = request.peer_identity().map(ToString::to_string);
        let length = request.total_len();
        let held = Held { request: Some(Arc::new(request)), ..Held::default() };
        let trace = trace.map(|trace| trace.to_string());
        Ok(Self { payload, peer, trace, peer_identity, length, held: Mutex::new(held) })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request, while it waits for its answer and is not read.
    pub fn request(&self) -> Option<Arc<Request>> {
        self.held().request.clone()
    }

    /// A client for calls on behalf of the request; `None` once it is answered.
    pub fn client(&self) -> Option<Client> {
        let held = self.held();
        let of_request = held.request.as_ref().map(|request| request.client());
        of_request.or_else(|| Some(held.read.as_ref()?.client.clone()))
    }

    /// Whether a future reads the request.
    pub fn is_read(&self) -> bool {
        self.held().read.is_some()
    }

    /// A task has the request, too.
    pub fn watched(&self, watch: u64) {
        self.held().watch = Some(watch);
    }

    /// The answer was refused, or a piece was read: the request waits for its answer again.
    pub fn give_back(&self, request: Request) {
        let mut held = self.held();
        (held.request, held.read) = (Some(Arc::new(request)), None);
    }

    /// Everything that is needed for the answer, which can be given once.
    pub fn take(&self) -> Held {
        std::mem::take(&mut *self.held())
    }
}

#[pymethods]
impl Incoming {
    /// Seconds for which the client still waits; `None` if it did not say, or after the answer.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        let held = self.held();
        let of_request = held.request.as_ref().map(|request| request.deadline());
        let deadline = of_request.or_else(|| Some(held.read.as_ref()?.deadline))??;
        Some(deadline.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Whether it was neither answered nor refused.
    #[getter]
    fn waits(&self) -> bool {
        self.request().is_some()
    }
}

/// A request that a future reads. It is given back when the future ends, also without an outcome.
pub struct LentRequest {
    incoming: Py<Incoming>,
    request: Option<Request>,
}

impl LentRequest {
    /// The request that was taken out of `incoming`.
    pub fn new(incoming: Py<Incoming>, request: Request) -> Self {
        let read = ReadRequest { client: request.client(), deadline: request.deadline() };
        incoming.get().held().read = Some(read);
        Self { incoming, request: Some(request) }
    }

    /// The next piece.
    pub async fn next(&mut self) -> Result<Option<Message>, RequestError> {
        match &mut self.request {
            Some(request) => request.arrived_async().await,
            None => Err(RequestError::Gone),
        }
    }
}

impl Drop for LentRequest {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.incoming.get().give_back(request);
        }
    }
}
