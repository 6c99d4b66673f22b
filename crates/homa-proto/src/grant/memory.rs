//! Memory for incoming messages: what is held, and by whom; who may take more, and who gives way.

use super::IncomingTotals;
use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::loss::SUSPEND_AFTER;
use crate::packet::PeerId;
use crate::peer::Peer;
use crate::rpc::{Rpc, RpcState};
use crate::units::Time;

/// Hosts looked at when memory becomes free.
const MAX_HOSTS_CHECKED: usize = 16;

/// Counts memory for a message of a peer; its host has no part in what a stranger holds.
pub(super) fn reserve(
    totals: &mut IncomingTotals,
    peers: &mut [Option<Peer>],
    (peer, unvalidated): (PeerId, bool),
    bytes: u32,
) {
    totals.memory += u64::from(bytes);
    if let Some(peer) = peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
        peer.cold.memory += u64::from(bytes);
        if let Some(account) = totals.accounts.of_mut(peer).filter(|_| !unvalidated) {
            account.memory += u64::from(bytes);
        }
    }
}

/// Gives memory back.
pub(super) fn release(
    totals: &mut IncomingTotals,
    peers: &mut [Option<Peer>],
    (peer, unvalidated): (PeerId, bool),
    bytes: u32,
) {
    totals.memory -= u64::from(bytes);
    if let Some(peer) = peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
        peer.cold.memory -= u64::from(bytes);
        if let Some(account) = totals.accounts.of_mut(peer).filter(|_| !unvalidated) {
            account.memory -= u64::from(bytes);
        }
    }
}

impl IncomingTotals {
    /// Memory is short for others than `handle`.
    pub(crate) fn is_short(&self, handle: RpcHandle) -> bool {
        let other = self.over_budget_message.is_some_and(|other| other != handle);
        other || self.starved || !self.memory_queue.is_empty()
    }

    /// Memory that nobody holds.
    pub(crate) const fn left(&self) -> u64 {
        self.budget.saturating_sub(self.memory + self.unaccepted)
    }

    /// PeerCold than half of the memory is held, and by one host more than is left for all others.
    const fn is_a_share(&self, held: u64) -> bool {
        self.left() < self.budget / 2 && held > self.left()
    }

    /// Much waits for the application, which frees memory as it takes it.
    const fn waits_for_accept(&self) -> bool {
        self.unaccepted > self.budget / 64
    }

    /// One message may go beyond the budget, or its host's share, until it is whole. Not a request
    /// where memory becomes free without that.
    pub(super) const fn may_exceed(&self, state: RpcState) -> bool {
        !matches!(state, RpcState::ServerIncoming) || !self.waits_for_accept()
    }

    /// Memory for `bytes` more?
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        u64::from(bytes) <= self.left()
    }
}

impl Endpoint {
    /// Room for `bytes` more of incoming messages?
    pub(crate) fn has_memory(&self, bytes: u32) -> bool {
        self.incoming.has_room(bytes)
    }

    /// A request of a peer is delivered: its memory counts, and for its host, until it is taken.
    pub(crate) fn charge_unaccepted(&mut self, peer: PeerId, bytes: u32) {
        let peer = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        if let Some(account) = peer.and_then(|peer| self.incoming.accounts.of_mut(peer)) {
            account.unaccepted += u64::from(bytes);
            self.incoming.unaccepted += u64::from(bytes);
        }
    }

    /// Application in: has taken a request of so many bytes, of a peer with an account.
    pub fn request_accepted(&mut self, account: u32, bytes: u32) {
        self.incoming.accounts.accepted(account, bytes);
        self.incoming.unaccepted = self.incoming.unaccepted.saturating_sub(bytes.into());
        self.memory_became_free();
    }

    /// True when a peer's host holds more memory than is left for all others: it begins no more
    /// requests.
    pub(crate) fn has_its_share(&self, peer: PeerId) -> bool {
        let of_host = |peer| self.incoming.accounts.of(peer).held();
        self.peer(peer).is_some_and(|peer| self.incoming.is_a_share(of_host(peer)))
    }

    /// Requests of a peer get no more grants: its host has its share of the memory, and some comes
    /// back without its being whole.
    pub(super) fn is_withheld(&self, peer: PeerId) -> bool {
        self.incoming.waits_for_accept() && self.has_its_share(peer)
    }

