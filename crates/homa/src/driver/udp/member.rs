//! One of several drivers that share an address: what the network reports comes to any of them.
//!
//! The kernel steers datagrams by the group's program, but picks the socket for an ICMP message by
//! a hash of its own. So each driver hands on what is about a peer of another.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::error_queue::{Meaning, REPORTS_MAX, Reports};
use super::steering::Steering;
use crate::driver::Waker;

/// A driver's place in its group.
#[derive(Debug)]
pub struct Member {
    steering: Steering,
    number: usize,
    inboxes: Arc<[Inbox]>,
}

/// What others heard for a driver.
#[derive(Debug)]
struct Inbox {
    /// Looked at without the lock.
    any: AtomicBool,
    reports: Mutex<Vec<Meaning>>,
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
        let member = |number| Self { steering, number, inboxes: inboxes.clone() };
        Ok((0..steering.shards()).map(member).collect())
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
    pub fn hand_on(&self, to: SocketAddr, report: Meaning) -> bool {
        if self.hears(to) {
            return false;
        }
        let inbox = &self.inboxes[self.steering.shard_of(to)];
        let mut reports = inbox.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // What is too much is forgotten, as where there is one driver.
        if reports.len() < REPORTS_MAX {
            reports.push(report);
        }
        drop(reports);
        if !inbox.any.swap(true, Ordering::AcqRel) {
            inbox.waker.wake();
        }
        true
    }

    /// Takes in what others heard.
    pub fn take(&self, into: &mut Reports) {
        let inbox = &self.inboxes[self.number];
        if !inbox.any.load(Ordering::Acquire) {
            return;
        }
        // In this order: who comes later wakes again.
        inbox.waker.reset();
        inbox.any.store(false, Ordering::Release);
        let reports =
            std::mem::take(&mut *inbox.reports.lock().unwrap_or_else(PoisonError::into_inner));
        reports.into_iter().for_each(|report| into.push(report));
    }
}
