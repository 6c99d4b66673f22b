//! Which of a client's RPCs were executed (profile `default`, at most once): per client epoch a
//! watermark, and the RPCs above it that were executed. A late duplicate of a forgotten request is
//! not executed again, and a server can tell a client how far back its memory reaches.
//!
//! Counters are kept in words of 64. A run of full words is one entry; words without any executed
//! RPC have none.
//!
//! Invariants: counters below the watermark count as executed. The entries of a peer are bounded,
//! and so are the entries of all peers: a peer that adds one while its host has its share has its
//! watermark raised.
//!
//! Two things are forgotten, and late copies of their requests would be executed again: a peer that
//! the environment closes to make room for another, and the stalest of a peer's client epochs when
//! it begins a fifth ([`EPOCHS`]). Answers to RESENDs admit it from then on.

use crate::packet::{RefusalReason, RpcId};
use crate::rpc::split;
use crate::units::Time;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Words of all counters of 32 bits.
const WORDS: u32 = 1 << 26;
/// Words remembered from the watermark on, 2^18 counters.
const WINDOW: u32 = 1 << 12;
/// A request may be this many words beyond all others of its client; beyond that the client has to
/// identify itself first. It is a part of the window, so that the RPCs that are forgotten for it
/// are old.
const JUMP: u32 = WINDOW / 2;
/// Client epochs remembered per peer: a client that restarts makes a new one.
const EPOCHS: usize = 4;
/// Most entries over all peers, 16 MiB. If a host has its share, each of its epochs keeps
/// [`CROWDED`].
pub(crate) const MAX_ENTRIES: usize = 1 << 20;
const CROWDED: usize = 16;
/// RPCs of a peer that are known to be refused; older ones count as executed.
const MAX_REFUSED: usize = 64;
/// Entries checked one by one, newest first, before a binary search.
const NEAR: usize = 8;

/// Words from `start` to before `end` that have the same bits: one word, or a run of full ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordRange {
    start: u32,
    end: u32,
    bits: u64,
}

impl WordRange {
    const fn is_full(&self) -> bool {
        self.bits == u64::MAX
    }
}

/// The executed RPCs of one client epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientEpoch {
    epoch: u32,
    /// Words below this are executed.
    base: u32,
    /// Disjoint, ascending.
    entries: VecDeque<WordRange>,
}

impl ClientEpoch {
    /// An epoch in which nothing from `first` on was executed. Everything before counts as
    /// executed.
    pub(crate) fn beginning_at(epoch: u32, first: u32) -> Self {
        let (base, bits) = (first / 64, (1 << (first % 64)) - 1);
        let mut entries = VecDeque::new();
        if bits != 0 {
            entries.push_back(WordRange { start: base, end: base + 1, bits });
        }
        Self { epoch, base, entries }
    }

    /// An epoch from its number, its watermark, and its entries as [`Self::ranges`] has them;
    /// `None` if they are not those of any epoch.
    pub(crate) fn from_ranges(
        epoch: u32,
        base: u32,
        ranges: impl Iterator<Item = (u32, u32, u64)>,
    ) -> Option<Self> {
        let mut entries: VecDeque<WordRange> = VecDeque::new();
        if base > WORDS {
            return None;
        }
        for (start, end, bits) in ranges {
            let entry = WordRange { start, end, bits };
            let after = entries.back().map_or(base, |last| last.end);
            let fits = after <= start && start < end && end <= WORDS;
            if !fits || !entry.is_full() && end - start > 1 || bits == 0 {
                return None;
            }
            entries.push_back(entry);
        }
        Some(Self { epoch, base, entries })
    }

    /// The watermark, in words of 64 counters.
    pub(crate) const fn base(&self) -> u32 {
        self.base
    }

    /// The entries: first word, the word after the last, and the bits of each word between.
    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = (u32, u32, u64)> {
        self.entries.iter().map(|entry| (entry.start, entry.end, entry.bits))
    }

