//! The memory and requests that the peers of one host hold together, and the grants that they
//! wasted.
//!
//! SRPT believes announced lengths, so a host that announces messages, is granted them and falls
//! silent takes the place of others until that is noticed. Grants that it did not use count as
//! wasted. Until the host has sent as many bytes, it is deprioritized (`scheduler`) and its
//! messages are granted two packets at a time (`window`): each place that it wastes costs it what
//! the place was worth.
//!
//! Whole requests count for their host until the application accepts them. A host that has its
//! share of the memory while many requests wait is deprioritized, too, since it may not be granted
//! more.

use super::scheduler::Scheduler;
use crate::packet::PeerId;
use crate::peer::Peer;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A host has no more than this to repay, because it may share its address with others (NAT).
const MAX_WASTED: u32 = 1 << 20;

/// The account of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostAccount {
    /// Memory for incoming messages.
    pub memory: u64,
    /// Bytes of its whole requests that the application has not accepted.
    pub unaccepted: u64,
    /// Requests of the host in progress.
    pub served: u32,
    /// Bytes that were granted to it, not sent, and not repaid.
    wasted_grants: u32,
    /// Peers of the host.
    peers: u32,
}

/// All hosts, by number of account.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    all: Vec<HostAccount>,
    /// Accounts, and peers without one, that have something to repay.
    wasting: u32,
    /// Hosts whose requests get no more grants until some are accepted, with their accounts.
    withheld: BTreeMap<u32, u32>,
    /// The next of these to be checked.
    cursor: u32,
}

impl HostAccount {
    /// Memory that requests of the host hold, here and in front of the application.
    pub(super) const fn held(&self) -> u64 {
        self.memory + self.unaccepted
    }
}

impl Hosts {
    /// One more peer has this account.
    pub(super) fn open(&mut self, account: u32) {
        if self.all.len() <= account as usize {
            self.all.resize(account as usize + 1, HostAccount::default());
        }
        self.all[account as usize].peers += 1;
    }

    /// A peer is forgotten.
    pub(super) fn close(&mut self, closed: &mut Peer) {
        let last = self.of_mut(closed).is_none_or(|account| {
            account.peers -= 1;
            account.peers == 0
        });
        // A host without peers cannot repay, and must not count as wasting for ever.
        if last {
            self.set_wasted(closed, 0);
        }
    }

    /// The account of a peer's host; if hosts have no accounts, one of the peer alone.
    pub(super) fn of(&self, peer: &Peer) -> HostAccount {
        let grants = &peer.cold.grants;
        let (memory, wasted_grants) = (grants.memory, grants.wasted_grants);
        let alone =
            HostAccount { memory, unaccepted: 0, served: peer.served(), wasted_grants, peers: 1 };
        grants.account.map_or(alone, |account| self.all[account as usize])
    }

    /// The application accepted a request of a host.
    pub(super) fn accepted(&mut self, account: u32, bytes: u32) {
        if let Some(account) = self.all.get_mut(account as usize) {
            account.unaccepted = account.unaccepted.saturating_sub(bytes.into());
        }
    }

    /// The account of a peer's host.
    pub(super) fn of_mut(&mut self, peer: &Peer) -> Option<&mut HostAccount> {
        peer.cold.grants.account.map(|account| &mut self.all[account as usize])
    }

    fn set_wasted(&mut self, peer: &mut Peer, bytes: u32) {
        let wasted = match peer.cold.grants.account {
            Some(account) => &mut self.all[account as usize].wasted_grants,
            None => &mut peer.cold.grants.wasted_grants,
        };
        let before = core::mem::replace(wasted, bytes);
        // This count spares packets of honest hosts a look at their account (`repay`).
        self.wasting += u32::from(bytes > 0);
        self.wasting -= u32::from(before > 0);
    }

    /// True if a peer's host has something to repay.
    pub(super) fn has_wasted_grants(&self, peer: &Peer) -> bool {
        self.wasting > 0 && self.of(peer).wasted_grants > 0
    }

    /// True if the messages of a peer's host come after those of others.
    pub(super) fn is_deprioritized(&self, peer: &Peer) -> bool {
        self.has_wasted_grants(peer) || self.is_withheld(peer.info.host)
    }

    fn is_withheld(&self, host: u32) -> bool {
        self.withheld.contains_key(&host)
    }

    /// Hosts whose requests get no more grants until some are accepted.
    pub(super) fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// Requests of a host get no more grants until some are accepted. Until then its messages come
    /// after those of others.
    pub(super) fn withhold(&mut self, peer: &Peer, scheduler: &mut Scheduler) {
        let host = peer.info.host;
        let Some(account) = peer.cold.grants.account else { return };
        // The scheduler is told once.
        if self.withheld.insert(host, account).is_none() {
            scheduler.set_deprioritized(host, true);
        }
    }

    /// The next of these hosts, in turns, and how much memory it holds.
    pub(super) fn next_withheld(&mut self) -> Option<(u32, u64)> {
        let next = self.withheld.range(self.cursor..).next();
        let (&host, &account) = next.or_else(|| self.withheld.first_key_value())?;
        self.cursor = host.wrapping_add(1);
        Some((host, self.all[account as usize].held()))
    }

    /// Requests of a host may be granted more.
    pub(super) fn resume_host(&mut self, host: u32, scheduler: &mut Scheduler) {
        if let Some(account) = self.withheld.remove(&host) {
            // It still comes after the others if it has grants to repay.
            scheduler.set_deprioritized(host, self.all[account as usize].wasted_grants > 0);
        }
    }

    /// A peer did not send `bytes` that it was granted.
    pub(super) fn record_waste(&mut self, peer: &mut Peer, scheduler: &mut Scheduler, bytes: u32) {
        let wasted = self.of(peer).wasted_grants.saturating_add(bytes).min(MAX_WASTED);
        self.set_wasted(peer, wasted);
        if wasted > 0 {
            scheduler.set_deprioritized(peer.info.host, true);
        }
    }

    /// New bytes of a message came from a peer: its host repays as many.
    #[inline]
    pub(super) fn repay(
        &mut self,
        peers: &mut [Option<Peer>],
        scheduler: &mut Scheduler,
        (from, bytes): (PeerId, u32),
    ) {
        // Nearly always, so that honest hosts pay nothing.
        if self.wasting == 0 {
            return;
        }
        let peer = peers.get_mut(from.0 as usize).and_then(Option::as_mut);
        let Some(peer) = peer.filter(|peer| self.of(peer).wasted_grants > 0) else { return };
        let left = self.of(peer).wasted_grants.saturating_sub(bytes);
        self.set_wasted(peer, left);
        // It has repaid everything, and nothing else holds it back.
        if left == 0 && !self.is_withheld(peer.info.host) {
            scheduler.set_deprioritized(peer.info.host, false);
        }
    }
}
