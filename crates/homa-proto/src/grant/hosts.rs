//! What the peers of one host hold together, and what they wasted.
//!
//! A host that announces messages, is granted them, and falls silent takes the place of others for
//! as long as that goes unnoticed. What it was granted then and did not send counts as wasted, and
//! until as many bytes of messages came from it, its messages come behind those of all others
//! (`overcommitment.rs`) and are granted two packets at a time (`window.rs`): each place that it
//! takes in vain costs it what the place was worth.
//!
//! Whole requests count for their host until the application takes them. A host that has its share
//! of the memory while many wait comes behind others, too, as it may not be granted more.

use crate::grant::scheduler::Scheduler;
use crate::packet::PeerId;
use crate::peer::Peer;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A host has no more than this to make good for: there may be others behind its address.
const MAX_WASTED: u32 = 1 << 20;

/// What one host holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostAccount {
    /// Memory for incoming messages.
    pub(crate) memory: u64,
    /// Bytes of its whole requests that the application has not taken.
    pub(crate) unaccepted: u64,
    /// Requests of it in progress.
    pub(crate) served: u32,
    /// Bytes granted to it in vain, and not made good for.
    wasted_grants: u32,
    /// Peers that it has.
    peers: u32,
}

/// By number.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    all: Vec<HostAccount>,
    /// Accounts, and peers without one, that wasted something.
    wasting_hosts: u32,
    /// Hosts whose requests get no more grants until some are taken, with their accounts.
    withheld: BTreeMap<u32, u32>,
    /// Of these, all below were looked at since the others were.
    cursor: u32,
}

impl HostAccount {
    /// Memory that requests of the host hold, here and in front of the application.
    pub(crate) const fn held(&self) -> u64 {
        self.memory + self.unaccepted
    }
}

impl Accounts {
    /// One more peer has this account.
    pub(crate) fn open(&mut self, account: u32) {
        if self.all.len() <= account as usize {
            self.all.resize(account as usize + 1, HostAccount::default());
        }
        self.all[account as usize].peers += 1;
    }

    /// A peer is forgotten.
    pub(crate) fn close(&mut self, closed: &mut Peer) {
        let last = self.of_mut(closed).is_none_or(|account| {
            account.peers -= 1;
            account.peers == 0
        });
        if last {
            self.set_wasted(closed, 0);
        }
    }

    /// What the host of a peer holds; where hosts have no accounts, what the peer does.
    pub(crate) fn of(&self, peer: &Peer) -> HostAccount {
        let cold = &peer.cold;
        let (memory, served, wasted_grants) = (cold.memory, cold.served, cold.wasted_grants);
        let alone = HostAccount { memory, unaccepted: 0, served, wasted_grants, peers: 1 };
        cold.account.map_or(alone, |account| self.all[account as usize])
    }

    /// The application has taken a request of a host.
    pub(crate) fn accepted(&mut self, account: u32, bytes: u32) {
        if let Some(account) = self.all.get_mut(account as usize) {
            account.unaccepted = account.unaccepted.saturating_sub(bytes.into());
        }
    }

    /// The account of a peer's host.
    pub(crate) fn of_mut(&mut self, peer: &Peer) -> Option<&mut HostAccount> {
        peer.cold.account.map(|account| &mut self.all[account as usize])
    }

    fn set_wasted(&mut self, peer: &mut Peer, bytes: u32) {
        let wasted_grants = match peer.cold.account {
            Some(account) => &mut self.all[account as usize].wasted_grants,
            None => &mut peer.cold.wasted_grants,
        };
        let before = core::mem::replace(wasted_grants, bytes);
        self.wasting_hosts += u32::from(bytes > 0);
        self.wasting_hosts -= u32::from(before > 0);
    }

    /// True when a peer's host has something to make good for.
    pub(crate) fn has_wasted_grants(&self, peer: &Peer) -> bool {
        self.wasting_hosts > 0 && self.of(peer).wasted_grants > 0
    }

    /// True when the messages of a peer's host come behind those of others.
    pub(crate) fn is_deprioritized(&self, peer: &Peer) -> bool {
        self.has_wasted_grants(peer) || self.is_withheld(peer.info.host)
    }

    fn is_withheld(&self, host: u32) -> bool {
        self.withheld.contains_key(&host)
    }

    /// Hosts whose requests get no more grants until some are taken.
    pub(super) fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// A request gets no grant until some are taken: meanwhile its host's messages come behind
    /// those of others.
    pub(super) fn withhold(&mut self, peer: &Peer, scheduler: &mut Scheduler) {
        let host = peer.info.host;
        let Some(account) = peer.cold.account else { return };
        if self.withheld.insert(host, account).is_none() {
            scheduler.set_deprioritized(host, true);
        }
    }

    /// The next of these hosts, in turns, and what it holds.
    pub(super) fn next_withheld(&mut self) -> Option<(u32, u64)> {
        let next = self.withheld.range(self.cursor..).next();
        let (&host, &account) = next.or_else(|| self.withheld.first_key_value())?;
        self.cursor = host.wrapping_add(1);
        Some((host, self.all[account as usize].held()))
    }

    /// Requests of a host may be granted more.
    pub(super) fn resume_host(&mut self, host: u32, scheduler: &mut Scheduler) {
        if let Some(account) = self.withheld.remove(&host) {
            scheduler.set_deprioritized(host, self.all[account as usize].wasted_grants > 0);
        }
    }

    /// A peer did not send what it was granted.
    pub(crate) fn record_waste(&mut self, peer: &mut Peer, scheduler: &mut Scheduler, bytes: u32) {
        let wasted_grants = self.of(peer).wasted_grants.saturating_add(bytes).min(MAX_WASTED);
        self.set_wasted(peer, wasted_grants);
        if wasted_grants > 0 {
            scheduler.set_deprioritized(peer.info.host, true);
        }
    }

    /// New bytes of a message came from a peer.
    pub(crate) fn repay(
        &mut self,
        peers: &mut [Option<Peer>],
        scheduler: &mut Scheduler,
        (from, bytes): (PeerId, u32),
    ) {
        if self.wasting_hosts == 0 {
            return;
        }
        let peer = peers.get_mut(from.0 as usize).and_then(Option::as_mut);
        let Some(peer) = peer.filter(|peer| self.of(peer).wasted_grants > 0) else { return };
        let left = self.of(peer).wasted_grants.saturating_sub(bytes);
        self.set_wasted(peer, left);
        if left == 0 && !self.is_withheld(peer.info.host) {
            scheduler.set_deprioritized(peer.info.host, false);
        }
    }
}
