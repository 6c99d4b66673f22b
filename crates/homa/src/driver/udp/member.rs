//! One of several drivers that share an address: what the network reports comes to any of them.
//!
//! The kernel steers datagrams by the group's program, but picks the socket for an ICMP message by
//! a hash of its own. So each driver hands on what is about a peer of another.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::directory::ShardDirectory;
use super::error_queue::{IcmpReports, PathReport, REPORTS_MAX};
use super::steering::Steering;
use crate::driver::Waker;

/// A driver's place in its group.
#[derive(Debug)]
pub struct Member {
    steering: Steering,
    number: usize,
    inboxes: Arc<[Inbox]>,
    place: ShardDirectory,
}

/// What others heard for a driver. Whoever holds the lock finds the handle readable exactly where
/// there are reports: one that stayed readable without any would keep a thread from sleeping.
#[derive(Debug)]
struct Inbox {
    /// There are reports. Looked at without the lock, written under it.
    any: AtomicBool,
    reports: Mutex<Vec<PathReport>>,
    waker: Waker,
}

impl Member {
    /// The places of a group.
    pub fn all(steering: Steering) -> io::Result<Vec<Self>> {
        let inbox = |_| {
            let waker = Waker::new()?;
            Ok(Inbox { any: AtomicBool::new(false), reports: Mutex::default(), waker })
        };
        let inboxes: Arc<[Inbox]> = (0..steering.shards()).map(inbox).collect::<io::Result<_>>()?;
        let member = |(number, place)| Self { steering, number, inboxes: inboxes.clone(), place };
        Ok(ShardDirectory::all(steering.shards()).enumerate().map(member).collect())
    }

    /// Where it looks up the clients of the others.
    pub fn place(&self) -> ShardDirectory {
        self.place.clone()
    }

    /// Becomes readable when others heard something.
    pub fn handle(&self) -> RawFd {
        self.inboxes[self.number].waker.handle()
    }

    /// True for a peer of this driver.
    pub fn hears(&self, peer: SocketAddr) -> bool {
        self.steering.shard_of(peer) == self.number
    }

    /// Hands a report about `to` on to whose peer that is; false if that is this driver.
    pub fn hand_on(&self, to: SocketAddr, report: PathReport) -> bool {
        if self.hears(to) {
            return false;
        }
        let inbox = &self.inboxes[self.steering.shard_of(to)];
        let mut reports = inbox.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // What is too much is forgotten, as where there is one driver.
        if reports.len() < REPORTS_MAX {
            reports.push(report);
        }
        if !inbox.any.swap(true, Ordering::AcqRel) {
            inbox.waker.wake();
        }
        true
    }

    /// Takes in what others heard.
    pub fn take(&self, into: &mut IcmpReports) {
        let inbox = &self.inboxes[self.number];
        if !inbox.any.load(Ordering::Acquire) {
            return;
        }
        let reports = {
            let mut reports = inbox.reports.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.waker.reset();
            inbox.any.store(false, Ordering::Release);
            std::mem::take(&mut *reports)
        };
        reports.into_iter().for_each(|report| into.push(report));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::driver::{UnreachableReport, wait};

    #[test]
    fn a_driver_can_sleep_once_it_took_every_report_however_takes_and_reports_overlap() {
        const REPORTS: u32 = 20_000;
        let steering = Steering::new(2, 7 << 32);
        let members = Member::all(steering).unwrap();
        let [a, b] = members.try_into().unwrap();
        let mut peers = (1..).map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let to = peers.find(|&peer| b.hears(peer)).unwrap();
        let quoted = Default::default();
        let report = PathReport::Unreachable(UnreachableReport {
            to,
            what: homa_proto::Unreachable::Port(to.port()),
            quoted,
        });
        let (begun, handed_on) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=REPORTS {
                    while begun.load(Ordering::Acquire) < n {
                        thread::yield_now();
                    }
                    assert!(a.hand_on(to, report));
                    handed_on.store(n, Ordering::Release);
                }
            });
            let mut stuck = 0;
            for n in 1..=REPORTS {
                begun.store(n, Ordering::Release);
                let mut into = IcmpReports::default();
                // As an engine that looks at its driver for other reasons, too.
                while handed_on.load(Ordering::Acquire) < n {
                    b.take(&mut into);
                }
                b.take(&mut into);
                assert!(into.unreachable().is_some());
                stuck += u32::from(wait(&[b.handle()], None, Some(Duration::ZERO)).unwrap());
                b.inboxes[1].waker.reset();
            }
            assert_eq!(stuck, 0, "readable with nothing there, of {REPORTS} times");
        });
    }
}
