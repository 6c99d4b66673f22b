//! The loop that takes requests, and the calls in progress that they belong to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::Status;

use crate::channel::HOLD;
use crate::inbound::Pushed;
use crate::server::Layered;
use crate::session;
use crate::wire::{Answer, CallNumber, ClientMessage, Malformed, Part};

/// Most calls in progress that take several RPCs. Each holds at most two windows of bytes.
const MOST_SESSIONS: usize = 65_536;

/// Most of them that one host may have, so that others find room.
const MOST_SESSIONS_OF_HOST: usize = MOST_SESSIONS / 4;

/// Most bytes of request bodies that services have not read, in units of 1,024. Beyond it requests
/// stay with the engine, which has its own limits and quotas per host.
const UNREAD_KIB: usize = 256 << 10;

/// Serves requests until the server drains. Dropping the future ends those in progress.
pub(crate) async fn all(
    server: homa::Server,
    service: Layered,
    sessions: Arc<Sessions>,
    timeout: Option<Duration>,
) {
    let unread = Arc::new(Semaphore::new(UNREAD_KIB));
    // As many as the runtime has workers, because each runs the beginning of its requests itself.
    let loops = tokio::runtime::Handle::current().metrics().num_workers();
    let mut tasks = JoinSet::new();
    for _ in 0..loops {
        let (server, service) = (server.clone(), service.clone());
        tasks.spawn(accept(server, service, (sessions.clone(), unread.clone()), timeout));
    }
    while tasks.join_next().await.is_some() {}
}

async fn accept(
    server: homa::Server,
    service: Layered,
    (sessions, unread): (Arc<Sessions>, Arc<Semaphore>),
    timeout: Option<Duration>,
) {
    let mut tasks = JoinSet::new();
    while let Some(request) = server.accept_async().await {
        let kib = (request.len() >> 10) as u32 + 1;
        // A request that is longer than everything waits until all else was read.
        let room = unread.clone().acquire_many_owned(kib.min(UNREAD_KIB as u32)).await;
        let request = (request, room.ok());
        let mut serving = Box::pin(one(request, service.clone(), sessions.clone(), timeout));
        // Most calls end here, without a task. If one panics, it has dropped its request, which its
        // client is told.
        let begun = poll_fn(|context| {
            let begin = AssertUnwindSafe(|| serving.as_mut().poll(context));
            Poll::Ready(catch_unwind(begin))
        });
        if let Ok(Poll::Pending) = begun.await {
            tasks.spawn(serving);
        }
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

async fn one(
    (mut request, room): (homa::Request, Option<OwnedSemaphorePermit>),
    service: Layered,
    sessions: Arc<Sessions>,
    timeout: Option<Duration>,
) {
    let host = request.from().ip();
    // The RPCs of streaming calls wait for their service or their client, so they do not count as
    // in service.
    match ClientMessage::decode(request.take_bytes().into_bytes()) {
        Ok(ClientMessage::Open(open)) => {
            if !open.complete {
                request.set_aside();
            }
            session::run(service, (*open, room), request, sessions, timeout).await;
        }
        Ok(ClientMessage::Push { number, sequence, complete, body }) => {
            request.set_aside();
            let body = body.into_iter().next().unwrap_or_default();
            let answer = sessions.push((host, number), sequence, Pushed { body, complete, room });
            tokio::select! {
                answer = answer => reply(request, answer).await,
                () = request.cancelled() => {}
            }
        }
        Ok(ClientMessage::Pull { number, sequence, window }) => {
            request.set_aside();
            let pull = Box::new(Pull { request, sequence, window });
            if let Err(pull) = sessions.pull((host, number), pull) {
                reply(pull.request, Answer::Unknown).await;
            }
        }
        Ok(ClientMessage::Reset { number }) => {
            if let Some(session) = sessions.find((host, number)) {
                session.reset.notify_one();
            }
            reply(request, Answer::Part(Part::default())).await;
        }
        Err(malformed) => {
            tracing::debug!(%malformed, from = %request.from(), "refused");
            reply(request, refusal(malformed)).await;
        }
    }
}

fn refusal(malformed: Malformed) -> Answer {
    match malformed {
        Malformed::Version(_) | Malformed::Kind(_) => Answer::Refused,
        malformed => session::ended(crate::status::malformed(malformed), true),
    }
}

/// Sends a short answer. If the client is gone, nothing is left to do.
pub(crate) async fn reply(request: homa::Request, answer: Answer) {
    if let Some(message) = answer.encode() {
        let _ = request.reply_async(message).await;
    }
}

/// The host and the number of a call.
pub(crate) type SessionKey = (IpAddr, CallNumber);

/// Calls in progress that take several RPCs.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Mutex<SessionTable>,
    /// Told when the last one has ended.
    none: Notify,
}

#[derive(Debug, Default)]
struct SessionTable {
    sessions: HashMap<SessionKey, Arc<Session>>,
    /// How many of them each host has; hosts without any are not in it.
    of_host: HashMap<IpAddr, usize>,
    /// No more are added.
    ending: bool,
}

/// Where the RPCs of a call go.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` if the opening had the whole request body.
    pushes: Option<tokio::sync::Mutex<Pushes>>,
    pulls: mpsc::Sender<Box<Pull>>,
    pub(crate) reset: Notify,
}

