//! A driver in memory that calls a function each time before it receives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};

use homa::driver::{Driver, Gather, Outbox, ReceivedTrain, UnreachableReport};
use homa::metrics::DriverCounters;
use homa::proto::LinkId;

/// See the module's documentation.
pub struct Before<D, F> {
    pub driver: D,
    pub hook: F,
}

impl<D: Driver, F: FnMut(&dyn Driver) + Send> Driver for Before<D, F> {
    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.driver.bind(at)
    }
    fn unbind(&mut self, socket: usize) {
        self.driver.unbind(socket);
    }
    fn local(&self) -> &[SocketAddr] {
        self.driver.local()
    }
    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.driver.reaches(socket, to)
    }
    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        self.driver.send(outbox, messages);
    }
    fn receive(&mut self, expected: bool) -> usize {
        (self.hook)(&self.driver);
        self.driver.receive(expected)
    }
    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        self.driver.received(index)
    }
    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.driver.unreachable()
    }
    fn queued(&self, link: LinkId) -> Option<u32> {
        self.driver.queued(link)
    }
    fn receive_buffer(&self) -> u32 {
        self.driver.receive_buffer()
    }
    fn unread(&self) -> u64 {
        self.driver.unread()
    }
    fn handles(&self) -> Vec<RawFd> {
        self.driver.handles()
    }
    fn first_handle(&self) -> BorrowedFd<'_> {
        self.driver.first_handle()
    }
    fn counters(&self) -> &DriverCounters {
        self.driver.counters()
    }
}
