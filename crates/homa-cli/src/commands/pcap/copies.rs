//! Datagrams that a capture has twice: seen on two interfaces, or duplicated by the network.
//!
//! A sender gives each datagram a number and uses it once, whatever the datagram carries, so a
//! datagram with the ends, number and content of an earlier one is a copy of it. That also holds if
//! one of the two was captured inside a tunnel or in a train. Packets without such numbers (over IP
//! and TCP) cannot be told from packets that were sent again.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Datagrams that are remembered, 32 bytes each.
const REMEMBERED: usize = 1 << 16;
/// How far apart copies are captured at most, nanoseconds: what is later may come from a sender
/// that was started again.
const APART: i64 = 1_000_000_000;
/// Bytes of the content that are compared: all headers of a datagram, and what a capture that cuts
/// packets keeps of them.
const COMPARED: usize = 120;

/// The datagrams captured last.
#[derive(Debug, Default)]
pub struct Copies {
    /// By a keyed hash of what identifies it, when each was captured.
    seen: HashMap<u64, Option<i64>>,
    order: VecDeque<u64>,
    keys: RandomState,
}

impl Copies {
    /// Whether a datagram of that number between two sockets was captured before.
    pub fn seen(
        &mut self,
        ends: (SocketAddr, SocketAddr),
        (number, bytes): (u64, &[u8]),
        time: Option<i64>,
    ) -> bool {
        let compared = &bytes[..bytes.len().min(COMPARED)];
        let key = self.keys.hash_one((ends, number, compared));
        let near = |before: &Option<i64>| {
            before.zip(time).is_none_or(|(before, time)| time.abs_diff(before) <= APART as u64)
        };
        if self.seen.get(&key).is_some_and(near) {
            return true;
        }
        if self.seen.insert(key, time).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED {
            self.order.pop_front().map(|oldest| self.seen.remove(&oldest));
        }
        false
    }
}
