//! A network inside one process, for tests and for machines without network namespaces.
//!
//! Datagrams move from queue to queue. Loss and duplication can be requested, and are decided by a
//! seed. There is no time, rate, or order except first-in, first-out per receiver; that is the
//! simulator's task.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homa_proto::wire::datagram;
use homa_proto::{LinkId, Unreachable};

use super::{
    Driver, DriverCounters, Gather, Outbox, ReceivedTrain, TRAIN_OVERHEAD, TrainPiece,
    UnreachableReport, Waker, first_free, put,
};

/// Most datagrams in a receive queue; more are lost, as in a real one.
const QUEUE_MAX: usize = 4096;
/// Datagrams received at a time.
const BATCH: usize = 64;

/// Faults of a [`MemoryNetwork`], each per million datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkFaults {
    /// Datagrams lost.
    pub lost: u32,
    /// Datagrams delivered twice.
    pub duplicated: u32,
}

impl NetworkFaults {
    /// No faults.
    pub const NONE: Self = Self { lost: 0, duplicated: 0 };

    /// Sets how many of a million datagrams are lost.
    pub const fn lost(mut self, lost: u32) -> Self {
        self.lost = lost;
        self
    }

    /// Sets how many of a million datagrams are delivered twice.
    pub const fn duplicated(mut self, duplicated: u32) -> Self {
        self.duplicated = duplicated;
        self
    }
}

/// A network in memory. Clones are handles of the same network.
#[derive(Clone, Debug)]
pub struct MemoryNetwork(Arc<Mutex<MemoryState>>);

#[derive(Debug)]
struct MemoryState {
    queues: HashMap<SocketAddr, SocketQueue>,
    faults: NetworkFaults,
    random: u64,
    next_port: u16,
}

#[derive(Debug)]
struct SocketQueue {
    waiting: VecDeque<MemoryDatagram>,
    waker: Arc<Waker>,
    overflows: u64,
}

