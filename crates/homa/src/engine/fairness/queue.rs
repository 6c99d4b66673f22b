//! Requests that wait to be accepted, in turns of their clients' hosts. If a host sends more than
//! is served, its requests wait behind each other and do not delay other hosts (start-time fair
//! queueing, Goyal, Vin and Cheng 1996, with requests of equal weight).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use homa_proto::{Duration, Time};

use super::accounts::host_of;

/// A request's place: its start tag, then its order of arrival.
pub type Place = (u64, u64);

/// The waiting requests of one host.
#[derive(Debug)]
struct HostQueue {
    /// Start tag of its last request.
    last: u64,
    waiting: u32,
    /// Since when some have waited, but for short pauses.
    since: Time,
    /// If none waits: since when.
    empty: Time,
}

/// Hosts without waiting requests are forgotten if there are more than this and than others.
const EMPTY_MAX: usize = 64;

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
pub struct RequestBacklog {
    /// About how many requests are taken before it.
    pub ahead: usize,
    /// Hosts that take turns.
    pub hosts: usize,
    /// Since when requests of its host have waited, but for short pauses; `None` if no other waits.
    pub since: Option<Time>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Requests with their hosts and when they came.
    requests: BTreeMap<Place, (IpAddr, Time, T)>,
    /// Hosts that have waiting requests, or had some a short time ago.
    hosts: HashMap<IpAddr, HostQueue>,
    /// Hosts that have waiting requests.
    turns: usize,
    /// Start tag of the last request that was taken.
    now: u64,
    arrivals: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), hosts: HashMap::new(), turns: 0, now: 0, arrivals: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds a request of a client that arrives at `at`. Its host's requests wait without an
    /// interruption if none waited for at most `pause`.
    pub fn push(&mut self, at: Time, from: SocketAddr, request: T, pause: Duration) -> Place {
        let ip = host_of(from.ip());
        let new = HostQueue { last: self.now, waiting: 0, since: at, empty: at };
        let host = self.hosts.entry(ip).or_insert(new);
        // A host's requests get consecutive turns, so hosts with few requests come in between.
        if host.waiting > 0 {
            host.last += 1;
        } else {
            self.turns += 1;
            // It owes nothing for turns that it did not use.
            host.last = host.last.max(self.now);
            // Refusals empty a queue for a moment, too, so that a short pause does not count.
            if at.since(host.empty) > pause {
                host.since = at;
            }
        }
        host.waiting += 1;
        self.arrivals += 1;
        let place = (host.last, self.arrivals);
        self.requests.insert(place, (ip, at, request));
        place
    }

    /// What a request that arrives now waits for: hosts take turns.
    pub fn before(&self, from: SocketAddr) -> RequestBacklog {
        let host = self.hosts.get(&host_of(from.ip())).filter(|host| host.waiting > 0);
        let own = host.map_or(0, |host| host.waiting as usize);
        let hosts = self.turns;
        // Each of its requests waits for one of every other host.
        let ahead = own.saturating_mul(hosts).saturating_add(hosts).min(self.requests.len());
        RequestBacklog { ahead, hosts, since: host.map(|host| host.since) }
    }

    /// When the next request came, and what it waited for.
    pub fn before_first(&self) -> Option<(Time, RequestBacklog)> {
        let (ip, at, _) = self.requests.first_key_value()?.1;
        let since = self.hosts.get(ip).map(|host| host.since);
        Some((*at, RequestBacklog { ahead: 0, hosts: self.turns, since }))
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The next request.
    pub fn first(&self) -> Option<&T> {
        self.requests.first_key_value().map(|(_, (.., request))| request)
    }

    /// Takes the next request at `at`.
    pub fn pop(&mut self, at: Time) -> Option<T> {
        let ((tag, _), (host, _, request)) = self.requests.pop_first()?;
        // Hosts that come back begin at the present turn, not at an old one.
        self.now = tag;
        self.left(at, host);
        Some(request)
    }

    /// Takes a particular request at `at`.
    pub fn remove(&mut self, at: Time, place: Place) -> Option<T> {
        let (host, _, request) = self.requests.remove(&place)?;
        self.left(at, host);
        Some(request)
    }

    /// The request at a place, if it waits.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.requests.get_mut(&place).map(|(.., request)| request)
    }

    /// True while the request at a place waits.
    pub fn contains(&self, place: Place) -> bool {
        self.requests.contains_key(&place)
    }

    fn left(&mut self, at: Time, host: IpAddr) {
        let Some(of_host) = self.hosts.get_mut(&host) else { return };
        of_host.waiting -= 1;
        if of_host.waiting > 0 {
            return;
        }
        of_host.empty = at;
        self.turns -= 1;
        // Forgotten together, so that the search is paid for by as many requests.
        if self.hosts.len() > self.turns.max(EMPTY_MAX) * 2 {
            self.hosts.retain(|_, host| host.waiting > 0);
        }
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// All waiting requests.
    pub fn into_requests(self) -> impl Iterator<Item = T> {
        self.requests.into_values().map(|(.., request)| request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests are identified by their host and port.
    type Queue = FairQueue<(u8, u16)>;

    fn push(queue: &mut Queue, (host, port): (u8, u16)) -> Place {
        let at = Time(u64::from(port));
        queue.push(at, ([10, 0, 0, host], port).into(), (host, port), Duration(3))
    }

    fn hosts(queue: &mut Queue, count: usize) -> Vec<u8> {
        (0..count).map(|_| queue.pop(Time(0)).unwrap().0).collect()
    }

    #[test]
    fn hosts_take_turns_however_many_requests_and_ports_each_has() {
        let mut queue = Queue::default();
        let requests = (0..1_000).map(|n| (1, n)).chain((0..3).map(|n| (2, n)));
        for request in requests.chain([(3, 0)]) {
            push(&mut queue, request);
        }
        let first = hosts(&mut queue, 8);
        assert_eq!(first, [1, 2, 3, 1, 2, 1, 2, 1]);
        // A host that comes later is served next, and owes nothing for turns that it did not use.
        push(&mut queue, (2, 7));
        let next = hosts(&mut queue, 2);
        assert!(next.contains(&2), "{next:?}");
    }

    #[test]
    fn one_host_is_served_in_order_and_cancelled_requests_leave() {
        let mut queue = Queue::default();
        let places: Vec<Place> = (0..10).map(|n| push(&mut queue, (1, n))).collect();
        assert_eq!(queue.remove(Time(0), places[3]), Some((1, 3)));
        assert!(queue.remove(Time(0), places[3]).is_none() && !queue.contains(places[3]));
        assert!(queue.contains(places[4]) && queue.first() == Some(&(1, 0)));
        let ports: Vec<u16> =
            std::iter::from_fn(|| queue.pop(Time(0))).map(|(_, port)| port).collect();
        assert_eq!(ports, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(queue.is_empty() && queue.turns == 0);
    }

    #[test]
    fn the_time_without_an_empty_queue_is_that_of_each_host() {
        let mut queue = Queue::default();
        let since = |queue: &Queue, host| queue.before(([10, 0, 0, host], 1).into()).since;
        let mut places: Vec<Place> = (1..4).map(|n| push(&mut queue, (1, n))).collect();
        push(&mut queue, (2, 5));
        assert_eq!([1, 2, 3].map(|host| since(&queue, host)), [Some(Time(1)), Some(Time(5)), None]);
        // All requests of the first host are cancelled, and others come soon or later.
        for (again, expected) in [(9, 1), (13, 13)] {
            places
                .drain(..)
                .for_each(|place| assert!(queue.remove(Time(again - 3), place).is_some()));
            assert_eq!(since(&queue, 1), None);
            let pause = Duration(if expected == 1 { 3 } else { 2 });
            let from = ([10, 0, 0, 1], 1).into();
            places.push(queue.push(Time(again), from, (1, 1), pause));
            assert_eq!(since(&queue, 1), Some(Time(expected)));
        }
        assert_eq!(queue.before_first().unwrap().1.since, Some(Time(5)));
    }

    #[test]
    fn hosts_that_have_gone_are_forgotten() {
        let mut queue = FairQueue::default();
        for n in 0..100_000u32 {
            let at = Time(u64::from(n));
            queue.push(at, (n.to_be_bytes(), 1).into(), n, Duration::ZERO);
            assert_eq!(queue.pop(at), Some(n));
        }
        assert!(queue.hosts.len() <= 2 * EMPTY_MAX, "{}", queue.hosts.len());
    }
}
