//! The futures of an endpoint: each has a number, which is stored in the ring when the future can
//! continue.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use homa::balance::BalanceError;
use homa::{CallError, Message, ReplyError, RequestError};
use pyo3::prelude::*;

use super::ring::{Ring, Ringer};
use super::{buffer, errors};

/// The number that stands for the endpoint as a whole, for example for its next request.
pub const ENDPOINT: u64 = 0;

/// Messages wait to be sent together.
pub const UNSENT: u64 = u64::MAX;

/// How a future ended.
pub enum Outcome {
    /// A call.
    Called(Result<Message, CallError>),
    /// A call to one of several servers.
    Balanced(Result<Message, BalanceError>),
    /// Servers are known, or not.
    Connected(Result<(), BalanceError>),
    /// Room for a call, or none ever.
    Room(Result<(), CallError>),
    /// A reply was taken over, or refused.
    Replied(Result<(), ReplyError>),
    /// Bytes of a request that is arriving; none at its end.
    Piece(Result<Option<Message>, RequestError>),
    /// The client no longer waits for the answer to a request.
    Abandoned,
}

impl Outcome {
    /// The result in Python: a message, or nothing.
    pub fn result(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Called(Ok(message)) | Self::Balanced(Ok(message)) => {
                Ok(buffer::lent(py, message)?.into_any().unbind())
            }
            Self::Piece(Ok(Some(piece))) => Ok(buffer::lent(py, piece)?.into_any().unbind()),
            Self::Piece(Ok(None))
            | Self::Room(Ok(()))
            | Self::Connected(Ok(()))
            | Self::Replied(Ok(()))
            | Self::Abandoned => Ok(py.None()),
            Self::Called(Err(error)) | Self::Room(Err(error)) => Err(errors::call(py, &error)),
            Self::Balanced(Err(error)) | Self::Connected(Err(error)) => {
                Err(errors::balance(py, &error))
            }
            Self::Piece(Err(error)) => Err(errors::piece(py, error)),
            Self::Replied(Err(error)) => Err(errors::reply(py, &error)),
        }
    }
}

/// A future that the endpoint polls.
pub type Future = Pin<Box<dyn std::future::Future<Output = Outcome> + Send>>;

struct Task {
    future: Future,
    waker: Waker,
}

/// The futures in progress.
pub struct Tasks {
    ring: Arc<Ring>,
    last: u64,
    running: HashMap<u64, Task>,
}

impl Tasks {
    /// None yet; they ring at `ring`.
    pub fn new(ring: Arc<Ring>) -> Self {
        Self { ring, last: ENDPOINT, running: HashMap::new() }
    }

    /// Starts a future: its outcome, or its number if it is pending.
    pub fn start(&mut self, mut future: Future) -> Result<u64, Outcome> {
        self.last += 1;
        let waker = Waker::from(Arc::new(Ringer { ring: self.ring.clone(), number: self.last }));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Err(outcome),
            Poll::Pending => {
                self.running.insert(self.last, Task { future, waker });
                Ok(self.last)
            }
        }
    }

    /// Polls the future whose waker was called; returns its outcome if it has ended. A waker of a
    /// forgotten future has no effect.
    pub fn go_on(&mut self, number: u64) -> Option<Outcome> {
        let task = self.running.get_mut(&number)?;
        let Poll::Ready(outcome) = task.future.as_mut().poll(&mut Context::from_waker(&task.waker))
        else {
            return None;
        };
        self.running.remove(&number);
        Some(outcome)
    }

    /// Ends one without an outcome: a call is cancelled.
    pub fn forget(&mut self, number: u64) {
        self.running.remove(&number);
    }
}
