//! The requests of a server, taken in as far as Python's handlers want them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use homa::{Request, Server};

use super::ring::{Ring, Ringer};
use super::tasks::ENDPOINT;

/// The next request, while it is waited for.
type Accepting = Pin<Box<dyn Future<Output = Option<Request>> + Send>>;

/// Takes requests in as far as the handlers want them.
pub struct Acceptor {
    server: Server,
    next: Option<Accepting>,
    waker: Waker,
    /// There may be a request.
    rung: bool,
}

impl Acceptor {
    /// Of a server; it rings at `ring` for the endpoint.
    pub fn new(server: Server, ring: Arc<Ring>) -> Self {
        let waker = Waker::from(Arc::new(Ringer { ring, number: ENDPOINT }));
        Self { server, next: None, waker, rung: true }
    }

    /// Takes at most this many requests.
    pub fn accept(&mut self, room: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        while self.rung && requests.len() < room {
            let server = &self.server;
            let next = self.next.get_or_insert_with(|| {
                let server = server.clone();
                Box::pin(async move { server.accept_async().await })
            });
            match next.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(request)) => requests.push(request),
                // None will come any more.
                Poll::Ready(None) => self.rung = false,
                Poll::Pending => {
                    self.rung = false;
                    break;
                }
            }
            self.next = None;
        }
        requests
    }

    /// There may be a request.
    pub fn look(&mut self) {
        self.rung = true;
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }
}
