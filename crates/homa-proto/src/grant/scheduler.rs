//! Overcommitment (Homa §3.5): keeps the set of incoming messages that are granted now.
//!
//! The rules are in `overcommitment`: at most `degree` messages are *active* and the others wait,
//! the order is SRPT, and a host has one active message, or hosts with fewer active messages are
//! preferred (Linux §2.4). Hosts that wasted grants are deprioritized (`hosts`).
//!
//! Invariants: no waiting message that may be active comes before the last active one; every
//! tracked message is in exactly one of the two sets. If the degree is unlimited, neither set is
//! kept.

use super::overcommitment::{SrptKey, UNLIMITED, may_be_active};
use crate::event::RpcHandle;
use crate::units::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A sender's grant timer, if grants are paced per sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GrantTimer {
    /// When it fires; [`Time::MAX`] if it does not run.
    pub(super) until: Time,
    /// Level of the sender's last GRANT.
    pub(super) level: u8,
}

impl Default for GrantTimer {
    fn default() -> Self {
        Self { until: Time::MAX, level: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActiveMessage {
    /// Its host is deprioritized.
    deprioritized: bool,
    key: SrptKey,
    host: u32,
    timer: GrantTimer,
    /// Not granted since it became active.
    newly_active: bool,
}

/// A host's best waiting message: whether the host is deprioritized, how many of its messages are
/// active, the message, the host.
type HostCandidate = (bool, u32, SrptKey, u32);

impl ActiveMessage {
    /// The order of active messages.
    fn order(&self) -> (bool, SrptKey) {
        (self.deprioritized, self.key)
    }
}

#[derive(Debug, Default)]
struct HostMessages {
    waiting: BTreeSet<SrptKey>,
    active: u32,
    /// It comes after the hosts that are not.
    deprioritized: bool,
    /// The timer while none of its messages is active.
    timer: GrantTimer,
}

/// The messages that need grants.
#[derive(Debug)]
pub(super) struct Scheduler {
    degree: usize,
    one_per_host: bool,
    /// In order of `SrptKey`, those of deprioritized hosts last.
    active: Vec<ActiveMessage>,
    hosts: BTreeMap<u32, HostMessages>,
    /// Best waiting message of each host.
    best_by_host: BTreeSet<HostCandidate>,
    /// All tracked messages by age, if the oldest has a share or all are active.
    ages: BTreeMap<u64, RpcHandle>,
    keeps_ages: bool,
    /// A message became active since the last `take_changed`.
    changed: bool,
}

impl Scheduler {
    pub(super) fn new(degree: usize, one_per_host: bool, keeps_ages: bool) -> Self {
        Self {
            degree,
            one_per_host,
            active: Vec::new(),
            hosts: BTreeMap::new(),
            best_by_host: BTreeSet::new(),
            ages: BTreeMap::new(),
            // If all messages are active, the ages are the only list of them.
            keeps_ages: keeps_ages || degree == UNLIMITED,
            changed: false,
        }
    }

    /// True once after messages became active.
    pub(super) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    pub(super) fn set_degree(&mut self, degree: usize) {
        self.degree = degree;
        // Levels were taken from scheduled bytes: the last messages wait again.
        while self.active.len() > degree {
            self.demote(self.active.len() - 1);
        }
        self.rebalance();
    }

    /// Active messages, best first.
    pub(super) fn active(&self) -> impl Iterator<Item = RpcHandle> + '_ {
        self.active.iter().map(|a| a.key.handle)
    }

    pub(super) fn active_len(&self) -> usize {
        self.active.len()
    }

    /// Place of a message among the active ones; 0 is the first.
    pub(super) fn rank(&self, handle: RpcHandle) -> Option<usize> {
        self.active.iter().position(|a| a.key.handle == handle)
    }

    /// The oldest message that needs grants.
    pub(super) fn oldest(&self) -> Option<RpcHandle> {
        self.ages.first_key_value().map(|(_, &handle)| handle)
    }

    /// Every tracked message, oldest first, if ages are kept.
    pub(super) fn by_age(&self) -> impl Iterator<Item = RpcHandle> + '_ {
        self.ages.values().copied()
    }

    pub(super) const fn is_unlimited(&self) -> bool {
        self.degree == UNLIMITED
    }

    /// A message waits for grants; `deprioritized`: its host is.
    pub(super) fn insert(&mut self, key: SrptKey, host: u32, deprioritized: bool) {
        if self.keeps_ages {
            self.ages.insert(key.age, key.handle);
        }
        // All messages are active, so the two sets are not kept.
        if self.is_unlimited() {
            return;
        }
        self.add_waiting(key, host);
        self.set_deprioritized(host, deprioritized);
        self.rebalance();
    }

    /// A host is deprioritized from now on, or no longer.
    pub(super) fn set_deprioritized(&mut self, host: u32, deprioritized: bool) {
        if self.hosts.get(&host).is_none_or(|h| h.deprioritized == deprioritized) {
            return;
        }
        // Its active messages wait again, because their order among the others has changed.
        for at in (0..self.active.len()).rev() {
            if self.active[at].host == host {
                self.demote(at);
            }
        }
        self.change_host(host, |h| h.deprioritized = deprioritized);
        self.rebalance();
    }

    pub(super) fn remove(&mut self, old: SrptKey, host: u32) {
        if self.keeps_ages {
            self.ages.remove(&old.age);
        }
        if self.is_unlimited() {
            return;
        }
        match self.active.iter().position(|a| a.key.handle == old.handle) {
            Some(at) => {
                let ActiveMessage { timer, .. } = self.active.remove(at);
                self.change_host(host, |h| {
                    h.active -= 1;
                    // The pace is the sender's, so it outlives the message.
                    h.timer = timer;
                });
            }
            None => self.change_host(host, |h| {
                h.waiting.remove(&old);
            }),
        }
        self.rebalance();
    }

    /// The number of bytes left of a message changed.
    pub(super) fn update(&mut self, old: SrptKey, remaining: u32, host: u32) {
        if self.is_unlimited() {
            return;
        }
        let new = SrptKey { remaining, ..old };
        match self.active.iter().position(|a| a.key.handle == old.handle) {
            Some(mut at) => {
                self.active[at].key = new;
                // At most eight messages are active, so that neighbours are swapped.
                while at > 0 && self.active[at - 1].order() > self.active[at].order() {
                    self.active.swap(at - 1, at);
                    at -= 1;
                }
                while at + 1 < self.active.len()
                    && self.active[at + 1].order() < self.active[at].order()
                {
                    self.active.swap(at + 1, at);
                    at += 1;
                }
                // It comes earlier than before, so it stays active.
                if remaining <= old.remaining {
                    return;
                }
            }
            None => self.change_host(host, |h| {
                h.waiting.remove(&old);
                h.waiting.insert(new);
            }),
        }
        self.rebalance();
    }

    fn best_waiting(&self, host: u32) -> Option<HostCandidate> {
        let h = self.hosts.get(&host)?;
        let allowed = may_be_active(h.active, self.one_per_host);
        h.waiting.first().filter(|_| allowed).map(|&key| (h.deprioritized, h.active, key, host))
    }

    /// Changes a host's record and keeps `best_by_host` in step.
    fn change_host(&mut self, host: u32, change: impl FnOnce(&mut HostMessages)) {
        // It is filed under the old values, which the change may replace.
        if let Some(best_waiting) = self.best_waiting(host) {
            self.best_by_host.remove(&best_waiting);
        }
        let h = self.hosts.entry(host).or_default();
        change(h);
        // Hosts without messages cost no memory.
        if h.active == 0 && h.waiting.is_empty() {
            self.hosts.remove(&host);
        } else if let Some(best_waiting) = self.best_waiting(host) {
            self.best_by_host.insert(best_waiting);
        }
    }

    fn add_waiting(&mut self, key: SrptKey, host: u32) {
        self.change_host(host, |h| {
            h.waiting.insert(key);
        });
    }

    fn demote(&mut self, at: usize) {
        let ActiveMessage { key, host, timer, .. } = self.active.remove(at);
        self.change_host(host, |h| {
            h.active -= 1;
            h.timer = timer;
            h.waiting.insert(key);
        });
    }

    fn promote(&mut self, key: SrptKey, host: u32) {
        let (mut timer, mut deprioritized) = (GrantTimer::default(), false);
        self.change_host(host, |h| {
            h.waiting.remove(&key);
            h.active += 1;
            (timer, deprioritized) = (h.timer, h.deprioritized);
        });
        let at = self.active.partition_point(|a| a.order() < (deprioritized, key));
        self.active
            .insert(at, ActiveMessage { deprioritized, key, host, timer, newly_active: true });
        self.changed = true;
    }

    fn rebalance(&mut self) {
        self.swap_within_hosts();
        while let Some(&(deprioritized, count, key, host)) = self.best_by_host.first() {
            // A place is free.
            if self.active.len() < self.degree {
                self.promote(key, host);
                continue;
            }
            let worst = self.active.iter().enumerate().map(|(at, a)| {
                // The message itself does not count, because a waiting one is not counted either.
                let others = self.hosts.get(&a.host).map_or(0, |h| h.active - 1);
                ((a.deprioritized, others, a.key), at)
            });
            match worst.max() {
                // A waiting message preempts the last active one.
                Some((rank, at)) if (deprioritized, count, key) < rank => self.demote(at),
                _ => return,
            }
        }
    }

    /// A host's active message gives way to a better one of the same host.
    fn swap_within_hosts(&mut self) {
        for at in (0..self.active.len()).rev() {
            let ActiveMessage { key, host, .. } = self.active[at];
            let better =
                self.hosts.get(&host).and_then(|h| h.waiting.first()).is_some_and(|w| *w < key);
            if better {
                let next = self.hosts.get(&host).and_then(|h| h.waiting.first()).copied();
                self.demote(at);
                if let Some(next) = next {
                    self.promote(next, host);
                }
            }
        }
    }
}

/// Senders, if at most one message of each is active.
impl Scheduler {
    /// Rank, message and timer of a sender that is active.
    pub(super) fn active_of(&self, host: u32) -> Option<(usize, RpcHandle, GrantTimer)> {
        let rank = self.active.iter().position(|a| a.host == host)?;
        let a = &self.active[rank];
        Some((rank, a.key.handle, a.timer))
    }

