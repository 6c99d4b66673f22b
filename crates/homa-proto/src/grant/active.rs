//! GRANT at the receiver and at the sender (Homa §3.3): active messages are granted when DATA
//! arrives, or when others leave the active ones.
//!
//! How much is decided in `decide`, who is active in `scheduler`. This file gathers the arguments,
//! grants, and keeps the totals.

use super::decide::{Decision, GrantRoom, MessageGrant, decide};
use super::memory::reserve;
use super::overcommitment::SrptKey;
use super::state::GrantState;
use crate::config::{FifoShare, GrantPolicy, Granting, Liveness, RemainingBytes};
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Packet, PeerId};
use crate::peer::Peer;
use crate::receive::message::IncomingMessage;
use crate::rpc::RpcState;
use crate::units::Time;
use crate::util::frame::wire_bytes_of_all;
use alloc::vec::Vec;

/// Most active messages of any configuration: there are eight levels, and `Config::validate`
/// refuses a larger degree.
pub(super) const MAX_ACTIVE: usize = 8;
/// Most hosts found at once to have their share of the memory: the next ones with the next input.
const MAX_WITHHELD: usize = 64;

impl Endpoint {
    /// Bytes left of a message: to grant (Homa §3.4), or to receive (Linux §2.4).
    fn remaining(policy: &GrantPolicy, inc: &IncomingMessage) -> u32 {
        match policy.remaining {
            RemainingBytes::Unreceived => inc.bytes.length() - inc.bytes.received(),
            RemainingBytes::Ungranted => inc.bytes.length().saturating_sub(inc.grant.granted),
        }
    }

    /// The place of a message in the order of the scheduler.
    pub(super) fn srpt_key(
        policy: &GrantPolicy,
        handle: RpcHandle,
        inc: &IncomingMessage,
    ) -> SrptKey {
        let remaining = Self::remaining(policy, inc);
        // The module orders by bytes left and age alone (Linux §2.4), so no length may decide.
        let length = if policy.older_first { 0 } else { inc.bytes.length() };
        SrptKey { remaining, length, age: inc.grant.age, handle }
    }

    /// The host of a peer, for the scheduler.
    pub(super) fn host_of(peers: &[Option<Peer>], peer: PeerId) -> u32 {
        let known = peers.get(peer.0 as usize).and_then(Option::as_ref);
        known.map_or(peer.0, |peer| peer.info.host)
    }

    /// Bytes of an unscheduled packet of a peer.
    pub(crate) fn payload_of(peers: &[Option<Peer>], peer: PeerId) -> u32 {
        let known = peers.get(peer.0 as usize).and_then(Option::as_ref);
        known.map_or(1, |peer| peer.info.max_payload)
    }

    /// Gives every grant that may be given now. `arrived` is the message that received DATA, or
    /// that was completed by it, and its sender.
    pub(crate) fn grant(&mut self, arrived: Option<(RpcHandle, PeerId)>) {
        // The authors' simulator grants senders, not messages, and paces each by a timer.
        if self.config.granting == Granting::PerSender {
            let host = arrived.map(|(_, peer)| Self::host_of(&self.peers, peer));
            return self.grant_senders(host);
        }
        self.grant_active(arrived);
        // The kernel module's share is a part of the link's time, so it is due whatever was
        // granted.
        if self.config.policy().grants.fifo == FifoShare::Time {
            self.fifo_grant_by_time();
        }
    }

    /// Gives the grants that were too much work with the last input. Due with each input.
    #[inline]
    pub(crate) fn resume_granting(&mut self) {
        if self.grants.more_to_grant {
            self.grant(None);
        }
    }

    fn grant_active(&mut self, arrived: Option<(RpcHandle, PeerId)>) {
        let changed = self.grants.scheduler.take_changed() || self.grants.more_to_grant;
        if !changed && !self.grants.starved {
            // Nearly always: only the window of the message that received DATA has moved.
            if let Some((handle, _)) = arrived {
                self.grant_message(handle);
            }
            // Its last grant frees its place, so another message may have become active.
            if !self.grants.scheduler.take_changed() {
                return;
            }
        }
        let most = self.grants.hosts.withheld() + MAX_WITHHELD;
        loop {
            // Set again below if a message still lacks window or memory.
            self.grants.starved = false;
            if self.grants.scheduler.is_unlimited() {
                // Every message is active already, so no grant makes another one active.
                let all: Vec<RpcHandle> = self.grants.scheduler.by_age().collect();
                return all.into_iter().for_each(|handle| self.grant_message(handle));
            }
            // A copy, because each grant changes the scheduler's list.
            let mut active = [None; MAX_ACTIVE];
            active.iter_mut().zip(self.grants.scheduler.active()).for_each(|(a, r)| *a = Some(r));
            active.into_iter().flatten().for_each(|handle| self.grant_message(handle));
            self.grant_over_budget_message();
            // A grant may have moved a host behind the others, which makes other messages active.
            self.grants.more_to_grant = self.grants.hosts.withheld() >= most;
            if self.grants.more_to_grant || !self.grants.scheduler.take_changed() {
                return;
            }
        }
    }