    /// Entries held.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u32 {
        self.epoch
    }

    /// True if a counter was executed; `None` if it is so far beyond all others that remembering it
    /// would forget them.
    pub(crate) fn execution(&self, counter: u32) -> Option<bool> {
        let newest = self.entries.back().map_or(self.base, |entry| entry.end);
        let word = counter / 64;
        if word > newest.saturating_add(JUMP) {
            None
        } else {
            Some(self.contains_word(word, counter % 64))
        }
    }

    /// True if a counter is above the watermark: then `contains` says whether it really was
    /// executed.
    pub(crate) const fn tells(&self, counter: u32) -> bool {
        counter / 64 >= self.base
    }

    /// True if a counter was executed, or counts as such.
    pub(crate) fn contains(&self, counter: u32) -> bool {
        self.contains_word(counter / 64, counter % 64)
    }

    /// Records a counter; see [`ReplayWindow::insert`].
    pub(crate) fn remember(&mut self, counter: u32, crowded: bool) -> isize {
        let before = self.entries.len();
        self.insert(counter / 64, counter % 64);
        if crowded {
            self.shorten(CROWDED);
        }
        // Quotas count entries, not capacity, so memory of entries that are gone is given back.
        if self.entries.capacity() > 4 * self.entries.len().max(CROWDED) {
            self.entries.shrink_to(2 * self.entries.len());
        }
        self.entries.len() as isize - before as isize
    }

    /// The place of a word among the entries, and whether it is there.
    fn find(&self, word: u32) -> (usize, bool) {
        // Nearly all are new or among the newest, and a binary search would miss the cache.
        let near = self.entries.iter().rev().take(NEAR).position(|e| e.end <= word);
        let at = match near {
            Some(after) => self.entries.len() - after,
            None => self.entries.partition_point(|e| e.end <= word),
        };
        (at, self.entries.get(at).is_some_and(|e| e.start <= word))
    }

    fn contains_word(&self, word: u32, bit: u32) -> bool {
        match self.find(word) {
            _ if word < self.base => true,
            (at, true) => self.entries[at].bits >> bit & 1 == 1,
            (_, false) => false,
        }
    }

    fn insert(&mut self, word: u32, bit: u32) {
        if word < self.base {
            return;
        }
        // The window moves: older words count as executed from now on.
        self.raise((word + 1).saturating_sub(WINDOW));
        let (at, found) = self.find(word);
        // The first executed RPC of its word.
        if !found {
            self.entries.insert(at, WordRange { start: word, end: word + 1, bits: 1 << bit });
        } else if !self.entries[at].is_full() {
            self.entries[at].bits |= 1 << bit;
            // Full words join, so that a client without gaps takes one entry.
            if self.entries[at].is_full() {
                self.join(at + 1);
                self.join(at);
            }
        }
        // The first run may have reached the watermark.
        self.raise(self.base);
    }

    /// Merges the entry at `at` into the one before it, if both are one run.
    fn join(&mut self, at: usize) {
        let Some(&entry) = self.entries.get(at).filter(|_| at > 0) else { return };
        let before = &mut self.entries[at - 1];
        if before.is_full() && entry.is_full() && before.end == entry.start {
            before.end = entry.end;
            self.entries.remove(at);
        }
    }

    /// Raises the watermark to `base`, and on through entries that are full from there.
    fn raise(&mut self, base: u32) {
        self.base = self.base.max(base);
        while let Some(first) = self.entries.front() {
            if first.end > self.base && !(first.is_full() && first.start <= self.base) {
                return;
            }
            self.base = self.base.max(first.end);
            self.entries.pop_front();
        }
    }

    /// Keeps the newest `most` entries.
    fn shorten(&mut self, most: usize) {
        while self.entries.len() > most {
            self.raise(self.entries[0].end);
        }
    }
}

