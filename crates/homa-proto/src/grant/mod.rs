//! Flow control (Homa §3.3): which bytes of incoming messages may be sent now.
//!
//! Grants keep a window of granted-but-not-received bytes per active message (`overcommitment.rs`
//! chooses which are active). Invariants: grants only grow; where the profile bounds the bytes
//! granted and not received over messages (`window.rs`), none is given beyond that but the oldest's
//! share (`fifo.rs`), at most three of its increments a message, and a message's first may take it
//! beyond by what its sender announced; memory for granted bytes is within the budget, but for one
//! message at a time; a grant withheld for want of either is given as soon as there is room.

mod credit;
mod fifo;
mod hosts;
mod memory;
mod memory_queue;
pub(crate) mod scheduler;
mod sibling_shards;
mod suspend;
mod timer;
mod window;

use crate::config::{
    Config, FifoShare, GrantPolicy, GrantWindow, Granting, Liveness, Overcommitment, RemainingBytes,
};
use crate::endpoint::{Control, Endpoint};
use crate::event::{DropReason, RpcHandle};
use crate::grant::scheduler::{SrptKey, UNLIMITED};
use crate::packet::{Body, Data, Packet, PeerId};
use crate::peer::Peer;
use crate::rpc::{IncomingMessage, RpcState, RttProbe, memory_of};
use crate::send::most_unscheduled;
use crate::units::Time;
use crate::util::frame::{wire_bytes, wire_bytes_of_all};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hosts::Accounts;
use memory::{release, reserve};
use memory_queue::MemoryQueue;

pub use credit::Credit;
pub use sibling_shards::SiblingShards;

/// Finished messages kept for reuse.
const MAX_SPARE: usize = 64;
/// Most active messages of any configuration.
const MAX_ACTIVE: usize = 8;
/// Hosts found at once to have their share of the memory: the next ones with the next input.
const MAX_WITHHELD: usize = 64;

/// Bytes that are on their way to us.
#[derive(Debug, Default)]
pub(crate) struct IncomingTotals {
    /// Granted or unscheduled and not received, over all incomplete messages.
    pub(crate) expected: u64,
    /// Unscheduled bytes that responses not begun may bring (Homa §3.6).
    pub(crate) pending_unscheduled: u64,
    /// What of `expected` belongs to messages that needed grants: what `max_incoming` bounds. In
    /// the user profile to those that were given one: an announcement is anybody's word.
    pub(crate) granted: u64,
    /// What of `granted` belongs to messages that need no more grants.
    pub(crate) finishing: u64,
    /// What each host holds.
    pub(crate) accounts: Accounts,
    /// Held for incomplete messages, of `budget`.
    pub(crate) memory: u64,
    /// Held, of it, by whole requests that the application has not taken.
    unaccepted: u64,
    pub(crate) budget: u64,
    /// How far ahead of its grant a sender's bytes may be.
    pub(crate) ahead: u32,
    /// A grant was withheld for want of window or memory.
    starved: bool,
    /// There may be more to grant, which was too much work at once.
    more_to_grant: bool,
    /// The one message that may exceed the budget until it ends. Without it, messages that are each
    /// partly here could fill the memory so that none of them ever becomes whole.
    pub(crate) over_budget_message: Option<RpcHandle>,
    /// Bytes granted since the last FIFO grant, in thousandths of its increment.
    fifo_credit: u64,
    /// Messages that could not begin.
    pub(crate) memory_queue: MemoryQueue,
    /// When the next FIFO grant of profile `linux` is due.
    fifo_due: Time,
    /// Of messages that ended, for others to come.
    #[expect(clippy::vec_box, reason = "RPCs hold boxes")]
    spare: Vec<Box<IncomingMessage>>,
}

impl IncomingTotals {
    pub(crate) fn new(config: &Config) -> Self {
        // Unscheduled bytes, before the packet that announces them or when that one was sent again
        // and announced only itself; and the rest of the packet in which the grant ends.
        let packet = config.profile.policy().grants.packet;
        let ahead = most_unscheduled(config).saturating_add(packet);
        Self { budget: config.memory_budget, ahead, ..Self::default() }
    }
}

