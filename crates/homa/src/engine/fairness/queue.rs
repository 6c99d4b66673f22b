//! Requests that wait to be accepted, in turns of their clients' hosts. If a host sends more than
//! is served, its requests wait behind each other and do not delay other hosts (start-time fair
//! queueing, Goyal, Vin and Cheng 1996, with requests of equal weight).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;

use super::accounts::host_of;

/// A request's place: its start tag, then its order of arrival.
pub type Place = (u64, u64);

/// The waiting requests of one host.
#[derive(Debug)]
struct HostQueue {
    /// Start tag of its last request.
    last: u64,
    waiting: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Requests with their hosts.
    requests: BTreeMap<Place, (IpAddr, T)>,
    /// Hosts that have waiting requests.
    hosts: HashMap<IpAddr, HostQueue>,
    /// Start tag of the last request that was taken.
    now: u64,
    arrivals: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), hosts: HashMap::new(), now: 0, arrivals: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds a request of a client.
    pub fn push(&mut self, from: SocketAddr, request: T) -> Place {
        let now = self.now;
        let ip = host_of(from.ip());
        let host = self.hosts.entry(ip).or_insert(HostQueue { last: now, waiting: 0 });
        if host.waiting > 0 {
            host.last += 1;
        }
        host.waiting += 1;
        self.arrivals += 1;
        let place = (host.last, self.arrivals);
        self.requests.insert(place, (ip, request));
        place
    }

    /// About how many requests are taken before one that arrives now: hosts take turns.
    pub fn ahead_of(&self, from: SocketAddr) -> usize {
        let own = self.hosts.get(&host_of(from.ip())).map_or(0, |host| host.waiting as usize);
        let turns = own.saturating_mul(self.hosts.len()).saturating_add(self.hosts.len());
        turns.min(self.requests.len())
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The next request.
    pub fn first(&self) -> Option<&T> {
        self.requests.first_key_value().map(|(_, (_, request))| request)
    }

    /// Takes the next request.
    pub fn pop(&mut self) -> Option<T> {
        let ((tag, _), (host, request)) = self.requests.pop_first()?;
        self.now = tag;
        self.left(host);
        Some(request)
    }

    /// Takes a particular request.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let (host, request) = self.requests.remove(&place)?;
        self.left(host);
        Some(request)
    }

    /// The request at a place, if it waits.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.requests.get_mut(&place).map(|(_, request)| request)
    }

    /// True while the request at a place waits.
    pub fn contains(&self, place: Place) -> bool {
        self.requests.contains_key(&place)
    }

    fn left(&mut self, host: IpAddr) {
        if let Some(of_host) = self.hosts.get_mut(&host) {
            of_host.waiting -= 1;
            if of_host.waiting == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// All waiting requests.
    pub fn into_requests(self) -> impl Iterator<Item = T> {
        self.requests.into_values().map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests are identified by their host and port.
    type Queue = FairQueue<(u8, u16)>;

    fn push(queue: &mut Queue, (host, port): (u8, u16)) -> Place {
        queue.push(([10, 0, 0, host], port).into(), (host, port))
    }

    fn hosts(queue: &mut Queue, count: usize) -> Vec<u8> {
        (0..count).map(|_| queue.pop().unwrap().0).collect()
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
        assert_eq!(queue.remove(places[3]), Some((1, 3)));
        assert!(queue.remove(places[3]).is_none() && !queue.contains(places[3]));
        assert!(queue.contains(places[4]) && queue.first() == Some(&(1, 0)));
        let ports: Vec<u16> = std::iter::from_fn(|| queue.pop()).map(|(_, port)| port).collect();
        assert_eq!(ports, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(queue.is_empty() && queue.hosts.is_empty());
    }
}