/// Why a request will not be executed (again).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalRecord {
    /// No server listened at its port: it was not executed.
    NoServer,
    /// The server's application gave this reason.
    Reason(RefusalReason),
}

/// The executed RPCs of one peer.
#[derive(Debug, Default)]
pub(crate) struct ReplayWindow {
    /// Most recently used last.
    epochs: Vec<ClientEpoch>,
    /// RPCs among them that were refused, the latest last.
    refused: VecDeque<(RpcId, RefusalRecord)>,
    /// Nothing executed since this time was forgotten.
    since: Time,
}

impl ReplayWindow {
    pub(crate) const fn new(since: Time) -> Self {
        Self { epochs: Vec::new(), refused: VecDeque::new(), since }
    }

    /// Nothing executed since this time was forgotten.
    pub(crate) const fn since(&self) -> Time {
        self.since
    }

    /// Starts the memory now, because the endpoint did not know the time before.
    pub(crate) fn restart(&mut self, now: Time) {
        self.since = now;
    }

    /// An RPC that was just recorded by [`ReplayWindow::insert`] for the first time is refused for
    /// ever.
    pub(crate) fn refuse(&mut self, id: RpcId, why: RefusalRecord) {
        if self.refused.len() == MAX_REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back((id, why));
    }

    /// Why an RPC was refused, if it was one of the last.
    pub(crate) fn refusal(&self, id: RpcId) -> Option<RefusalRecord> {
        self.refused.iter().find(|(refused, _)| *refused == id).map(|(_, why)| *why)
    }

