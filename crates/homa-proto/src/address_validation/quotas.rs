//! Quotas of the hosts that clients call from: which client is evicted for a new one, and which
//! remembers less. A host with many clients, or one that leaves gaps in its executed requests, pays
//! for that itself.
//!
//! If the table of clients is full, the host with the most clients loses one; if the new client's
//! host would have the most, it loses its own. The client is the one that was idle longest,
//! approximately (a clock per host, Corbató 1968). No host has more entries than are left for all
//! others.
//!
//! Invariants: a host is known while it has clients or entries. The search past active clients is
//! paid for by their executed requests.

use crate::completion::replay_window::MAX_ENTRIES;
use crate::util::slab::Keyed;
use alloc::collections::{BTreeSet, VecDeque};
use core::cmp::Reverse;

/// A client at a host: its place in the table, and the number of its stay there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) client: u32,
    pub(super) number: u32,
}

/// The quota of one host.
#[derive(Debug, Default)]
struct HostQuota {
    names: u32,
    /// Runs of executed RPCs of its clients, and of its peers without a client.
    entries: usize,
    /// Its place among hosts with equally many clients.
    turn: u64,
    /// Its clients, the next to be checked first, and some that are elsewhere by now.
    clients: VecDeque<Stay>,
}

impl HostQuota {
    /// Removes the clients that are elsewhere if they are more than half.
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
    /// Hosts with clients: the one with the most is last; of equals, the one whose turn was longest
    /// ago.
    order: BTreeSet<(u32, Reverse<u64>, u64)>,
    turns: u64,
    /// Entries of all hosts.
    entries: usize,
}

impl HostQuotas {
    pub(super) fn new(hash: Keyed) -> Self {
        let all = hashbrown::HashMap::with_hasher(hash);
        Self { all, order: BTreeSet::new(), turns: 0, entries: 0 }
    }

    /// Changes a host's number of clients.
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

    /// A client identified itself from a host; `is_current` says whether others are still there.
    pub(super) fn add(&mut self, host: u64, client: Stay, is_current: impl Fn(Stay) -> bool) {
        self.count(host, 1);
        if let Some(quota) = self.all.get_mut(&host) {
            quota.tidy(is_current);
            quota.clients.push_back(client);
        }
    }

    /// A client is forgotten, or identified itself from another host.
    pub(super) fn remove(&mut self, host: u64, is_current: impl Fn(Stay) -> bool) {
        self.count(host, -1);
        if let Some(quota) = self.all.get_mut(&host) {
            quota.tidy(is_current);
        }
    }

    /// The client to evict for one more of a host. `used` says whether a client was active since it
    /// was asked last, and `None` if it is elsewhere.
    pub(super) fn evict(
        &mut self,
        newcomer: u64,
        mut used: impl FnMut(Stay) -> Option<bool>,
    ) -> Option<Stay> {
        let most = self.order.last()?.0;
        let own = self.all.get(&newcomer).map_or(0, |quota| quota.names);
        // The new client's host would have the most, so it pays itself.
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
            // All of its clients were active, so those of the next host with equally many are
            // asked. The second time one of them is found idle.
            self.count(host, 0);
        }
    }

    /// The first client of a host that was not active.
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

    /// Changes a host's number of entries.
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

    /// True if a host has more entries than are left for all others.
    #[inline]
    pub(super) fn has_its_share(&self, host: u64) -> bool {
        let left = MAX_ENTRIES.saturating_sub(self.entries);
        // While half of the entries are free, no other host lacks any.
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