impl Endpoint {
    /// The degree of overcommitment now.
    pub(crate) fn degree(&self) -> usize {
        match self.config.overcommitment {
            Overcommitment::ScheduledLevels => usize::from(self.levels.scheduled_levels()),
            Overcommitment::Fixed(k) => usize::from(k),
            Overcommitment::Unlimited => UNLIMITED,
        }
    }

    /// SRPT's measure: bytes to grant (Homa §3.4), or to receive (Linux §2.4).
    fn remaining(grants: &GrantPolicy, inc: &IncomingMessage) -> u32 {
        match grants.remaining {
            RemainingBytes::Unreceived => inc.bytes.length() - inc.bytes.received(),
            RemainingBytes::Ungranted => inc.bytes.length().saturating_sub(inc.granted),
        }
    }

    fn key(grants: &GrantPolicy, handle: RpcHandle, inc: &IncomingMessage) -> SrptKey {
        let remaining = Self::remaining(grants, inc);
        let length = if grants.older_first { 0 } else { inc.bytes.length() };
        SrptKey { remaining, length, age: inc.age, handle }
    }

    fn host_of(peers: &[Option<Peer>], peer: PeerId) -> u32 {
        let known = peers.get(peer.0 as usize).and_then(Option::as_ref);
        known.map_or(peer.0, |p| p.info.host)
    }

    /// Bytes of an unscheduled packet.
    pub(crate) fn payload_of(peers: &[Option<Peer>], peer: PeerId) -> u32 {
        let known = peers.get(peer.0 as usize).and_then(Option::as_ref);
        known.map_or(1, |p| p.info.max_payload)
    }

    /// The first packet of a message arrived: the bytes that it says come without a grant do, if
    /// they are no more than any sender's.
    pub(crate) fn begin_incoming(&mut self, handle: RpcHandle, data: &Data) {
        let age = self.sender.age();
        let Some(peer) = self.rpcs.get(handle).map(|rpc| rpc.peer) else { return };
        let most = most_unscheduled(&self.config) + Self::payload_of(&self.peers, peer);
        let length = data.message_length;
        let unscheduled = data.incoming.min(length).min(most);
        let reserved = memory_of(data.span.offset + data.span.len, data.span.len);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let mut inc = match self.incoming.spare.pop() {
            Some(mut inc) => {
                inc.reuse(self.now, length, unscheduled, age);
                inc
            }
            None => Box::new(IncomingMessage::new(self.now, length, unscheduled, age)),
        };
        inc.reserved = reserved;
        if let GrantWindow::WireBytes(_) = self.config.window {
            let payload = Self::payload_of(&self.peers, rpc.peer);
            inc.wire_outstanding = wire_bytes_of_all(unscheduled, payload);
        }
        // What a stranger announces nobody waits for, nor, until more comes of it, what a host does
        // that wasted grants.
        let unvalidated = rpc.unvalidated;
        let known = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let has_waste = known.is_some_and(|peer| self.incoming.accounts.has_wasted_grants(peer));
        let suspended = unvalidated || has_waste && unscheduled > data.span.len;
        inc.suspended = suspended;
        rpc.inc = Some(inc);
        reserve(&mut self.incoming, &mut self.peers, (peer, unvalidated), reserved);
        if unvalidated {
            self.validation.count(reserved);
        }
        if !suspended {
            self.incoming.expected += u64::from(unscheduled);
            self.schedule(handle);
        }
    }

