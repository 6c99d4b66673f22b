//! Hosts that clients called from: whose place a new name takes, and who remembers less, so that a
//! host with many names, or one that leaves gaps in what it has executed, pays for them itself.
//!
//! Where the table of names is full, the host with most names loses one, its own first if it would
//! have most itself: the one that was idle longest, but for rounding (a clock, Corbató 1968, per
//! host). Of executions no host has more than is left for all others.
//!
//! Invariants: a host is known while it has names or executions; the walk past clients that were
//! active is paid for by their executions.

use crate::completion::replay_window::MAX_ENTRIES;
use crate::util::slab::Keyed;
use alloc::collections::{BTreeSet, VecDeque};
use core::cmp::Reverse;

/// A client at a host: which in the table, and which of the stays there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) client: u32,
    pub(super) number: u32,
}

/// What is remembered of one host.
#[derive(Debug, Default)]
struct HostQuota {
    names: u32,
    /// Stretches of RPCs that its clients had executed, and of those without a name there.
    entries: usize,
    /// Its place among hosts with as many names.
    turn: u64,
    /// Its clients, the next to be looked at first, and some that are elsewhere by now.
    clients: VecDeque<Stay>,
}

impl HostQuota {
    /// Strikes off those that are elsewhere, where these are more than half.
    fn tidy(&mut self, is_current: impl Fn(Stay) -> bool) {
        if self.clients.len() > 2 * self.names as usize + 16 {
            self.clients.retain(|&stay| is_current(stay));
            self.clients.shrink_to(2 * self.clients.len());
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct HostQuotas {
    all: hashbrown::HashMap<u64, HostQuota, Keyed>,
    /// Those with names: who has most is last, and of equals who had its turn longest ago.
    order: BTreeSet<(u32, Reverse<u64>, u64)>,
    turns: u64,
    /// Entries of all.
    entries: usize,
}

impl HostQuotas {
    pub(super) fn new(hash: Keyed) -> Self {
        let all = hashbrown::HashMap::with_hasher(hash);
        Self { all, order: BTreeSet::new(), turns: 0, entries: 0 }
    }

    /// Changes a host's number of names.
    fn count(&mut self, host: u64, more: i32) {
        let quota = self.all.entry(host).or_default();
        self.order.remove(&(quota.names, Reverse(quota.turn), host));
        quota.names = quota.names.saturating_add_signed(more);
        if quota.names > 0 {
            self.turns += 1;
            quota.turn = self.turns;
            self.order.insert((quota.names, Reverse(quota.turn), host));
        } else if quota.entries == 0 {
            self.all.remove(&host);
        }
    }

    /// A client named itself from a host; `is_current` says of others whether they are still there.
    pub(super) fn add(&mut self, host: u64, client: Stay, is_current: impl Fn(Stay) -> bool) {
        self.count(host, 1);
        if let Some(quota) = self.all.get_mut(&host) {
            quota.tidy(is_current);
            quota.clients.push_back(client);
        }
    }

    /// A client is forgotten, or named itself from another host.
    pub(super) fn remove(&mut self, host: u64, is_current: impl Fn(Stay) -> bool) {
        self.count(host, -1);
        if let Some(quota) = self.all.get_mut(&host) {
            quota.tidy(is_current);
        }
    }

    /// The client whose place is for one more of a host. `used` says of one that is still there
    /// whether it was active since it was asked last, and of others nothing.
    pub(super) fn evict(
        &mut self,
        newcomer: u64,
        mut used: impl FnMut(Stay) -> Option<bool>,
    ) -> Option<Stay> {
        let most = self.order.last()?.0;
        let own = self.all.get(&newcomer).map_or(0, |quota| quota.names);
        if own > 0
            && own + 1 >= most
            && let Some(idle) = self.idle(newcomer, &mut used)
        {
            return Some(idle);
        }
        loop {
            let &(_, _, host) = self.order.last()?;
            if let Some(idle) = self.idle(host, &mut used) {
                return Some(idle);
            }
            // All of its clients were active: those of the next with as many names are asked, and
            // the second time one of its own is found.
            self.count(host, 0);
        }
    }

    /// The first of a host's clients that was not active.
    fn idle(&mut self, host: u64, used: &mut impl FnMut(Stay) -> Option<bool>) -> Option<Stay> {
        let clients = &mut self.all.get_mut(&host)?.clients;
        for _ in 0..clients.len() {
            let client = clients.pop_front()?;
            match used(client) {
                Some(false) => return Some(client),
                Some(true) => clients.push_back(client),
                None => {}
            }
        }
        None
    }

    /// Entries of a host are added or forgotten.
    pub(super) fn charge(&mut self, host: u64, more: isize) {
        if more == 0 {
            return;
        }
        self.entries = self.entries.saturating_add_signed(more);
        let quota = self.all.entry(host).or_default();
        quota.entries = quota.entries.saturating_add_signed(more);
        if quota.entries == 0 && quota.names == 0 {
            self.all.remove(&host);
        }
    }

    /// A host has more entries than are left for all others.
    #[inline]
    pub(super) fn has_its_share(&self, host: u64) -> bool {
        let left = MAX_ENTRIES.saturating_sub(self.entries);
        left < MAX_ENTRIES / 2 && self.all.get(&host).is_some_and(|quota| quota.entries > left)
    }

    /// Places that hosts keep in their lists of clients.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.all.values().map(|quota| quota.clients.len()).sum()
    }

    /// Entries of a host.
    #[cfg(test)]
    pub(super) fn entries_of(&self, host: u64) -> usize {
        self.all.get(&host).map_or(0, |quota| quota.entries)
    }
}
