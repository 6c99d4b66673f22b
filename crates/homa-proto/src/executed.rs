//! Which of a client's RPCs were executed (profile `default`, at most once): per client epoch a
//! watermark and a bitmap above it. Late duplicates of a forgotten request then never run again,
//! and a server can tell a client how far back its memory reaches.
//!
//! Invariant: what is at or below the watermark counts as executed; memory per peer is bounded.

use crate::packet::RpcId;
use crate::rpc::id::split;
use crate::units::Time;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Ids remembered above the watermark.
const WINDOW: u32 = 1 << 18;
/// Client epochs remembered per peer: a client that restarts makes a new one.
const EPOCHS: usize = 4;

#[derive(Debug)]
struct Epoch {
    epoch: u32,
    /// Counters below this are executed; a multiple of 64.
    base: u32,
    bits: VecDeque<u64>,
}

/// The executed RPCs of one peer.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Most recently used last.
    epochs: Vec<Epoch>,
    /// Nothing executed since this time was forgotten.
    pub(crate) since: Time,
}

impl Executed {
    pub(crate) const fn new(since: Time) -> Self {
        Self { epochs: Vec::new(), since }
    }

    pub(crate) fn contains(&self, id: RpcId) -> bool {
        let (epoch, counter) = split(id);
        let Some(e) = self.epochs.iter().find(|e| e.epoch == epoch) else {
            return false;
        };
        match counter.checked_sub(e.base) {
            None => true,
            Some(n) => e.bits.get(n as usize / 64).is_some_and(|w| w >> (n % 64) & 1 == 1),
        }
    }

    pub(crate) fn insert(&mut self, now: Time, id: RpcId) {
        let (epoch, counter) = split(id);
        let e = self.epoch(now, epoch, counter);
        if counter < e.base {
            return;
        }
        let top = (counter - e.base) / 64;
        if top >= WINDOW / 64 {
            let drop = (top + 1 - WINDOW / 64).min(e.bits.len() as u32);
            e.bits.drain(..drop as usize);
            e.base = (counter & !63) - (WINDOW - 64);
        }
        let n = counter - e.base;
        let word = n as usize / 64;
        if e.bits.len() <= word {
            e.bits.resize(word + 1, 0);
        }
        e.bits[word] |= 1 << (n % 64);
        while e.bits.front() == Some(&u64::MAX) {
            e.bits.pop_front();
            e.base += 64;
        }
    }

    /// The record of `epoch`, moved to the most recent place; the stalest is forgotten for a new
    /// one.
    fn epoch(&mut self, now: Time, epoch: u32, counter: u32) -> &mut Epoch {
        match self.epochs.iter().position(|e| e.epoch == epoch) {
            Some(at) if at + 1 == self.epochs.len() => {}
            Some(at) => self.epochs[at..].rotate_left(1),
            None => {
                if self.epochs.len() == EPOCHS {
                    self.epochs.remove(0);
                    self.since = now;
                }
                let base = (counter & !63).saturating_sub(WINDOW / 2);
                self.epochs.push(Epoch { epoch, base: base & !63, bits: VecDeque::new() });
            }
        }
        let last = self.epochs.len() - 1;
        &mut self.epochs[last]
    }

    /// True when nothing was ever recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn id(epoch: u64, counter: u64) -> RpcId {
        RpcId(epoch << 32 | counter << 1)
    }

    #[test]
    fn remembers_exactly_what_was_executed_within_the_window() {
        arbtest::arbtest(|u| {
            let mut ours = Executed::new(Time::ZERO);
            let mut model = BTreeSet::new();
            let mut counter = u.int_in_range(0..=1_000_000u64)?;
            for _ in 0..u.int_in_range(0..=200)? {
                counter += u.int_in_range(0..=300u64)?;
                let late = counter.saturating_sub(u.int_in_range(0..=500u64)?);
                ours.insert(Time::ZERO, id(7, late));
                model.insert(late);
                let probe = counter.saturating_sub(u.int_in_range(0..=1000)?);
                let first = *model.first().unwrap();
                if probe >= first {
                    assert_eq!(ours.contains(id(7, probe)), model.contains(&probe));
                }
                assert!(!ours.contains(id(8, probe)));
            }
            Ok(())
        });
    }

    #[test]
    fn memory_is_bounded_and_the_forgotten_count_as_executed() {
        let mut ours = Executed::new(Time::ZERO);
        for n in 0..2000u64 {
            ours.insert(Time::ZERO, id(1, n * 1000 + 7));
        }
        assert!(ours.epochs[0].bits.len() <= WINDOW as usize / 64);
        assert!(ours.contains(id(1, 3)) && !ours.contains(id(1, 1_999_000)));
        for epoch in 2..10 {
            ours.insert(Time(epoch), id(epoch, 5));
        }
        assert_eq!(ours.epochs.len(), EPOCHS);
        assert!(ours.since > Time::ZERO);
    }
}
