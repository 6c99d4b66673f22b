//! Memory for incoming messages: who holds it, who may take more, and what gives way.

use super::totals::Grants;
use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::loss::SUSPEND_AFTER;
use crate::packet::PeerId;
use crate::peer::Peer;
use crate::rpc::{Rpc, RpcState};
use crate::units::Time;

/// Most hosts checked each time memory becomes free, because each packet that frees some pays for
/// the search.
const MAX_HOSTS_CHECKED: usize = 16;

/// Counts memory for a message of a peer, and for its host unless the peer is not validated: the
/// address may be spoofed.
pub(super) fn reserve(
    grants: &mut Grants,
    peers: &mut [Option<Peer>],
    (peer, unvalidated): (PeerId, bool),
    bytes: u32,
) {
    grants.memory += u64::from(bytes);
    if let Some(peer) = peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
        peer.cold.grants.memory += u64::from(bytes);
        if let Some(account) = grants.hosts.of_mut(peer).filter(|_| !unvalidated) {
            account.memory += u64::from(bytes);
        }
    }
}

/// Gives memory back.
pub(super) fn release(
    grants: &mut Grants,
    peers: &mut [Option<Peer>],
    (peer, unvalidated): (PeerId, bool),
    bytes: u32,
) {
    grants.memory -= u64::from(bytes);
    if let Some(peer) = peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
        peer.cold.grants.memory -= u64::from(bytes);
        if let Some(account) = grants.hosts.of_mut(peer).filter(|_| !unvalidated) {
            account.memory -= u64::from(bytes);
        }
    }
}

impl Grants {
    /// Memory is short for messages other than that of `handle`.
    fn is_short(&self, handle: RpcHandle) -> bool {
        let other = self.over_budget_message.is_some_and(|other| other != handle);
        other || self.starved || !self.memory_queue.is_empty()
    }

    /// Free memory.
    pub(crate) const fn left(&self) -> u64 {
        self.budget.saturating_sub(self.memory + self.unaccepted)
    }

    /// More than half of the memory is held, and `held` of it, by one host, is more than is left
    /// for all others.
    const fn is_a_share(&self, held: u64) -> bool {
        // While half of the memory is free, no other host lacks any.
        self.left() < self.budget / 2 && held > self.left()
    }

    /// Much waits for the application, which frees memory as it accepts requests.
    const fn waits_for_accept(&self) -> bool {
        self.unaccepted > self.budget / 64
    }

    /// True if a message in this state may exceed the budget, or its host's share, until it is
    /// whole. A request may not if memory becomes free without that.
    pub(super) const fn may_exceed(&self, state: RpcState) -> bool {
        !matches!(state, RpcState::ServerIncoming) || !self.waits_for_accept()
    }

    fn has_room(&self, bytes: u32) -> bool {
        u64::from(bytes) <= self.left()
    }
}

impl Endpoint {
    /// True if there is memory for `bytes` more of incoming messages.
    pub(crate) fn has_memory(&self, bytes: u32) -> bool {
        self.grants.has_room(bytes)
    }

    /// Bytes of incoming messages that are held or were granted, and of requests that the
    /// application has not accepted.
    pub fn incoming_memory(&self) -> u64 {
        self.grants.memory + self.grants.unaccepted
    }

    /// A request of a peer is delivered: its memory counts, and for its host, until it is accepted.
    pub(crate) fn charge_unaccepted(&mut self, peer: PeerId, bytes: u32) {
        let peer = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        if let Some(account) = peer.and_then(|peer| self.grants.hosts.of_mut(peer)) {
            account.unaccepted += u64::from(bytes);
            self.grants.unaccepted += u64::from(bytes);
        }
    }

    /// Application in: accepted a request of `bytes` bytes from a peer with this account, whose
    /// memory the application holds from now on.
    pub fn request_accepted(&mut self, account: u32, bytes: u32) {
        self.grants.hosts.accepted(account, bytes);
        self.grants.unaccepted = self.grants.unaccepted.saturating_sub(bytes.into());
        self.memory_became_free();
    }

    /// A request of a peer's host begins, or ends. Only validated peers count.
    pub(crate) fn charge_request(&mut self, peer: PeerId, begins: bool) {
        let peer = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        if let Some(account) = peer.and_then(|peer| self.grants.hosts.of_mut(peer)) {
            account.served = account.served.wrapping_add_signed(if begins { 1 } else { -1 });
        }
    }

    /// Requests of a peer's host in progress.
    pub(crate) fn requests_of_host(&self, peer: PeerId) -> Option<usize> {
        self.peer(peer).map(|peer| self.grants.hosts.of(peer).served as usize)
    }

    /// True if a peer's host holds more memory than is left for all others: it begins no more
    /// requests.
    pub(crate) fn has_its_share(&self, peer: PeerId) -> bool {
        let held = |peer| self.grants.hosts.of(peer).held();
        self.peer(peer).is_some_and(|peer| self.grants.is_a_share(held(peer)))
    }

    /// True if requests of a peer get no more grants, because its host has its share of the memory
    /// and some will be freed even if the request is not completed.
    pub(super) fn is_withheld(&self, peer: PeerId) -> bool {
        self.grants.waits_for_accept() && self.has_its_share(peer)
    }