    /// The active sender at `rank`.
    pub(super) fn host_at(&self, rank: usize) -> Option<u32> {
        self.active.get(rank).map(|a| a.host)
    }

    /// A sender's best message, active or not.
    pub(super) fn best_of(&self, host: u32) -> Option<RpcHandle> {
        let active = self.active.iter().find(|a| a.host == host).map(|a| a.key.handle);
        active.or_else(|| self.hosts.get(&host)?.waiting.first().map(|key| key.handle))
    }

    /// A sender that became active and was not granted since; each is returned once.
    pub(super) fn take_newly_active(&mut self) -> Option<u32> {
        let newly_active = self.active.iter_mut().find(|a| a.newly_active)?;
        newly_active.newly_active = false;
        Some(newly_active.host)
    }

    /// Sets a sender's timer, if it has messages left. It is no longer newly active.
    pub(super) fn set_timer(&mut self, host: u32, timer: GrantTimer) {
        if let Some(a) = self.active.iter_mut().find(|a| a.host == host) {
            a.timer = timer;
            a.newly_active = false;
        } else if let Some(h) = self.hosts.get_mut(&host) {
            h.timer = timer;
        }
    }

    /// When the first timer of an active sender fires.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.active.iter().map(|a| a.timer.until).min().filter(|&until| until != Time::MAX)
    }