    /// Requests of a peer get no more grants until some are taken.
    pub(super) fn withhold(&mut self, peer: Option<PeerId>) {
        let peer = peer.and_then(|peer| self.peers.get(peer.0 as usize)?.as_ref());
        if let Some(peer) = peer {
            self.incoming.accounts.withhold(peer, &mut self.scheduler);
        }
    }

    /// Hosts that may be granted more come beside others again. A few are looked at each time: the
    /// others stay behind for so long, where they are granted what nobody else wants.
    pub(super) fn resume_withheld_hosts(&mut self) {
        for _ in 0..self.incoming.accounts.withheld().min(MAX_HOSTS_CHECKED) {
            let Some((host, held)) = self.incoming.accounts.next_withheld() else { return };
            if !self.incoming.waits_for_accept() || !self.incoming.is_a_share(held) {
                self.incoming.accounts.resume_host(host, &mut self.scheduler);
            }
        }
    }

    /// Room that a message needs to begin, of which a packet up to `end` is here and whose sender
    /// says that `incoming` bytes come unasked: for what we told senders to send at most, not for
    /// what this one says.
    pub(crate) fn first_bytes(&self, peer: PeerId, incoming: u32, end: u32) -> u32 {
        if incoming <= end {
            return end;
        }
        let most = self.unscheduled_cap() + Self::payload_of(&self.peers, peer);
        incoming.min(most).max(end)
    }

    /// The message of a stranger, who is none any more, counts for its host.
    pub(crate) fn charge_memory(&mut self, peer: PeerId, bytes: u32) {
        release(&mut self.incoming, &mut self.peers, (peer, true), bytes);
        reserve(&mut self.incoming, &mut self.peers, (peer, false), bytes);
    }

    /// Memory for bytes of a message that were not granted: a sender may run a little ahead of its
    /// grant, and unscheduled bytes are not promised anything. Where there is none, one message
    /// is gone on with beyond the budget. A host that has its share begins no more requests, and
    /// those that it began are only gone on with as they are granted.
    pub(crate) fn find_memory(
        &mut self,
        now: Time,
        handle: RpcHandle,
        more: u32,
    ) -> Result<(), DropReason> {
        let rpc = self.rpcs.get(handle).ok_or(DropReason::UnknownRpc)?;
        if rpc.unvalidated && self.validation.is_short(more, self.config.memory_budget) {
            return Err(DropReason::NoMemory);
        }
        let greedy = rpc.state == RpcState::ServerIncoming && self.has_its_share(rpc.peer);
        if !greedy && self.incoming.has_room(more) {
            return Ok(());
        }
        if self.incoming.may_exceed(rpc.state) {
            self.incoming.over_budget_message.get_or_insert(handle);
        }
        if self.incoming.over_budget_message != Some(handle) {
            if let Some(rpc) = self.rpcs.get_mut(handle) {
                rpc.last_heard = now;
            }
            self.grant_over_budget_message();
            return Err(DropReason::NoMemory);
        }
        Ok(())
    }

    /// Gives up what is here of a silent message while others lack memory. Where servers forget at
    /// once, each end may hold parts of what the other has no room to begin again. Whoever still
    /// wants it asks for all of it.
    pub(crate) fn make_room(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let silent =
            rpc.resend_count + 1 >= SUSPEND_AFTER && rpc.awaits_bytes() && !rpc.resends_queued;
        let forgets = self.config.completion == Completion::AtLeastOnce;
        if !silent || !forgets || !self.incoming.is_short(handle) || self.is_first_in_line(handle) {
            return;
        }
        match rpc.state {
            RpcState::ClientIncoming => self.drop_response(handle),
            RpcState::ServerIncoming => self.end_server_rpc(handle),
            _ => {}
        }
    }

    /// Of the messages that hold memory here or wait for it, this one's RPC has the smallest id.
    /// Each end sees the same order, so of those that lack what another holds one always goes on.
    fn is_first_in_line(&self, handle: RpcHandle) -> bool {
        let incoming =
            |handle, rpc: &Rpc| rpc.inc.is_some() || self.incoming.memory_queue.contains(handle);
        let all = self.rpcs.iter().filter(|&(handle, rpc)| incoming(handle, rpc));
        let first = all.min_by_key(|(_, rpc)| rpc.id.client().0);
        first.is_some_and(|(first, _)| first == handle)
    }
}