    /// Extends the grant of an active message as far as its window allows.
    fn grant_message(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        // A message that is granted whole needs no more, and a suspended one gets none.
        let Some(inc) = rpc.inc.as_ref().filter(|inc| inc.grant.scheduled) else { return };
        let scheduler = &self.grants.scheduler;
        let rank = match scheduler.rank(handle) {
            Some(rank) => rank,
            // No ranks are kept, because every message is active at the lowest level.
            None if scheduler.is_unlimited() => 0,
            // It may exceed the budget because others wait for its memory, so it is granted
            // although it is not active: at the level of the last that are.
            None if self.grants.over_budget_message == Some(handle) => {
                scheduler.active_len().saturating_sub(1)
            }
            None => return,
        };
        let policy = &self.config.policy().grants;
        let packet = Self::payload_of(&self.peers, rpc.peer) + self.config.scheduled_extra;
        let rtt_bytes = self.trusted_window(rpc.peer, packet);
        let size = rtt_bytes.saturating_add(self.held_back(packet));
        let free = self.window_free(inc, size);
        let received_ahead = match policy.remaining {
            RemainingBytes::Ungranted => inc.bytes.received().saturating_sub(inc.grant.granted),
            RemainingBytes::Unreceived => 0,
        };
        let (length, granted) = (inc.bytes.length(), inc.grant.granted);
        let message = MessageGrant { length: inc.limit(), granted, received_ahead };
        let window = GrantRoom { size, free, packet, partial: policy.partial };
        let bound = || self.window_left(rank, rtt_bytes.max(packet), packet);
        let decision = decide(&message, &window, self.config.granting, bound);
        let Decision::Grant { bytes, starved } = decision else { return };
        let level = self.scheduled_level(rank, length - granted, packet);
        // Then the next DATA of any message has all active messages tried again.
        self.grants.starved |= starved;
        if self.extend_grant(handle, bytes, level) > 0 {
            self.queue_grant(handle);
        }
        // This share is a part of the granted bytes, and more were just granted.
        if policy.fifo == FifoShare::Bytes {
            self.fifo_grant();
        }
    }

    /// The level for scheduled bytes of the message at `rank`, which has `left` bytes to grant, in
    /// packets of `packet` bytes (Homa §3.4; the tail boost is the authors' simulator's).
    pub(super) fn scheduled_level(&self, rank: usize, left: u32, packet: u32) -> u8 {
        let active = self.grants.scheduler.active_len();
        let level = self.levels.scheduled_priority(rank, active);
        // The last bytes of a long message leave as those of a short one would.
        if wire_bytes_of_all(left, packet) < self.config.tail_boost {
            level.max(self.levels.own_unscheduled_priority(left))
        } else {
            level
        }
    }

    /// Grants to the message over budget although others come first: they wait for its memory.
    pub(super) fn grant_over_budget_message(&mut self) {
        if let Some(handle) = self.grants.over_budget_message {
            self.grant_message(handle);
        }
    }

    /// Grants `extra` more bytes, or as many as memory allows; returns how many. If there is no
    /// memory left, the message with the fewest bytes to grant exceeds the budget, alone, because
    /// it will free its memory soonest.
    pub(super) fn extend_grant(&mut self, handle: RpcHandle, extra: u32, priority: u8) -> u32 {
        let policy = self.config.policy();
        let first = self.grants.scheduler.rank(handle) == Some(0);
        let Some(rpc) = self.rpcs.get(handle) else { return 0 };
        // Its host holds its share of the memory, and the application will free some of it.
        let waits = rpc.state == RpcState::ServerIncoming && self.is_withheld(rpc.peer);
        let may_exceed = self.grants.may_exceed(rpc.state);
        let memory = if waits { 0 } else { self.grants.left() };
        let Some(rpc) = self.rpcs.get_mut(handle) else { return 0 };
        let Some(inc) = &mut rpc.inc else { return 0 };
        let room = memory_for(&inc.grant, memory);
        let mut withheld = None;
        let extra = if u64::from(extra) > room {
            self.counters.memory_refusals += 1;
            // A reader that pauses would keep the exception from messages that free their memory.
            if first && may_exceed && !inc.has_reader() {
                self.grants.over_budget_message.get_or_insert(handle);
            }
            // Only this message gets all of its window, so that at least one can become whole.
            if self.grants.over_budget_message == Some(handle) {
                extra
            } else {
                self.grants.starved = true;
                withheld = waits.then_some(rpc.peer);
                room as u32
            }
        } else {
            extra
        };
        if extra == 0 {
            self.withhold(withheld);
            return 0;
        }
        let old = Self::srpt_key(&policy.grants, handle, inc);
        let before = inc.outstanding();
        // See `nothing_owed` in `loss/resend`: until now there was nothing to be silent about.
        if before == 0 && policy.loss.liveness == Liveness::AnyPacket {
            // Silence counts from when something is owed.
            rpc.loss.heard(self.now);
        }
        inc.grant.granted += extra;
        self.grants.charge_grant(inc, before);
        // Bytes that arrived ahead of their grant have memory already.
        if inc.grant.granted > inc.grant.reserved {
            let (of, more) = ((rpc.peer, false), inc.grant.granted - inc.grant.reserved);
            reserve(&mut self.grants, &mut self.peers, of, more);
            inc.grant.reserved = inc.grant.granted;
        }
        inc.grant.priority = priority;
        self.grants.fifo_credit += u64::from(extra) * u64::from(self.config.fifo_permille);
        let full = inc.grant.granted == inc.limit();
        let remaining = Self::remaining(&policy.grants, inc);
        inc.grant.scheduled = !full;
        let host = Self::host_of(&self.peers, rpc.peer);
        // It leaves the active messages, but its last bytes still fill the window (see `window`).
        if full {
            self.grants.finishing += u64::from(inc.outstanding());
            self.grants.scheduler.remove(old, host);
        } else {
            self.grants.scheduler.update(old, remaining, host);
        }
        self.withhold(withheld);
        extra
    }

