//! What the engines of a group tell each other about the links that they share, so that each has
//! its part of what is used now, not of what all could use.
//!
//! * **Sending**: an engine says until when what it handed down, and a packet more if some wait,
//!   keeps the link busy at its part of the rate. As many as are not done share the link, alike.
//! * **Receiving**: an engine says what is owed to it, whether it granted, and how many bytes came
//!   (`homa_proto::Neighbours`).
//!
//! Each engine writes words of its own and reads those of others: nobody waits for anybody. What is
//! read may be as old as the other's last turn; then links have a packet more or fewer, no more.
//!
//! Left out: engines of other groups and processes
//! ([`Config::sharing`](homa_proto::Config::sharing)).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use homa_proto::{Endpoint, LinkId, Neighbours, Time};

use super::clock::Clock;

/// An engine's place in its group.
#[derive(Debug)]
pub struct Beside {
    group: Arc<Group>,
    number: usize,
}

#[derive(Debug)]
struct Group {
    /// Time that all of them mean.
    clock: Clock,
    incoming: Box<[Incoming]>,
    links: Mutex<Vec<Link>>,
}

/// An interface, `None` where engines do not distinguish them, and what each does with it.
type Link = (Option<u32>, Arc<[Usage]>);

/// What one engine has coming.
#[derive(Debug, Default)]
struct Incoming {
    granted: AtomicU64,
    owed: AtomicU64,
}

/// What one engine does with a link.
#[derive(Debug, Default)]
struct Usage {
    /// Until when it sends.
    until: AtomicU64,
    /// Wire bytes of DATA that came to it.
    received: AtomicU64,
}

impl Beside {
    /// The places of so many engines.
    pub fn all(engines: usize) -> impl Iterator<Item = Self> {
        let incoming = (0..engines).map(|_| Incoming::default()).collect();
        let group = Arc::new(Group { clock: Clock::start(), incoming, links: Mutex::default() });
        (0..engines).map(move |number| Self { group: group.clone(), number })
    }

    /// The clock of all of them.
    pub fn clock(&self) -> Clock {
        self.group.clock
    }

    /// Its part in a link.
    pub fn link(&self, interface: Option<u32>) -> Part {
        let mut links = self.group.links.lock().unwrap_or_else(PoisonError::into_inner);
        let found = links.iter().find(|(other, _)| *other == interface);
        let usage = match found {
            Some((_, usage)) => usage.clone(),
            None => {
                let usage: Arc<[Usage]> =
                    self.group.incoming.iter().map(|_| Usage::default()).collect();
                links.push((interface, usage.clone()));
                usage
            }
        };
        let others = others(&usage, self.number).map(|other| other.received.load(Relaxed)).sum();
        Part { usage, number: self.number, others }
    }

    /// Says what this engine has coming, and tells it what the others have.
    pub fn exchange(&self, endpoint: &mut Endpoint) {
        let ours = &self.group.incoming[self.number];
        ours.granted.store(endpoint.granted(), Relaxed);
        ours.owed.store(endpoint.owed(), Relaxed);
        let mut neighbours = Neighbours::default();
        for other in others(&self.group.incoming, self.number) {
            neighbours.granting += u16::from(other.granted.load(Relaxed) > 0);
            neighbours.owed += other.owed.load(Relaxed);
        }
        endpoint.set_neighbours(neighbours);
    }
}

/// Nothing comes to an engine that is gone.
impl Drop for Beside {
    fn drop(&mut self) {
        let ours = &self.group.incoming[self.number];
        ours.granted.store(0, Relaxed);
        ours.owed.store(0, Relaxed);
    }
}

fn others<T>(all: &[T], number: usize) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(move |(at, _)| *at != number).map(|(_, other)| other)
}

/// An engine's part in a link.
#[derive(Debug)]
pub struct Part {
    usage: Arc<[Usage]>,
    number: usize,
    /// Wire bytes that came to the others, as far as the endpoint was told.
    others: u64,
}

impl Part {
    /// How many send by the link, this one included.
    pub fn senders(&self, now: Time) -> u32 {
        let busy = |other: &&Usage| other.until.load(Relaxed) > now.0;
        1 + others(&self.usage, self.number).filter(busy).count() as u32
    }

    /// Says until when this one sends.
    pub fn busy_until(&self, until: Time) {
        self.usage[self.number].until.store(until.0, Relaxed);
    }

    /// Says what came by the link, and tells the endpoint what came to others.
    pub fn exchange(&mut self, link: LinkId, endpoint: &mut Endpoint) {
        self.usage[self.number].received.store(endpoint.received_by(link), Relaxed);
        let received = others(&self.usage, self.number).map(|other| other.received.load(Relaxed));
        let received: u64 = received.sum();
        endpoint.neighbours_received(link, received.wrapping_sub(self.others));
        self.others = received;
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::{Config, PeerId, PeerInfo, Rate, Request, Submit};

    use super::*;

    #[test]
    fn engines_count_as_senders_by_link_until_what_they_sent_has_left() {
        let [a, b] = <[Beside; 2]>::try_from(Beside::all(2).collect::<Vec<_>>()).unwrap();
        let parts = [a.link(Some(3)), b.link(Some(3)), b.link(Some(4))];
        parts[1].busy_until(Time(100));
        let senders = |at| [&parts[0], &parts[1], &parts[2]].map(|part| part.senders(Time(at)));
        assert_eq!(senders(99), [2, 1, 1]);
        assert_eq!(senders(100), [1, 1, 1]);
    }

    #[test]
    fn what_an_engine_has_coming_is_told_to_the_others_until_it_is_gone() {
        let endpoint = || Endpoint::new(Config::for_users(Rate::gbps(1)).validate().unwrap());
        let (mut one, mut other) = (endpoint(), endpoint());
        let [a, b] = <[Beside; 2]>::try_from(Beside::all(2).collect::<Vec<_>>()).unwrap();
        one.open_peer(PeerId(0), PeerInfo { host: 0, max_payload: 1_400 });
        let request = Request {
            peer: PeerId(0),
            local_port: 9,
            remote_port: 7,
            length: 100,
            deadline: Time(1_000_000_000),
            idempotent: false,
            head: 0,
            cookie: 0,
        };
        one.submit(Time(1), Submit::Request(request)).unwrap();
        assert!(one.owed() > 0, "a response");
        let mut told = |from: Option<&Beside>| {
            from.into_iter().for_each(|from| from.exchange(&mut one));
            b.exchange(&mut other);
            other.neighbours()
        };
        let neighbours = told(Some(&a));
        assert!(neighbours.owed > 0 && neighbours.granting == 0, "{neighbours:?}");
        drop(a);
        assert_eq!(told(None), Neighbours::default());
    }
}