#[derive(Clone, Debug)]
struct MemoryDatagram {
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl MemoryNetwork {
    /// A network whose faults are decided by `seed`.
    pub fn new(seed: u64, faults: NetworkFaults) -> Self {
        let state =
            MemoryState { queues: HashMap::new(), faults, random: seed | 1, next_port: 32768 };
        Self(Arc::new(Mutex::new(state)))
    }

    /// A driver at `at`; port 0 picks a free one.
    ///
    /// # Errors
    /// `AddrInUse` if another driver has the address.
    pub fn driver(&self, at: SocketAddr) -> io::Result<impl Driver + use<>> {
        self.attach(at)
    }

    /// As [`Self::driver`].
    pub(crate) fn attach(&self, at: SocketAddr) -> io::Result<MemoryDriver> {
        let mut driver = MemoryDriver {
            network: self.clone(),
            waker: Arc::new(Waker::new()?),
            local: Vec::new(),
            open: Vec::new(),
            inbox: Vec::new(),
            unreachable: VecDeque::new(),
            counters: DriverCounters::default(),
        };
        driver.bind(at)?;
        Ok(driver)
    }

    /// Puts a datagram into the queue of a socket; false if no driver has the address.
    #[cfg(feature = "testing")]
    pub(crate) fn put(&self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) -> bool {
        self.state().deliver(to, MemoryDatagram { from, bytes })
    }

    /// Closes a socket although its driver still exists.
    #[cfg(feature = "testing")]
    pub(crate) fn close(&self, at: SocketAddr) {
        self.state().queues.remove(&at);
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.state().faults = faults;
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    /// True with a probability of `per_million`.
    fn chance(&mut self, per_million: u32) -> bool {
        // A xorshift generator is good enough to drop packets.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000 < u64::from(per_million)
    }

    /// Delivers a datagram; false if no driver has the address.
    fn deliver(&mut self, to: SocketAddr, datagram: MemoryDatagram) -> bool {
        let copies = match (self.chance(self.faults.lost), self.chance(self.faults.duplicated)) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let Some(queue) = self.queues.get_mut(&to) else { return false };
        for _ in 0..copies {
            if queue.waiting.len() >= QUEUE_MAX {
                queue.overflows += 1;
                continue;
            }
            if queue.waiting.is_empty() {
                queue.waker.wake();
            }
            queue.waiting.push_back(datagram.clone());
        }
        true
    }
}

/// One host's attachment to a [`MemoryNetwork`].
#[derive(Debug)]
pub(crate) struct MemoryDriver {
    network: MemoryNetwork,
    waker: Arc<Waker>,
    local: Vec<SocketAddr>,
    /// By socket number.
    open: Vec<bool>,
    inbox: Vec<(usize, MemoryDatagram)>,
    unreachable: VecDeque<UnreachableReport>,
    counters: DriverCounters,
}

impl MemoryDriver {
    /// Cuts a batch into datagrams and counts them. `deliver` gets the sender, the receiver, and
    /// the bytes of each; false if no socket has the receiver's address.
    pub(crate) fn send_by(
        &mut self,
        outbox: &Outbox,
        messages: &dyn Gather,
        mut deliver: impl FnMut(SocketAddr, SocketAddr, Vec<u8>) -> bool,
    ) {
        for train in &outbox.trains {
            let mut bytes = Vec::with_capacity(train.len);
            for piece in &outbox.pieces[train.pieces.clone()] {
                match piece {
                    TrainPiece::Buffered(range) => {
                        bytes.extend_from_slice(&outbox.bytes[range.clone()])
                    }
                    TrainPiece::Message(span) => bytes.extend_from_slice(messages.bytes(*span)),
                }
            }
            let from = self.local[train.socket];
            for datagram in bytes.chunks(train.datagram.max(1)) {
                if !deliver(from, train.to, datagram.to_vec()) {
                    self.counters.trains_refused += 1;
                    self.unreachable.push_back(UnreachableReport {
                        to: train.to,
                        what: Unreachable::Port(train.to.port()),
                        quoted: datagram::quoted(datagram),
                    });
                    break;
                }
            }
            self.counters.trains_sent += 1;
            self.counters.datagrams_sent += train.datagrams() as u64;
            self.counters.bytes_sent += train.len as u64;
        }
        self.counters.send_calls += 1;
    }

    /// Open local addresses and their numbers.
    fn open(&self) -> impl Iterator<Item = (usize, &SocketAddr)> {
        self.local.iter().enumerate().filter(|&(number, _)| self.open[number])
    }
}

impl Driver for MemoryDriver {
    fn bind(&mut self, mut at: SocketAddr) -> io::Result<SocketAddr> {
        let mut state = self.network.state();
        while at.port() == 0 {
            let candidate = SocketAddr::new(at.ip(), state.next_port.max(1));
            state.next_port = state.next_port.wrapping_add(1);
            if !state.queues.contains_key(&candidate) {
                at = candidate;
            }
        }
        if state.queues.contains_key(&at) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let waker = self.waker.clone();
        state.queues.insert(at, SocketQueue { waiting: VecDeque::new(), waker, overflows: 0 });
        let number = first_free(self.open.iter().copied());
        put(&mut self.local, number, at);
        put(&mut self.open, number, true);
        Ok(at)
    }

    fn unbind(&mut self, socket: usize) {
        self.open[socket] = false;
        self.network.state().queues.remove(&self.local[socket]);
    }

    fn local(&self) -> &[SocketAddr] {
        &self.local
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.local.get(socket).is_some_and(|local| local.is_ipv4() == to.is_ipv4())
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        let network = self.network.clone();
        let mut state = network.state();
        self.send_by(outbox, messages, |from, to, bytes| {
            state.deliver(to, MemoryDatagram { from, bytes })
        });
    }

    fn receive(&mut self, _expected: bool) -> usize {
        self.inbox.clear();
        let mut state = self.network.state();
        self.counters.receive_overflows = 0;
        for (socket, local) in self.local.iter().enumerate().filter(|&(n, _)| self.open[n]) {
            let Some(queue) = state.queues.get_mut(local) else { continue };
            self.counters.receive_overflows += queue.overflows;
            let n = queue.waiting.len().min(BATCH);
            self.inbox.extend(queue.waiting.drain(..n).map(|datagram| (socket, datagram)));
        }
        // Level triggered: the waker stays set while datagrams are left.
        let left =
            self.open().any(|(_, l)| state.queues.get(l).is_some_and(|q| !q.waiting.is_empty()));
        if !left {
            self.waker.reset();
        }
        self.counters.receive_calls += 1;
        self.counters.trains_received += self.inbox.len() as u64;
        self.counters.datagrams_received += self.inbox.len() as u64;
        let bytes: usize = self.inbox.iter().map(|(_, d)| d.bytes.len()).sum();
        self.counters.bytes_received += bytes as u64;
        self.inbox.len()
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        let (socket, datagram) = &self.inbox[index];
        ReceivedTrain {
            from: datagram.from,
            socket: *socket,
            to: None,
            datagram: datagram.bytes.len().max(1),
            bytes: &datagram.bytes,
        }
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.unreachable.pop_front()
    }

    fn queued(&self, _: LinkId) -> Option<u32> {
        Some(0)
    }

    fn receive_buffer(&self) -> u32 {
        QUEUE_MAX as u32 * 1500
    }

    fn unread(&self) -> u64 {
        let state = self.network.state();
        let queues = self.open().filter_map(|(_, local)| state.queues.get(local));
        queues.flat_map(|q| &q.waiting).map(|d| (d.bytes.len() + TRAIN_OVERHEAD) as u64).sum()
    }

    fn handles(&self) -> Vec<RawFd> {
        vec![self.waker.handle()]
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

impl Drop for MemoryDriver {
    fn drop(&mut self) {
        let mut state = self.network.state();
        for (_, local) in self.open() {
            state.queues.remove(local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Train;

    struct Nothing;
    impl Gather for Nothing {
        fn bytes(&self, _: homa_proto::Span) -> &[u8] {
            &[]
        }
    }

    fn outbox(to: SocketAddr, bytes: &[u8], datagram: usize) -> Outbox {
        let len = bytes.len();
        Outbox {
            bytes: bytes.to_vec(),
            pieces: vec![TrainPiece::Buffered(0..len)],
            trains: vec![Train {
                to,
                link: LinkId(0),
                socket: 0,
                source: None,
                tos: 0x60,
                datagram,
                len,
                pieces: 0..1,
            }],
        }
    }

    #[test]
    fn a_train_arrives_as_its_datagrams() {
        let network = MemoryNetwork::new(1, NetworkFaults::default());
        let mut a = network.driver("10.0.0.1:0".parse().unwrap()).unwrap();
        let mut b = network.driver("10.0.0.2:7".parse().unwrap()).unwrap();
        a.send(&outbox(b.local()[0], b"abcdefgh", 3), &Nothing);
        assert_eq!(b.receive(false), 3);
        let got = b.received(2);
        assert_eq!((got.bytes, got.from), (&b"gh"[..], a.local()[0]));
        assert_eq!(b.receive(false), 0);
    }

    #[test]
    fn loss_and_duplication_happen_about_as_often_as_asked() {
        let network = MemoryNetwork::new(7, NetworkFaults { lost: 100_000, duplicated: 50_000 });
        let mut a = network.driver("10.0.0.1:0".parse().unwrap()).unwrap();
        let mut b = network.driver("10.0.0.2:7".parse().unwrap()).unwrap();
        let mut got = 0;
        for _ in 0..10_000 {
            a.send(&outbox(b.local()[0], b"x", 1), &Nothing);
            got += b.receive(false);
        }
        // 10,000 × 0.9 × 1.05 = 9,450; three standard deviations are about 115.
        assert!((9_300..9_600).contains(&got), "{got} arrived");
    }

    #[test]
    fn an_address_without_driver_is_reported_unreachable() {
        let network = MemoryNetwork::new(1, NetworkFaults::default());
        let mut a = network.driver("10.0.0.1:0".parse().unwrap()).unwrap();
        let to = "10.0.0.9:9".parse().unwrap();
        a.send(&outbox(to, b"x", 1), &Nothing);
        assert_eq!(
            a.unreachable(),
            Some(UnreachableReport { to, what: Unreachable::Port(9), quoted: None })
        );
    }
}