    /// Bytes of an incomplete message were accepted; `before` is its state just before.
    pub(crate) fn account_received(&mut self, handle: RpcHandle, before: (u32, u32), data: &Data) {
        let (outstanding, received) = before;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = &mut rpc.inc else { return };
        if let GrantWindow::WireBytes(_) = self.config.window {
            let extra = if data.is_unscheduled() { 0 } else { self.config.scheduled_extra };
            let payload = Self::payload_of(&self.peers, rpc.peer) + extra;
            let wire = wire_bytes(data.span.len, payload);
            inc.wire_outstanding = inc.wire_outstanding.saturating_sub(wire);
        }
        if !inc.suspended {
            let arrived = u64::from(outstanding - inc.outstanding());
            self.incoming.expected -= arrived;
            self.incoming.release_window(inc, arrived);
        }
        let more = inc.held().saturating_sub(inc.reserved);
        if more > 0 {
            reserve(&mut self.incoming, &mut self.peers, (rpc.peer, rpc.unvalidated), more);
            inc.reserved += more;
            if rpc.unvalidated {
                self.validation.count(more);
            }
        }
        let new = (rpc.peer, data.span.len);
        self.incoming.accounts.repay(&mut self.peers, &mut self.scheduler, new);
        let grants = &self.config.policy().grants;
        if inc.scheduled && grants.remaining == RemainingBytes::Unreceived {
            let new = Self::key(grants, handle, inc);
            let old = SrptKey { remaining: inc.bytes.length() - received, ..new };
            let host = Self::host_of(&self.peers, rpc.peer);
            self.scheduler.update(old, new.remaining, host);
        }
    }

    /// An incoming message, just taken from its RPC, ends: delivered or given up. `from`: its
    /// sender, and whether that was a stranger.
    pub(crate) fn end_incoming(
        &mut self,
        handle: RpcHandle,
        from: (PeerId, bool),
        inc: Box<IncomingMessage>,
    ) {
        if !inc.suspended {
            let outstanding = u64::from(inc.outstanding());
            self.incoming.expected -= outstanding;
            self.incoming.release_window(&inc, outstanding);
        }
        if inc.scheduled {
            let key = Self::key(&self.config.policy().grants, handle, &inc);
            self.scheduler.remove(key, Self::host_of(&self.peers, from.0));
        }
        release(&mut self.incoming, &mut self.peers, from, inc.reserved);
        if self.incoming.over_budget_message == Some(handle) {
            self.incoming.over_budget_message = None;
        }
        if self.incoming.spare.len() < MAX_SPARE {
            self.incoming.spare.push(inc);
        }
        self.wake_waiting();
    }

    /// Gives every grant that may be given now; `arrived` is the message that received data, or
    /// was whole with it, and its sender.
    pub(crate) fn grant(&mut self, arrived: Option<(RpcHandle, PeerId)>) {
        if self.config.granting == Granting::PerSender {
            let host = arrived.map(|(_, peer)| Self::host_of(&self.peers, peer));
            return self.grant_senders(host);
        }
        self.grant_active(arrived);
        if self.config.policy().grants.fifo == FifoShare::Time {
            self.fifo_grant_by_time();
        }
    }

    /// Due with each input.
    #[inline]
    pub(crate) fn resume_granting(&mut self) {
        if self.incoming.more_to_grant {
            self.grant(None);
        }
    }

    fn grant_active(&mut self, arrived: Option<(RpcHandle, PeerId)>) {
        let changed = self.scheduler.take_changed() || self.incoming.more_to_grant;
        let all = changed || self.incoming.starved;
        if !all {
            if let Some((handle, _)) = arrived {
                self.grant_message(handle);
            }
            if !self.scheduler.take_changed() {
                return;
            }
        }
        let most = self.incoming.accounts.withheld() + MAX_WITHHELD;
        loop {
            self.incoming.starved = false;
            if self.scheduler.is_unlimited() {
                let all: Vec<RpcHandle> = self.scheduler.by_age().collect();
                return all.into_iter().for_each(|handle| self.grant_message(handle));
            }
            let mut active = [None; MAX_ACTIVE];
            active.iter_mut().zip(self.scheduler.active()).for_each(|(a, r)| *a = Some(r));
            active.into_iter().flatten().for_each(|handle| self.grant_message(handle));
            self.grant_over_budget_message();
            self.incoming.more_to_grant = self.incoming.accounts.withheld() >= most;
            if self.incoming.more_to_grant {
                return;
            }
            if !self.scheduler.take_changed() {
                return;
            }
        }
    }

