//! Values that the engines of a shard group publish about the links that they share, so that each
//! engine gets its part of the current use rather than of the largest possible use.
//!
//! * **Sending**: an engine publishes the time until which its packets, and one more if some wait,
//!   keep the link busy at its part of the rate. Engines whose time has not passed share the link
//!   equally.
//! * **Receiving**: an engine publishes the bytes that it expects, whether it granted, and the
//!   bytes that arrived (`homa_proto::SiblingShards`).
//!
//! Each engine writes only its words and reads those of the others, so none waits. A value may be
//! as old as the other engine's last turn. Links then carry a packet more or fewer, and engines
//! that begin to receive at the same moment may each grant everything for one round trip.
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
    /// The clock that all engines of the group use.
    clock: Clock,
    expected: Box<[Expected]>,
    links: Mutex<Vec<Link>>,
}

/// An interface (`None` if engines do not distinguish them) and its use by each engine.
type Link = (Option<u32>, Arc<[LinkUsage]>);

/// Bytes that one engine expects. Engines on different cores write to different cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Expected {
    granted: AtomicU64,
    owed: AtomicU64,
}

/// The use of a link by one engine.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LinkUsage {
    /// It sends until then.
    until: AtomicU64,
    /// Wire bytes of DATA that it received.
    received: AtomicU64,
}

impl ShardGroup {
    /// The places of a group of `engines`.
    pub fn all(engines: usize) -> impl Iterator<Item = Self> {
        let expected = (0..engines).map(|_| Expected::default()).collect();
        let group =
            Arc::new(GroupState { clock: Clock::start(), expected, links: Mutex::default() });
        (0..engines).map(move |number| Self { group: group.clone(), number })
    }

    /// The clock of the group.
    pub fn clock(&self) -> Clock {
        self.group.clock
    }

    /// This engine's share in a link by which it had received `received` wire bytes before.
    pub fn link(&self, interface: Option<u32>, received: u64) -> LinkShare {
        let mut links = self.group.links.lock().unwrap_or_else(PoisonError::into_inner);
        // Interfaces can be removed, so unused entries are dropped.
        links.retain(|(other, usage)| *other == interface || Arc::strong_count(usage) > 1);
        let known = links.iter().find(|(other, _)| *other == interface);
        let usage = known.map(|(_, usage)| usage.clone()).unwrap_or_else(|| {
            let usage: Arc<[LinkUsage]> =
                self.group.expected.iter().map(|_| LinkUsage::default()).collect();
            links.push((interface, usage.clone()));
            usage
        });
        // Bytes that the others received before do not count as new.
        let mut share = LinkShare { usage, number: self.number, ours: received, others: 0 };
        share.others = share.received_by_others();
        share
    }

    /// Publishes the bytes that this engine expects.
    pub fn publish(&self, endpoint: &Endpoint) {
        let ours = &self.group.expected[self.number];
        // Relaxed, because each word is a hint that may be as old as a turn.
        ours.granted.store(endpoint.granted_outstanding(), Relaxed);
        ours.owed.store(endpoint.outstanding(), Relaxed);
    }

    /// Updates the endpoint with the bytes that the others expect.
    pub fn refresh(&self, endpoint: &mut Endpoint) {
        let mut siblings = SiblingShards::default();
        for other in others(&self.group.expected, self.number) {
            siblings.granting += u16::from(other.granted.load(Relaxed) > 0);
            siblings.outstanding += other.owed.load(Relaxed);
        }
        endpoint.set_sibling_shards(siblings);
    }
}

/// An engine that is gone expects nothing.
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

/// An engine's share in a link.
#[derive(Debug)]
pub struct LinkShare {
    usage: Arc<[LinkUsage]>,
    number: usize,
    /// Wire bytes received by this engine that are published.
    ours: u64,
    /// Wire bytes received by the others that the endpoint has been told.
    others: u64,
}

impl LinkShare {
    /// Number of engines that send by the link, including this one.
    pub fn senders(&self, now: Time) -> u32 {
        let busy = |other: &&LinkUsage| other.until.load(Relaxed) > now.0;
        // This engine counts even if it has not published yet.
        1 + others(&self.usage, self.number).filter(busy).count() as u32
    }

    /// Publishes until when this engine sends.
    pub fn busy_until(&self, until: Time) {
        self.usage[self.number].until.store(until.0, Relaxed);
    }

    /// Publishes the total of wire bytes received by the link.
    pub fn publish(&mut self, received: u64) {
        let more = received - std::mem::replace(&mut self.ours, received);
        self.usage[self.number].received.fetch_add(more, Relaxed);
    }

    /// Updates the endpoint with the bytes that the others received.
    pub fn refresh(&mut self, link: LinkId, endpoint: &mut Endpoint) {
        let received = self.received_by_others();
        let more = received - std::mem::replace(&mut self.others, received);
        endpoint.sibling_received(link, more);
    }

    /// Wire bytes received by the others that the endpoint has been told.
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
    fn engines_count_as_senders_until_their_packets_have_left() {
        let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
        let shares = [a.link(Some(3), 0), b.link(Some(3), 0), b.link(Some(4), 0)];
        shares[1].busy_until(Time(100));
        let senders =
            |at| [&shares[0], &shares[1], &shares[2]].map(|share| share.senders(Time(at)));
        assert_eq!(senders(99), [2, 1, 1]);
        assert_eq!(senders(100), [1, 1, 1]);
    }

    #[test]
    fn expected_bytes_are_published_until_the_engine_is_gone() {
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
    fn bytes_of_an_interface_are_published_once() {
        let [a, b] = <[ShardGroup; 2]>::try_from(ShardGroup::all(2).collect::<Vec<_>>()).unwrap();
        let mut here = b.link(Some(3), 0);
        a.link(Some(3), 0).publish(5_000);
        assert_eq!(here.received_by_others(), 5_000);
        // The interface's number is reused, and then the interface comes back.
        let mut again = a.link(Some(3), 70_000);
        again.publish(70_000);
        assert_eq!(here.received_by_others(), 5_000);
        again.publish(71_000);
        assert_eq!(here.received_by_others() - here.others, 6_000);
        here.refresh(LinkId(0), &mut endpoint());
        assert_eq!(here.others, 6_000);
        drop((again, here));
        drop(b.link(Some(4), 0));
        assert_eq!(b.group.links.lock().unwrap().len(), 1, "unused interfaces are removed");
    }
}
