//! A driver's membership in a shard group: network reports may arrive at any member.
//!
//! The kernel steers datagrams with the group's program, but chooses the socket for an ICMP message
//! by another hash. So each driver passes on the reports about peers of another.

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

/// Reports that other drivers received for this one. While the lock is held, the handle is readable
/// exactly if there are reports: if it stayed readable without any, threads could not sleep.
#[derive(Debug)]
struct Inbox {
    /// True if there are reports. Read without the lock, written under it.
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

    /// This engine's view of the client directory.
    pub fn place(&self) -> ShardDirectory {
        self.place.clone()
    }

    /// Becomes readable when another driver passes on a report.
    pub fn handle(&self) -> RawFd {
        self.inboxes[self.number].waker.handle()
    }

    /// True for a peer of this driver.
    pub fn hears(&self, peer: SocketAddr) -> bool {
        self.steering.shard_of(peer) == self.number
    }

    /// Passes a report about `to` on to the driver of that peer; false if that is this driver.
    pub fn hand_on(&self, to: SocketAddr, report: PathReport) -> bool {
        if self.hears(to) {
            return false;
        }
        let inbox = &self.inboxes[self.steering.shard_of(to)];
        let mut reports = inbox.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // Too many reports are dropped, as with a single driver.
        if reports.len() < REPORTS_MAX {
            reports.push(report);
        }
        if !inbox.any.swap(true, Ordering::AcqRel) {
            inbox.waker.wake();
        }
        true
    }

    /// Takes the reports that other drivers passed on.
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
    fn a_driver_can_sleep_once_it_has_taken_every_report() {
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