#[derive(Debug)]
struct Pushes {
    next: u32,
    to: mpsc::Sender<Pushed>,
}

/// A pull that waits for an answer.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) request: homa::Request,
    pub(crate) sequence: u32,
    pub(crate) window: u32,
}

impl Session {
    pub(crate) fn new(
        pushes: Option<mpsc::Sender<Pushed>>,
        pulls: mpsc::Sender<Box<Pull>>,
    ) -> Self {
        let pushes = pushes.map(|to| tokio::sync::Mutex::new(Pushes { next: 0, to }));
        Self { pushes, pulls, reset: Notify::new() }
    }

    /// Whether the client may push.
    pub(crate) fn takes_pushes(&self) -> bool {
        self.pushes.is_some()
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: SessionKey) -> Option<Arc<Session>> {
        self.lock().sessions.get(&key).cloned()
    }

    /// Refuses further calls, and waits until those in progress have ended.
    pub(crate) async fn end(&self) {
        self.lock().ending = true;
        while !self.lock().sessions.is_empty() {
            self.none.notified().await;
        }
    }

    /// Why a call was not added. Its service may have begun it.
    pub(crate) fn refusal(&self, begun: bool) -> Status {
        let executed = if begun { "may have been executed" } else { "was not executed" };
        match self.lock().ending {
            true => Status::unavailable(format!("the server is ending, and the call {executed}")),
            false => Status::resource_exhausted(format!(
                "the server has too many streams in progress, and the call {executed}"
            )),
        }
    }

    /// Adds a call, until the result is dropped. `None` if there are too many, or too many of its
    /// host, or if the host already has one of this number.
    pub(crate) fn register(
        self: &Arc<Self>,
        key: SessionKey,
        session: Arc<Session>,
    ) -> Option<Registration> {
        let mut table = self.lock();
        let SessionTable { sessions, of_host, ending } = &mut *table;
        let host = of_host.get(&key.0).copied().unwrap_or(0);
        let full = *ending || sessions.len() >= MOST_SESSIONS || host >= MOST_SESSIONS_OF_HOST;
        match sessions.entry(key) {
            Entry::Vacant(vacant) if !full => vacant.insert(session),
            _ => return None,
        };
        of_host.insert(key.0, host + 1);
        Some(Registration { key, sessions: self.clone() })
    }

    /// Hands a part of a request body to its call, waiting for room.
    async fn push(&self, key: SessionKey, sequence: u32, part: Pushed) -> Answer {
        let Some(session) = self.find(key) else { return Answer::Unknown };
        let Some(pushes) = &session.pushes else { return Answer::Refused };
        let taken = async {
            let mut pushes = pushes.lock().await;
            // A client pushes one part at a time, so another number is a fault of the client.
            if pushes.next != sequence {
                return Answer::Refused;
            }
            match pushes.to.send(part).await {
                Ok(()) => {
                    pushes.next = pushes.next.wrapping_add(1);
                    Answer::Part(Part::default())
                }
                Err(_) => Answer::Closed,
            }
        };
        tokio::select! {
            answer = taken => answer,
            () = sleep(HOLD) => Answer::Later,
        }
    }

    /// Hands a pull to its call, or gives it back.
    fn pull(&self, key: SessionKey, pull: Box<Pull>) -> Result<(), Box<Pull>> {
        match self.find(key) {
            Some(session) => session.pulls.try_send(pull).map_err(|error| error.into_inner()),
            None => Err(pull),
        }
    }
}

/// A call's place among those in progress.
#[derive(Debug)]
pub(crate) struct Registration {
    key: SessionKey,
    sessions: Arc<Sessions>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        table.sessions.remove(&self.key);
        if table.sessions.is_empty() {
            self.sessions.none.notify_one();
        }
        if let Entry::Occupied(mut host) = table.of_host.entry(self.key.0) {
            *host.get_mut() -= 1;
            if *host.get() == 0 {
                host.remove();
            }
        }
    }
}

/// The bytes of a body that came with an opening.
pub(crate) fn first(body: Vec<Bytes>) -> Option<Bytes> {
    body.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_cannot_take_the_sessions_of_others() {
        let sessions = Arc::new(Sessions::default());
        let session = Arc::new(Session::new(None, mpsc::channel(1).0));
        let register = |host: u8, number: usize| {
            let key = (IpAddr::from([10, 0, 0, host]), CallNumber(number as u128));
            sessions.register(key, session.clone())
        };
        let mut held: Vec<_> = (0..MOST_SESSIONS_OF_HOST).map(|n| register(1, n)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(register(1, MOST_SESSIONS_OF_HOST).is_none(), "the host has its share");
        assert!(register(2, 0).is_some(), "another host has room");
        held.pop();
        assert!(register(1, MOST_SESSIONS_OF_HOST).is_some(), "one has ended");
        drop(held);
        assert!(sessions.lock().of_host.is_empty());
    }
}