    /// Stops the first timer of an active sender that is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<u32> {
        let due = self.active.iter_mut().filter(|a| a.timer.until <= now);
        let first = due.min_by_key(|a| a.timer.until)?;
        first.timer.until = Time::MAX;
        Some(first.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn key(remaining: u32, index: u32) -> SrptKey {
        let handle = RpcHandle { index, generation: 0 };
        SrptKey { remaining, length: 1000, age: u64::from(index), handle }
    }

    fn active(s: &Scheduler) -> Vec<u32> {
        s.active().map(|r| r.index).collect()
    }

    #[test]
    fn grants_the_shortest_message_of_each_of_the_best_hosts() {
        let mut s = Scheduler::new(2, true, true);
        s.insert(key(900, 1), 10, false);
        s.insert(key(500, 2), 10, false);
        s.insert(key(700, 3), 11, false);
        s.insert(key(600, 4), 12, false);
        assert_eq!(active(&s), vec![2, 4]);
        s.remove(key(500, 2), 10);
        assert_eq!(active(&s), vec![4, 3]);
    }

    #[test]
    fn hosts_with_fewer_active_messages_are_preferred() {
        let mut s = Scheduler::new(3, false, true);
        s.insert(key(1, 1), 10, false);
        s.insert(key(2, 2), 10, false);
        s.insert(key(900, 3), 11, false);
        s.insert(key(3, 4), 10, false);
        assert_eq!(active(&s), vec![1, 2, 3]);
    }

    #[test]
    fn the_active_set_matches_a_brute_force_choice() {
        arbtest::arbtest(|u| {
            let degree = u.int_in_range(1..=4usize)?;
            let mut s = Scheduler::new(degree, true, true);
            let mut all: Vec<(SrptKey, u32)> = Vec::new();
            let mut deprioritized = [false; 5];
            for i in 0..u.int_in_range(0..=60u32)? {
                match u.int_in_range(0..=4u8)? {
                    0 if !all.is_empty() => {
                        let (k, host) = all.swap_remove(u.choose_index(all.len())?);
                        s.remove(k, host);
                    }
                    1 if !all.is_empty() => {
                        let at = u.choose_index(all.len())?;
                        let (old, host) = all[at];
                        let remaining = u.int_in_range(0..=old.remaining)?;
                        s.update(old, remaining, host);
                        all[at].0.remaining = remaining;
                    }
                    2 => {
                        let host = u.int_in_range(0..=4)?;
                        deprioritized[host as usize] ^= true;
                        s.set_deprioritized(host, deprioritized[host as usize]);
                    }
                    _ => {
                        let k = key(u.int_in_range(0..=50)?, i);
                        let host = u.int_in_range(0..=4)?;
                        s.insert(k, host, deprioritized[host as usize]);
                        all.push((k, host));
                    }
                }
                let mut best: BTreeMap<u32, SrptKey> = BTreeMap::new();
                for &(k, host) in &all {
                    best.entry(host).and_modify(|b| *b = (*b).min(k)).or_insert(k);
                }
                let order = |(host, k): (u32, SrptKey)| (deprioritized[host as usize], k);
                let mut want: Vec<(bool, SrptKey)> = best.into_iter().map(order).collect();
                want.sort();
                want.truncate(degree);
                let want: Vec<u32> = want.iter().map(|(_, k)| k.handle.index).collect();
                assert_eq!(active(&s), want);
                assert_eq!(s.oldest(), all.iter().min_by_key(|a| a.0.age).map(|a| a.0.handle));
            }
            Ok(())
        });
    }
}
