//! RPC ids (Homa §3.1: globally unique, made by the client; Linux: even, the low bit names the
//! sender).
//!
//! An id is a random epoch (high 32 bits), a counter (31 bits) and a zero. A restarted process
//! draws another epoch, so its RPCs are never mistaken for those of its predecessor at the same
//! address. If asked for, the counter begins anywhere in its lower half: an attacker that does not
//! see packets has to guess 61 bits.

use crate::packet::RpcId;
use crate::util::random::Random;

/// The client's id generator.
#[derive(Debug)]
pub(crate) struct RpcIds {
    random: Random,
    epoch: u32,
    counter: u32,
    /// Counters begin at a random number.
    unguessable: bool,
}

/// Counters per epoch.
const COUNTERS: u32 = 1 << 31;

impl RpcIds {
    pub(crate) fn new(seed: u64, unguessable: bool) -> Self {
        let mut random = Random::new(seed);
        let epoch = Self::draw(&mut random);
        let mut ids = Self { random, epoch, counter: 0, unguessable };
        ids.counter = ids.start();
        ids
    }

    fn start(&mut self) -> u32 {
        if self.unguessable { (self.random.next() >> 32) as u32 % (COUNTERS / 2) } else { 0 }
    }

    /// Never zero: id 0 is reserved, and small ids are those of kernel hosts.
    fn draw(random: &mut Random) -> u32 {
        (random.next() >> 32) as u32 | 0x8000_0000
    }

    pub(crate) fn next(&mut self) -> RpcId {
        self.counter += 1;
        // All ids of the epoch are used: another epoch begins, as after a restart.
        if self.counter >= COUNTERS {
            self.epoch = Self::draw(&mut self.random);
            self.counter = self.start() + 1;
        }
        RpcId(u64::from(self.epoch) << 32 | u64::from(self.counter) << 1)
    }

    /// The epoch, and the counter of the next id.
    pub(crate) const fn upcoming(&self) -> (u32, u32) {
        (self.epoch, self.counter + 1)
    }
}

/// The two parts of an id that our own clients made.
pub(crate) const fn split(id: RpcId) -> (u32, u32) {
    ((id.0 >> 32) as u32, (id.0 as u32) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_even_distinct_and_differ_between_processes() {
        for unguessable in [false, true] {
            let new = |seed| RpcIds::new(seed, unguessable);
            let (mut a, mut b) = (new(1), new(2));
            let (x, y, z) = (a.next(), a.next(), b.next());
            assert!(!x.from_server() && x != y);
            assert_ne!(split(x).0, split(z).0);
            assert_eq!(split(y), (split(x).0, split(x).1 + 1));
            assert_eq!(split(x).1 == split(z).1, !unguessable);
        }
    }

    #[test]
    fn a_spent_counter_starts_another_epoch() {
        let mut ids = RpcIds::new(1, true);
        let before = ids.next();
        ids.counter = COUNTERS - 1;
        let after = ids.next();
        assert_ne!(split(before).0, split(after).0);
        assert!(split(after).1 <= COUNTERS / 2);
    }
}