    /// Queues a GRANT for a message; it carries the latest grant when it leaves.
    pub(crate) fn queue_grant(&mut self, handle: RpcHandle) {
        let Some(inc) = self.rpcs.get_mut(handle).and_then(|rpc| rpc.inc.as_mut()) else { return };
        if !core::mem::replace(&mut inc.grant.grant_queued, true) {
            self.control.push_grant(handle);
        }
    }

    /// The GRANT packet of a message, if it still needs one; starts a measurement of RTTbytes.
    pub(crate) fn grant_packet(&mut self, now: Time, handle: RpcHandle) -> Option<Packet> {
        let rpc = self.rpcs.get_mut(handle)?;
        let inc = rpc.inc.as_mut()?;
        if !core::mem::take(&mut inc.grant.grant_queued) {
            return None;
        }
        let (from, granted) = (inc.grant.grant_sent, inc.grant.granted);
        // A repeated GRANT allows no new byte whose arrival could be timed.
        if granted > from {
            let expected = self.grants.expected;
            inc.start_rtt_probe(from, now, || expected.saturating_sub((granted - from).into()));
        }
        inc.grant.grant_sent = granted;
        self.counters.grants_sent += 1;
        let body = Body::Grant { offset: granted, priority: inc.grant.priority };
        self.control_packet(handle, body)
    }

    /// GRANT at the sender: more bytes may be sent, at the level that it names.
    pub(crate) fn on_grant(
        &mut self,
        now: Time,
        handle: RpcHandle,
        offset: u32,
        priority: u8,
    ) -> Result<(), DropReason> {
        let runs_once = self.suppresses_duplicates();
        let rpc = self.rpcs.get_mut(handle).ok_or(DropReason::UnknownRpc)?;
        match rpc.state {
            RpcState::ClientOutgoing | RpcState::ServerOutgoing | RpcState::OneWayOutgoing => {}
            // A late copy: all bytes have left.
            RpcState::ClientIncoming | RpcState::ServerSent => return Err(DropReason::AlreadySent),
            // The request ran before, and this is for the response of that time.
            RpcState::ServerIncoming | RpcState::ServerInService if !runs_once => {
                return Err(DropReason::AlreadySent);
            }
            RpcState::ServerIncoming | RpcState::ServerInService | RpcState::OneWayIncoming => {
                return Err(DropReason::WrongState);
            }
        }
        // Homa §3.7: the receiver is alive and wants more, so silence starts now.
        rpc.loss.progressed(now);
        let out = &mut rpc.out;
        // A peer with more levels may name one that we do not have.
        out.grant(offset, priority.min(self.levels.top()), self.config.granted_level);
        // Without granted bytes it was not in the SRPT queue.
        self.send_queue.wake(handle, out);
        self.counters.grants_received += 1;
        self.sample_rtt_as_sender(now, handle);
        Ok(())
    }
}

/// Bytes that may be granted to a message if `memory` bytes are free: more if some are reserved
/// ahead of its grant, fewer if some that were granted are not reserved (any more).
fn memory_for(grant: &GrantState, memory: u64) -> u64 {
    let ahead = u64::from(grant.reserved.saturating_sub(grant.granted));
    let behind = u64::from(grant.granted.saturating_sub(grant.reserved));
    (memory + ahead).saturating_sub(behind)
}
