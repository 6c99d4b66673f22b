//! What the engines of a group tell each other about the links that they share, so that each has
//! its part of what is used now, not of what all could use.
//!
//! * **Sending**: an engine says until when what it handed down, and a packet more if some wait,
//!   keeps the link busy at its part of the rate. Those that are not done share the link equally.
//! * **Receiving**: an engine says what is owed to it, whether it granted, and how many bytes came
//!   (`homa_proto::SiblingShards`).
//!
//! Each engine writes words of its own and reads those of others: nobody waits for anybody. What is
//! read may be as old as the other's last turn: then links have a packet more or fewer, and engines
//! that begin to receive at once may each grant all for a round trip.
//!
//! Left out: engines of other groups and processes
//! ([`Config::sharing`](homa_proto::Config::sharing)).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use homa_proto::{Endpoint, LinkId, SiblingShards, Time};

use crate::engine::clock::Clock;

/// An engine's place in its group.
#[derive(Debug)]
pub struct ShardGroup {
    group: Arc<GroupState>,
    number: usize,
}

#[derive(Debug)]
struct GroupState {
    /// Time that all of them mean.
    clock: Clock,
    expected: Box<[Expected]>,
    links: Mutex<Vec<Link>>,
}

/// An interface, `None` where engines do not distinguish them, and what each does with it.
type Link = (Option<u32>, Arc<[LinkUsage]>);

/// What one engine has coming. Engines of different cores write no cache line in common.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Expected {
    granted: AtomicU64,
    owed: AtomicU64,
}

/// What one engine does with a link.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LinkUsage {
    /// Until when it sends.
    until: AtomicU64,
    /// Wire bytes of DATA that came to it.
    received: AtomicU64,
}

impl ShardGroup {
    /// The places of so many engines.
    pub fn all(engines: usize) -> impl Iterator<Item = Self> {
        let expected = (0..engines).map(|_| Expected::default()).collect();
        let group =
            Arc::new(GroupState { clock: Clock::start(), expected, links: Mutex::default() });
        (0..engines).map(move |number| Self { group: group.clone(), number })
    }

    /// The clock of all of them.
    pub fn clock(&self) -> Clock {
        self.group.clock
    }

    /// Its part in a link by which `received` wire bytes came to it that are no news.
    pub fn link(&self, interface: Option<u32>, received: u64) -> LinkShare {
        let mut links = self.group.links.lock().unwrap_or_else(PoisonError::into_inner);
        // Interfaces come and go.
        links.retain(|(other, usage)| *other == interface || Arc::strong_count(usage) > 1);
        let known = links.iter().find(|(other, _)| *other == interface);
        let usage = known.map(|(_, usage)| usage.clone()).unwrap_or_else(|| {
            let usage: Arc<[LinkUsage]> =
                self.group.expected.iter().map(|_| LinkUsage::default()).collect();
            links.push((interface, usage.clone()));
            usage
        });
        let mut share = LinkShare { usage, number: self.number, ours: received, others: 0 };
        share.others = share.received_by_others();
        share
    }

    /// Says what this engine has coming.
    pub fn publish(&self, endpoint: &Endpoint) {
        let ours = &self.group.expected[self.number];
        ours.granted.store(endpoint.granted_outstanding(), Relaxed);
        ours.owed.store(endpoint.outstanding(), Relaxed);
    }

    /// Tells the endpoint what the others have coming.
    pub fn refresh(&self, endpoint: &mut Endpoint) {
        let mut siblings = SiblingShards::default();
        for other in others(&self.group.expected, self.number) {
            siblings.granting += u16::from(other.granted.load(Relaxed) > 0);
            siblings.outstanding += other.owed.load(Relaxed);
        }
        endpoint.set_sibling_shards(siblings);
    }
}

/// Nothing comes to an engine that is gone.
impl Drop for ShardGroup {
    fn drop(&mut self) {
        let ours = &self.group.expected[self.number];
        ours.granted.store(0, Relaxed);
        ours.owed.store(0, Relaxed);
    }
}