    /// Extends the grant of an active message as far as its window allows.
    fn grant_message(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let Some(inc) = rpc.inc.as_ref().filter(|inc| inc.scheduled) else { return };
        let active = self.scheduler.active_len();
        let rank = match self.scheduler.rank(handle) {
            Some(rank) => rank,
            None if self.scheduler.is_unlimited() => 0,
            None if self.incoming.over_budget_message == Some(handle) => active.saturating_sub(1),
            None => return,
        };
        let grants = &self.config.policy().grants;
        let payload = Self::payload_of(&self.peers, rpc.peer) + self.config.scheduled_extra;
        let window = self.trusted_window(rpc.peer, payload);
        let (ahead, least) = match self.config.granting {
            Granting::Ahead { packets } => (u32::from(packets) * payload, 0),
            Granting::PerMessage { least_packets } => (0, u32::from(least_packets) * payload),
            Granting::PerSender => (0, 0),
        };
        let room = self.window_room(inc, window);
        let left = inc.bytes.length() - inc.granted;
        let wanted = if room == 0 { 0 } else { room.saturating_add(ahead).min(left) };
        let can_wait = wanted < left.min(least) && room < window - window / 2;
        if wanted == 0 || can_wait {
            return;
        }
        let level = self.scheduled_level(rank, left, payload);
        let left = self.window_left(rank, window.max(payload), payload);
        // Less than a packet is not worth a GRANT while more is to come.
        let worth = if grants.partial { 1 } else { wanted.min(payload) };
        // What came beyond the grant (its sender had others from our former life, or at its former
        // address) is here: a grant that ended before it would bring nothing.
        let ahead = inc.bytes.received().saturating_sub(inc.granted);
        let here = if grants.remaining == RemainingBytes::Ungranted { ahead.into() } else { 0 };
        let extra = if left < u64::from(worth) { 0 } else { left.saturating_add(here) };
        let extra = extra.min(u64::from(wanted));
        if extra < u64::from(wanted) {
            self.incoming.starved = true;
        }
        if self.extend_grant(handle, extra as u32, level) > 0 {
            self.queue_grant(handle);
        }
        if grants.fifo == FifoShare::Bytes {
            self.fifo_grant();
        }
    }

    /// The level for scheduled bytes of the message at `rank` of which `left` bytes are not
    /// granted, in packets of `payload`.
    fn scheduled_level(&self, rank: usize, left: u32, payload: u32) -> u8 {
        let level = self.levels.scheduled_priority(rank, self.scheduler.active_len());
        if wire_bytes_of_all(left, payload) < self.config.tail_boost {
            level.max(self.levels.own_unscheduled_priority(left))
        } else {
            level
        }
    }

    /// The message beyond the budget goes on although others come before it: they wait for its
    /// memory.
    pub(crate) fn grant_over_budget_message(&mut self) {
        if let Some(handle) = self.incoming.over_budget_message {
            self.grant_message(handle);
        }
    }

