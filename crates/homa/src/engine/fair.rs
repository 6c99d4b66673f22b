//! Requests that wait for an acceptor, in turns of their clients' hosts: whoever sends more than is
//! served waits behind its own requests, not others behind them (start-time fair queueing, Goyal,
//! Vin and Cheng 1996, with requests of equal weight).

use std::collections::BTreeMap;
use std::net::IpAddr;

use hashbrown::HashMap;

use super::accounts::host_of;
use super::switchboard::Arrived;

/// A request's place: its start tag, then order of arrival.
pub type Place = (u64, u64);

/// What waits of one host.
#[derive(Debug)]
struct Host {
    /// Start tag of its last request.
    last: u64,
    waiting: u32,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct FairQueue {
    requests: BTreeMap<Place, Arrived>,
    /// Those of which something waits.
    hosts: HashMap<IpAddr, Host>,
    /// Start tag of the request that was taken last.
    now: u64,
    arrivals: u64,
}

impl FairQueue {
    /// Adds a request.
    pub fn push(&mut self, request: Arrived) -> Place {
        let now = self.now;
        let host = host_of(request.from.ip());
        let host = self.hosts.entry(host).or_insert(Host { last: now, waiting: 0 });
        if host.waiting > 0 {
            host.last += 1;
        }
        host.waiting += 1;
        self.arrivals += 1;
        let place = (host.last, self.arrivals);
        self.requests.insert(place, request);
        place
    }

    /// Takes the request whose turn it is.
    pub fn pop(&mut self) -> Option<Arrived> {
        let ((tag, _), request) = self.requests.pop_first()?;
        self.now = tag;
        self.left(&request);
        Some(request)
    }

    /// Takes a certain one.
    pub fn remove(&mut self, place: Place) -> Option<Arrived> {
        let request = self.requests.remove(&place)?;
        self.left(&request);
        Some(request)
    }

    fn left(&mut self, request: &Arrived) {
        let host = host_of(request.from.ip());
        if let Some(of_host) = self.hosts.get_mut(&host) {
            of_host.waiting -= 1;
            if of_host.waiting == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// All that wait.
    pub fn into_requests(self) -> impl Iterator<Item = Arrived> {
        self.requests.into_values()
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::RpcHandle;

    use super::*;
    use crate::message::Message;

    fn from(host: u8, port: u16) -> Arrived {
        let rpc = RpcHandle { index: u32::from(port), generation: u32::from(host) };
        Arrived { rpc, from: ([10, 0, 0, host], port).into(), bytes: Message::from(vec![host]) }
    }

    fn hosts(queue: &mut FairQueue, count: usize) -> Vec<u8> {
        (0..count).map(|_| queue.pop().unwrap().bytes[0]).collect()
    }

    #[test]
    fn hosts_take_turns_however_many_requests_and_ports_each_has() {
        let mut queue = FairQueue::default();
        let requests = (0..1_000).map(|n| from(1, n)).chain((0..3).map(|n| from(2, n)));
        for request in requests.chain([from(3, 0)]) {
            queue.push(request);
        }
        let first = hosts(&mut queue, 8);
        assert_eq!(first, [1, 2, 3, 1, 2, 1, 2, 1]);
        // Who comes later than others is next, and owes nothing for what it did not use.
        queue.push(from(2, 7));
        let next = hosts(&mut queue, 2);
        assert!(next.contains(&2), "{next:?}");
    }

    #[test]
    fn alone_a_host_is_served_in_order_and_what_is_given_up_leaves() {
        let mut queue = FairQueue::default();
        let places: Vec<Place> = (0..10).map(|n| queue.push(from(1, n))).collect();
        assert_eq!(queue.remove(places[3]).unwrap().from.port(), 3);
        assert!(queue.remove(places[3]).is_none());
        let ports: Vec<u16> =
            std::iter::from_fn(|| queue.pop()).map(|request| request.from.port()).collect();
        assert_eq!(ports, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(queue.is_empty() && queue.hosts.is_empty());
    }
}
