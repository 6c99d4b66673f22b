//! The requests of servers, taken in as far as Python's handlers want them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use homa::{Request, Server};

use super::ring::{Ring, Ringer};
use super::tasks::ENDPOINT;

/// The next request, while it is waited for.
type Accepting = Pin<Box<dyn Future<Output = Option<Request>> + Send>>;

/// Takes requests in as far as the handlers want them, from servers in turn, so that none of them
/// waits for another that is busier.
pub struct Acceptor {
    queues: Vec<Queue>,
    /// The queue that is looked at next.
    turn: usize,
}

impl Acceptor {
    /// Of servers, at least one; it rings at `ring` for the endpoint.
    pub fn new(servers: Vec<Server>, ring: &Arc<Ring>) -> Self {
        let waker = Waker::from(Arc::new(Ringer { ring: ring.clone(), number: ENDPOINT }));
        let queue = |server| Queue { server, next: None, waker: waker.clone(), rung: true };
        Self { queues: servers.into_iter().map(queue).collect(), turn: 0 }
    }

    /// Takes at most this many requests.
    pub fn accept(&mut self, room: usize) -> Vec<Request> {
        let (mut requests, mut empty) = (Vec::new(), 0);
        while requests.len() < room && empty < self.queues.len() {
            match self.queues[self.turn].accept() {
                Some(request) => {
                    requests.push(request);
                    empty = 0;
                }
                None => empty += 1,
            }
            self.turn = (self.turn + 1) % self.queues.len();
        }
        requests
    }

    /// There may be requests.
    pub fn look(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.rung = true);
    }

    /// The servers.
    pub fn servers(&self) -> Vec<Server> {
        self.queues.iter().map(|queue| queue.server.clone()).collect()
    }
}

/// The requests of one server.
struct Queue {
    server: Server,
    next: Option<Accepting>,
    waker: Waker,
    /// There may be a request.
    rung: bool,
}

impl Queue {
    /// The next request, if there is one.
    fn accept(&mut self) -> Option<Request> {
        if !self.rung {
            return None;
        }
        let server = &self.server;
        let next = self.next.get_or_insert_with(|| {
            let server = server.clone();
            Box::pin(async move { server.accept_async().await })
        });
        let polled = next.as_mut().poll(&mut Context::from_waker(&self.waker));
        let Poll::Ready(accepted) = polled else {
            self.rung = false;
            return None;
        };
        self.next = None;
        // If it is none, none will come any more.
        self.rung = accepted.is_some();
        accepted
    }
}