    /// Grants `extra` more bytes, or as many as memory allows, and yields their number. When there
    /// is none left, the message with the fewest bytes to grant goes beyond the budget, alone, and
    /// thereby frees memory soonest.
    fn extend_grant(&mut self, handle: RpcHandle, extra: u32, priority: u8) -> u32 {
        let policy = self.config.policy();
        let first = self.scheduler.rank(handle) == Some(0);
        let Some(rpc) = self.rpcs.get(handle) else { return 0 };
        let waits = rpc.state == RpcState::ServerIncoming && self.is_withheld(rpc.peer);
        let may_exceed = self.incoming.may_exceed(rpc.state);
        let memory = if waits { 0 } else { self.incoming.left() };
        let Some(rpc) = self.rpcs.get_mut(handle) else { return 0 };
        let Some(inc) = &mut rpc.inc else { return 0 };
        // Reserved ahead of the grant, or granted and not reserved (any more).
        let spare = u64::from(inc.reserved.saturating_sub(inc.granted));
        let owed = u64::from(inc.granted.saturating_sub(inc.reserved));
        let room = (memory + spare).saturating_sub(owed);
        let mut withheld = None;
        let extra = if u64::from(extra) > room {
            self.counters.memory_refusals += 1;
            if first && may_exceed {
                self.incoming.over_budget_message.get_or_insert(handle);
            }
            if self.incoming.over_budget_message == Some(handle) {
                extra
            } else {
                self.incoming.starved = true;
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
        let old = Self::key(&policy.grants, handle, inc);
        let before = inc.outstanding();
        if before == 0 && policy.loss.liveness == Liveness::AnyPacket {
            // Silence counts from when something is owed.
            rpc.last_heard = self.now;
        }
        inc.granted += extra;
        let more = u64::from(inc.outstanding() - before);
        self.incoming.expected += more;
        let counted = core::mem::replace(&mut inc.window_counted, true);
        self.incoming.granted += if counted { more } else { u64::from(inc.outstanding()) };
        if inc.granted > inc.reserved {
            let (of, more) = ((rpc.peer, false), inc.granted - inc.reserved);
            reserve(&mut self.incoming, &mut self.peers, of, more);
            inc.reserved = inc.granted;
        }
        inc.priority = priority;
        self.incoming.fifo_credit += u64::from(extra) * u64::from(self.config.fifo_permille);
        let full = inc.granted == inc.bytes.length();
        let remaining = Self::remaining(&policy.grants, inc);
        inc.scheduled = !full;
        if full {
            self.incoming.finishing += u64::from(inc.outstanding());
        }
        let host = Self::host_of(&self.peers, rpc.peer);
        if full {
            self.scheduler.remove(old, host);
        } else {
            self.scheduler.update(old, remaining, host);
        }
        self.withhold(withheld);
        extra
    }

    /// Has the message's grant sent as it will be when the packet leaves.
    pub(crate) fn queue_grant(&mut self, handle: RpcHandle) {
        let Some(inc) = self.rpcs.get_mut(handle).and_then(|rpc| rpc.inc.as_mut()) else { return };
        if !core::mem::replace(&mut inc.grant_queued, true) {
            self.control.push_back(Control::Grant(handle));
        }
    }

    /// The GRANT packet of a message, if it still needs one; starts an RTT probe.
    pub(crate) fn grant_packet(&mut self, now: Time, handle: RpcHandle) -> Option<Packet> {
        let rpc = self.rpcs.get_mut(handle)?;
        let inc = rpc.inc.as_mut()?;
        if !core::mem::take(&mut inc.grant_queued) {
            return None;
        }
        if inc.probe.is_none() && inc.granted > inc.grant_sent {
            let new = u64::from(inc.granted - inc.grant_sent);
            let ahead = self.incoming.expected.saturating_sub(new);
            inc.probe = Some(RttProbe { from: inc.grant_sent, sent: now, ahead });
        }
        inc.grant_sent = inc.granted;
        self.counters.grants_sent += 1;
        let body = Body::Grant { offset: inc.granted, priority: inc.priority };
        self.control_packet(handle, body)
    }

    /// Homa §3.3, GRANT at the sender: more may be sent, at another level.
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
            RpcState::ClientIncoming | RpcState::ServerSent => return Err(DropReason::AlreadySent),
            // For what was sent when the request ran before.
            RpcState::ServerIncoming | RpcState::ServerInService if !runs_once => {
                return Err(DropReason::AlreadySent);
            }
            RpcState::ServerIncoming | RpcState::ServerInService | RpcState::OneWayIncoming => {
                return Err(DropReason::WrongState);
            }
        }
        rpc.last_heard = now;
        rpc.resend_count = 0;
        let out = &mut rpc.out;
        out.grant(offset, priority.min(self.levels.top()), self.config.granted_level);
        self.sender.wake(handle, out);
        self.counters.grants_received += 1;
        self.sample_rtt_as_sender(now, handle);
        Ok(())
    }
}
