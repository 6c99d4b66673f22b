//! Tickets of servers, with which a client resumes (RFC 8446 §2.2): the next handshake has a fresh
//! key exchange, but no signatures.
//!
//! Invariants: a ticket is used once, at the address that issued it. There are at most `max`, one
//! for each server, and the oldest is forgotten for a new one. Both ends forget all tickets with
//! the credentials that they belong to. Only cluster keys have tickets: a certificate may expire or
//! be revoked, which the caller's verifier has to see in every handshake.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::server::ProducesTickets;

/// Tickets by server, oldest first.
pub(super) struct Tickets {
    all: Mutex<VecDeque<(SocketAddr, Tls13ClientSessionValue)>>,
    max: usize,
}

impl Tickets {
    /// A store of at most `max` tickets.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { all: Mutex::default(), max })
    }

    /// The tickets of one server, for the configuration of a handshake.
    pub(super) fn of(self: &Arc<Self>, server: SocketAddr) -> Resumption {
        Resumption::store(Arc::new(TicketsOfServer { all: Arc::clone(self), server }))
    }

    pub(super) fn insert(&self, server: SocketAddr, ticket: Tls13ClientSessionValue) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _)| *of != server);
        all.push_back((server, ticket));
        if all.len() > self.max {
            all.pop_front();
        }
    }

    pub(super) fn take(&self, server: SocketAddr) -> Option<Tls13ClientSessionValue> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(of, _)| *of == server)?;
        all.remove(at).map(|(_, ticket)| ticket)
    }
}

/// See [`Tickets::of`]. The server's name is ignored, because it means nothing with cluster keys.
struct TicketsOfServer {
    all: Arc<Tickets>,
    server: SocketAddr,
}

impl ClientSessionStore for TicketsOfServer {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.all.insert(self.server, ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.all.take(self.server)
    }
}

/// No tickets are shown.
impl fmt::Debug for TicketsOfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketsOfServer").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A server that encrypts no tickets, and accepts none of those, for example of another service
/// that has the same configuration.
#[derive(Debug)]
pub(super) struct NoTickets {
    /// It issues the names of sessions that it keeps in memory instead.
    pub(super) stateful: bool,
}

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        !self.stateful
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