fn others<T>(all: &[T], number: usize) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(move |(at, _)| *at != number).map(|(_, other)| other)
}

/// An engine's part in a link.
#[derive(Debug)]
pub struct LinkShare {
    usage: Arc<[LinkUsage]>,
    number: usize,
    /// Wire bytes that came to this one, as far as the others were told.
    ours: u64,
    /// Wire bytes that came to the others, as far as the endpoint was told.
    others: u64,
}

impl LinkShare {
    /// How many send by the link, this one included.
    pub fn senders(&self, now: Time) -> u32 {
        let busy = |other: &&LinkUsage| other.until.load(Relaxed) > now.0;
        1 + others(&self.usage, self.number).filter(busy).count() as u32
    }

    /// Says until when this one sends.
    pub fn busy_until(&self, until: Time) {
        self.usage[self.number].until.store(until.0, Relaxed);
    }

    /// Says that so many wire bytes came by the link so far.
    pub fn publish(&mut self, received: u64) {
        let more = received - std::mem::replace(&mut self.ours, received);
        self.usage[self.number].received.fetch_add(more, Relaxed);
    }

    /// Tells the endpoint what came to others.
    pub fn refresh(&mut self, link: LinkId, endpoint: &mut Endpoint) {
        let received = self.received_by_others();
        let more = received - std::mem::replace(&mut self.others, received);
        endpoint.sibling_received(link, more);
    }

    /// What came to others, as far as the endpoint was told.
    #[cfg(test)]
    pub fn seen(&self) -> u64 {
        self.others
    }

    fn received_by_others(&self) -> u64 {
        others(&self.usage, self.number).map(|other| other.received.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::{Config, PeerId, PeerInfo, Rate, Request, Submit};

    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::new(Config::for_users(Rate::gbps(1)).validate().unwrap())
    }

    #[test]
    fn engines_count_as_senders_by_link_until_what_they_sent_has_left() {
        let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
        let shares = [a.link(Some(3), 0), b.link(Some(3), 0), b.link(Some(4), 0)];
        shares[1].busy_until(Time(100));
        let senders =
            |at| [&shares[0], &shares[1], &shares[2]].map(|share| share.senders(Time(at)));
        assert_eq!(senders(99), [2, 1, 1]);
        assert_eq!(senders(100), [1, 1, 1]);
    }

    #[test]
    fn what_an_engine_has_coming_is_told_to_the_others_until_it_is_gone() {
        let (mut one, mut other) = (endpoint(), endpoint());
        let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
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
        assert!(one.outstanding() > 0, "a response");
        let mut published = |from: Option<&ShardGroup>| {
            from.into_iter().for_each(|from| from.publish(&one));
            b.refresh(&mut other);
            other.sibling_shards()
        };
        let siblings = published(Some(&a));
        assert!(siblings.outstanding > 0 && siblings.granting == 0, "{siblings:?}");
        drop(a);
        assert_eq!(published(None), SiblingShards::default());
    }

    #[test]
    fn what_came_by_an_interface_is_told_once_whatever_its_number() {
        let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
        let mut here = b.link(Some(3), 0);
        a.link(Some(3), 0).publish(5_000);
        assert_eq!(here.received_by_others(), 5_000);
        // The number had been another interface's; and the interface comes back with it.
        let mut again = a.link(Some(3), 70_000);
        again.publish(70_000);
        assert_eq!(here.received_by_others(), 5_000);
        again.publish(71_000);
        assert_eq!(here.received_by_others() - here.others, 6_000);
        here.refresh(LinkId(0), &mut endpoint());
        assert_eq!(here.others, 6_000);
        drop((again, here));
        drop(b.link(Some(4), 0));
        assert_eq!(b.group.links.lock().unwrap().len(), 1, "interfaces that nobody uses are gone");
    }
}
