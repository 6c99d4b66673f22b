//! Retry: while more handshakes of others begin than a server has time for, a client has to show
//! first that it receives at its address. It sends its flight again with the cookie of the server,
//! which remembers nothing for it (as RFC 9000 §8.1.2).
//!
//! So clients connect during a flood of packets with forged addresses. A host takes at most one of
//! the places for those that have answered.

use std::net::{IpAddr, SocketAddr};

use homa_proto::{Duration, LinkId};

use super::frame::FRONT;
use super::{HandshakeDatagram, Sealed, Timer, Way};
use crate::secure::{COOKIE, Cookies};

/// Handshakes of addresses that have answered, in the time of `BEGINNINGS_MAX` others.
const RETURNED_MAX: usize = 3;
/// How long a key for cookies is used. Cookies are accepted for twice as long at most.
const LIFE: Duration = Duration::secs(10);

/// A server's cookies, and the places that hosts have taken with them.
#[derive(Default)]
pub struct Retry {
    /// While there is a flood.
    cookies: Option<Cookies>,
    /// A cookie was sent with the current key.
    used: bool,
    /// The hosts that have taken a place.
    returned: Vec<IpAddr>,
}

impl Retry {
    /// Places are free again.
    pub fn renew(&mut self) {
        self.returned.clear();
    }

    /// Takes a place for a host; false if the host has one, none is left, or the cookie is not the
    /// one for `name`.
    fn take(&mut self, name: &[u8], host: IpAddr, cookie: &[u8]) -> bool {
        let free = self.returned.len() < RETURNED_MAX && !self.returned.contains(&host);
        // Most datagrams of a flood have no cookie, and then nothing is computed.
        let taken = free
            && !cookie.is_empty()
            && self.cookies.as_ref().is_some_and(|cookies| cookies.accepts(name, cookie));
        if taken {
            self.returned.push(host);
        }
        taken
    }
}

/// The name that a cookie authenticates: the client's address and the id of its handshake.
fn name(from: SocketAddr, id: u64) -> Vec<u8> {
    [from.to_string().as_bytes(), &id.to_be_bytes()].concat()
}

impl Sealed {
    /// Whether a handshake of a client may begin now. If not, the client gets a cookie, unless its
    /// datagram is shorter than the answer.
    pub(super) fn may_begin(&mut self, (way, id): (Way, u64), cookie: &[u8], len: usize) -> bool {
        let name = name(way.to, id);
        if self.beginnings.take(&mut self.timers) || self.retry.take(&name, way.to.ip(), cookie) {
            return true;
        }
        self.counts.handshakes_throttled += 1;
        if self.retry.cookies.is_none()
            && let Some(cookies) = Cookies::new()
        {
            self.retry.cookies = Some(cookies);
            self.timers.start(LIFE, Timer::Rotate);
        }
        if let Some(cookies) = self.retry.cookies.as_ref().filter(|_| len >= FRONT + COOKIE) {
            let cookie = cookies.of(&name);
            self.retry.used = true;
            let frame = HandshakeDatagram::Retry { id, cookie: &cookie };
            self.push_frame(way, LinkId::default(), &frame, 0);
        }
        false
    }

    /// Takes another key for cookies, or none if the flood is over.
    pub(super) fn rotate(&mut self) {
        let used = std::mem::take(&mut self.retry.used);
        self.retry.cookies = self.retry.cookies.take().filter(|_| used);
        if let Some(cookies) = &mut self.retry.cookies {
            cookies.rotate();
            self.timers.start(LIFE, Timer::Rotate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_answers_takes_one_place_and_leaves_the_others() {
        let mut retry = Retry { cookies: Cookies::new(), ..Retry::default() };
        let mut take = |host: u8, id: u64, renewed: bool| {
            let from = SocketAddr::from(([10, 0, 0, host], 4_000));
            let name = name(from, id);
            let cookie = retry.cookies.as_ref().map(|cookies| cookies.of(&name)).unwrap();
            if renewed {
                retry.renew();
            }
            let elsewhere = SocketAddr::from(([10, 0, 1, host], 4_000));
            for other in [super::name(from, id + 1), super::name(elsewhere, id)] {
                assert!(!retry.take(&other, from.ip(), &cookie), "of another handshake or host");
            }
            retry.take(&name, from.ip(), &cookie)
        };
        assert_eq!(
            [1, 1, 2, 2, 3, 4].map(|host| take(host, 7, false)),
            [true, false, true, false, true, false]
        );
        assert!(take(4, 8, true), "a place is free again");
    }
}