    /// RPCs that were refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = RpcId> {
        self.refused.iter().map(|(id, _)| *id)
    }

    pub(crate) fn contains(&self, id: RpcId) -> bool {
        let (epoch, counter) = split(id);
        let known = self.epochs.iter().find(|e| e.epoch == epoch);
        known.is_some_and(|e| e.contains(counter))
    }

    /// True if an RPC was executed; `None` if the epoch is not known, or the counter is too far
    /// ahead.
    pub(crate) fn execution(&self, id: RpcId) -> Option<bool> {
        let (epoch, counter) = split(id);
        self.epochs.iter().find(|e| e.epoch == epoch)?.execution(counter)
    }

    /// A client begins with an epoch that was not known. Returns the change in the number of
    /// entries.
    pub(crate) fn begin(&mut self, now: Time, id: RpcId) -> isize {
        let (epoch, counter) = split(id);
        -(self.use_epoch(now, epoch, counter / 64) as isize)
    }

    /// Records an RPC; `crowded`: its host has its share of all entries. Returns the change in the
    /// number of entries.
    pub(crate) fn insert(&mut self, now: Time, id: RpcId, crowded: bool) -> isize {
        let (epoch, counter) = split(id);
        let forgotten = self.use_epoch(now, epoch, counter / 64);
        let Some(e) = self.epochs.last_mut() else { return 0 };
        e.remember(counter, crowded) - forgotten as isize
    }

    /// Moves the record of `epoch` to the most recent place. For a new epoch the stalest is
    /// forgotten; returns how many entries that had.
    fn use_epoch(&mut self, now: Time, epoch: u32, word: u32) -> usize {
        if let Some(at) = self.epochs.iter().position(|e| e.epoch == epoch) {
            self.epochs[at..].rotate_left(1);
            return 0;
        }
        let mut forgotten = 0;
        // The client restarted often, or several clients share an address.
        if self.epochs.len() == EPOCHS {
            forgotten = self.epochs.remove(0).entries.len();
            // Answers to RESENDs admit it: a late copy of its requests would be executed.
            self.since = now;
        }
        // Requests that were overtaken by this one are still accepted.
        let base = word.saturating_sub(WINDOW / 2);
        self.epochs.push(ClientEpoch { epoch, base, entries: VecDeque::new() });
        forgotten
    }

    /// Entries held.
    pub(crate) fn entries(&self) -> usize {
        self.epochs.iter().map(ClientEpoch::entries).sum()
    }

    /// True if nothing was ever recorded.
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
    fn the_window_agrees_with_a_set_of_executed_requests() {
        arbtest::arbtest(|u| {
            let mut ours = ReplayWindow::new(Time::ZERO);
            let mut model = BTreeSet::new();
            let mut entries = 0;
            let step = *u.choose(&[1, 2, 300u64])?;
            let mut counter = u.int_in_range(0..=1_000_000u64)?;
            for _ in 0..u.int_in_range(0..=400)? {
                counter += u.int_in_range(0..=step)?;
                let late = counter.saturating_sub(u.int_in_range(0..=500u64)?);
                entries += ours.insert(Time::ZERO, id(7, late), false);
                model.insert(late);
                let probe = counter.saturating_sub(u.int_in_range(0..=1000)?);
                let first = *model.first().unwrap();
                if probe >= first {
                    assert_eq!(ours.contains(id(7, probe)), model.contains(&probe));
                }
                assert!(!ours.contains(id(8, probe)));
                assert_eq!(entries, ours.entries() as isize);
            }
            Ok(())
        });
    }

    #[test]
    fn memory_is_bounded_and_the_forgotten_count_as_executed() {
        let mut ours = ReplayWindow::new(Time::ZERO);
        for n in 0..2000u64 {
            ours.insert(Time::ZERO, id(1, n * 1000 + 7), false);
        }
        assert!(ours.entries() <= WINDOW as usize);
        assert!(ours.contains(id(1, 3)) && !ours.contains(id(1, 1_999_000)));
        for epoch in 2..10 {
            ours.insert(Time(epoch), id(epoch, 5), false);
        }
        assert_eq!(ours.epochs.len(), EPOCHS);
        assert!(ours.since > Time::ZERO);
    }

    #[test]
    fn entries_depend_on_gaps_and_not_on_the_age_of_a_client() {
        // One after the other, long after the first.
        let mut ours = ReplayWindow::new(Time::ZERO);
        for n in 1_000_000..1_100_000 {
            ours.insert(Time::ZERO, id(1, n), false);
            assert!(ours.entries() <= 2);
        }
        // Each is the first of many.
        for epoch in 2..6 {
            ours.insert(Time::ZERO, id(epoch, 5_000_000), false);
        }
        assert_eq!(ours.entries(), 4);
        assert!(ours.epochs.iter().all(|e| e.entries.capacity() <= 16));
    }

    #[test]
    fn forgotten_entries_take_no_memory() {
        let mut ours = ClientEpoch::beginning_at(1, 0);
        for n in 0..WINDOW {
            ours.remember(n * 64, false);
        }
        assert!(ours.entries() > 4_000);
        // A request far ahead displaces half of them, another one the others.
        ours.remember((WINDOW + JUMP - 1) * 64, false);
        ours.remember((WINDOW + 2 * JUMP - 2) * 64, false);
        assert!(ours.entries.len() < 10 && ours.entries.capacity() < 100);
        for n in 0..WINDOW {
            ours.remember((10 * WINDOW + n) * 64, false);
        }
        ours.remember(11 * WINDOW * 64, true);
        assert!(ours.entries.len() <= CROWDED && ours.entries.capacity() < 100);
    }

    #[test]
    fn a_crowded_client_keeps_less_and_executes_nothing_twice() {
        let mut ours = ReplayWindow::new(Time::ZERO);
        let every_other = || (0..10_000).map(|n| id(1, 1_000_000 + 100 * n));
        for id in every_other() {
            ours.insert(Time::ZERO, id, true);
            assert!(ours.entries() <= CROWDED);
        }
        assert!(every_other().all(|id| ours.contains(id)));
        assert!(!ours.contains(id(1, 1_000_000 + 999_900 + 1)));
    }
}