    /// Withholds grants from requests of a peer's host until some are accepted.
    pub(super) fn withhold(&mut self, peer: Option<PeerId>) {
        let peer = peer.and_then(|peer| self.peers.get(peer.0 as usize)?.as_ref());
        if let Some(peer) = peer {
            self.grants.hosts.withhold(peer, &mut self.grants.scheduler);
        }
    }

    /// Ends that for hosts that may be granted more. A few are checked each time; until it is their
    /// turn the others are granted what no other host needs.
    fn resume_withheld_hosts(&mut self) {
        for _ in 0..self.grants.hosts.withheld().min(MAX_HOSTS_CHECKED) {
            let Some((host, held)) = self.grants.hosts.next_withheld() else { return };
            if !self.grants.waits_for_accept() || !self.grants.is_a_share(held) {
                self.grants.hosts.resume_host(host, &mut self.grants.scheduler);
            }
        }
    }

    /// See [`Endpoint::limit_memory`].
    pub(crate) fn set_memory_budget(&mut self, bytes: u64) {
        self.grants.budget = bytes;
        self.memory_became_free();
    }

    fn memory_became_free(&mut self) {
        self.wake_memory_queue();
        // A grant was withheld, perhaps for want of this memory.
        if self.grants.starved {
            self.grant(None);
        }
    }

    /// Memory became free: messages that waited for it are asked for everything.
    pub(super) fn wake_memory_queue(&mut self) {
        self.resume_withheld_hosts();
        self.request_waiting(self.grants.left());
    }

    /// Memory that a message needs to begin, if a packet up to `end` is here and its sender says
    /// that `incoming` bytes come unscheduled. Counts at most what we told senders to send.
    pub(crate) fn first_bytes(&self, peer: PeerId, incoming: u32, end: u32) -> u32 {
        // Nothing more comes unscheduled.
        if incoming <= end {
            return end;
        }
        let most = self.unscheduled_cap() + Self::payload_of(&self.peers, peer);
        incoming.min(most).max(end)
    }

    /// Finds memory for `more` bytes of a message that were not granted: a sender may run a little
    /// ahead of its grant, and unscheduled bytes have no promise. If there is none, one message may
    /// exceed the budget. A host that has its share continues its requests only as they are
    /// granted.
    pub(crate) fn find_memory(
        &mut self,
        now: Time,
        handle: RpcHandle,
        more: u32,
    ) -> Result<(), DropReason> {
        let rpc = self.rpcs.get(handle).ok_or(DropReason::UnknownRpc)?;
        // The addresses of these senders may be spoofed, so all of them share a small part.
        if rpc.is_unvalidated() && self.validation.is_short(more, self.config.memory_budget) {
            return Err(DropReason::NoMemory);
        }
        let greedy = rpc.state == RpcState::ServerIncoming && self.has_its_share(rpc.peer);
        if !greedy && self.grants.has_room(more) {
            return Ok(());
        }
        // Its first packet comes before its window is known.
        let is_read_early = self.rpcs.reads_early() && self.rpcs.window_of(rpc) > 0;
        if self.grants.may_exceed(rpc.state) && !is_read_early {
            self.grants.over_budget_message.get_or_insert(handle);
        }
        if self.grants.over_budget_message != Some(handle) {
            // The sender is alive: that we drop its bytes is no loss.
            if let Some(rpc) = self.rpcs.get_mut(handle) {
                rpc.loss.heard(now);
            }
            // Granting the one message that may exceed the budget frees memory soonest.
            self.grant_over_budget_message();
            return Err(DropReason::NoMemory);
        }
        Ok(())
    }

    /// Drops the received bytes of a silent message while others lack memory, if servers forget at
    /// once (Homa §3.8): then each end may hold parts of messages that the other has no room to
    /// begin. The RPC is not lost, because its client asks for everything again.
    pub(crate) fn make_room(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        // The RESEND that leaves next counts, too, because this runs just before it.
        let resends = rpc.loss.resends().saturating_add(1);
        // While our RESENDs wait for the link, the peer was not asked, so it is not silent.
        let silent =
            resends >= SUSPEND_AFTER && rpc.awaits_bytes() && !rpc.loss.has_queued_resends();
        let forgets = self.config.completion == Completion::AtLeastOnce;
        if !silent || !forgets || !self.grants.is_short(handle) || self.is_first_in_line(handle) {
            return;
        }
        match rpc.state {
            RpcState::ClientIncoming => self.drop_response(handle),
            RpcState::ServerIncoming => self.end_server_rpc(handle),
            _ => {}
        }
    }

    /// True if this RPC has the smallest id of all that hold memory here or wait for it. Both ends
    /// see the same order, so there is always one RPC that neither of them drops.
    fn is_first_in_line(&self, handle: RpcHandle) -> bool {
        let waiting = |handle, rpc: &Rpc| rpc.inc.is_some() || self.waits_for_memory(handle);
        let all = self.rpcs.iter().filter(|&(handle, rpc)| waiting(handle, rpc));
        let first = all.min_by_key(|(_, rpc)| rpc.id.client().0);
        first.is_some_and(|(first, _)| first == handle)
    }
}
