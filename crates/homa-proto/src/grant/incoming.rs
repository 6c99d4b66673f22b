//! Updates of the totals, the memory and the scheduler if an incoming message begins, receives
//! bytes, or ends.

use super::memory::{release, reserve};
use super::overcommitment::SrptKey;
use super::state::GrantState;
use crate::config::{GrantWindow, RemainingBytes};
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::{Data, PeerId};
use crate::receive::message::{IncomingMessage, memory_of};
use crate::send::unscheduled::most_unscheduled;
use crate::util::frame::{wire_bytes, wire_bytes_of_all};
use alloc::boxed::Box;

impl Endpoint {
    /// The first packet of a message arrived. The unscheduled bytes that it announces are expected,
    /// up to the most that any sender sends.
    pub(crate) fn begin_incoming(&mut self, handle: RpcHandle, data: &Data) {
        let age = self.send_queue.age();
        let Some((peer, unvalidated)) =
            self.rpcs.get(handle).map(|rpc| (rpc.peer, rpc.is_unvalidated()))
        else {
            return;
        };
        let payload = Self::payload_of(&self.peers, peer);
        let length = data.message_length;
        // A packet more, because a sender may fill the packet in which its limit lies.
        let most = most_unscheduled(&self.config) + payload;
        let unscheduled = data.incoming.min(length).min(most);
        let mut grant = GrantState::new(self.now, unscheduled, age);
        grant.reserved = memory_of(data.span.offset + data.span.len, data.span.len);
        if let GrantWindow::WireBytes(_) = self.config.window {
            grant.wire_outstanding = wire_bytes_of_all(unscheduled, payload);
        }
        // Nothing is expected from a client that is not validated, nor from a host that wasted
        // grants until more of the message comes.
        let known = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let has_waste = known.is_some_and(|peer| self.grants.hosts.has_wasted_grants(peer));
        grant.suspended = unvalidated || has_waste && unscheduled > data.span.len;
        let (reserved, suspended) = (grant.reserved, grant.suspended);
        let inc = self.grants.new_message(length, grant);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.inc = Some(inc);
        self.read_early(handle);
        reserve(&mut self.grants, &mut self.peers, (peer, unvalidated), reserved);
        // It counts against the quota of unvalidated senders, because the address may be spoofed.
        if unvalidated {
            self.validation.charge(reserved);
        }
        if !suspended {
            self.grants.expected += u64::from(unscheduled);
            self.schedule(handle);
        }
    }

    /// Bytes of an incomplete message were accepted. `before`: its outstanding and its received
    /// bytes just before.
    pub(crate) fn account_received(&mut self, handle: RpcHandle, before: (u32, u32), data: &Data) {
        let (outstanding, received) = before;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = &mut rpc.inc else { return };
        if let GrantWindow::WireBytes(_) = self.config.window {
            // Scheduled packets of the authors' simulator hold more message bytes.
            let extra = if data.is_unscheduled() { 0 } else { self.config.scheduled_extra };
            let payload = Self::payload_of(&self.peers, rpc.peer) + extra;
            let wire = wire_bytes(data.span.len, payload);
            inc.grant.wire_outstanding = inc.grant.wire_outstanding.saturating_sub(wire);
        }
        // A suspended message was taken out of the totals.
        if !inc.grant.suspended {
            let arrived = u64::from(outstanding - inc.outstanding());
            self.grants.expected -= arrived;
            self.grants.release_window(inc, arrived);
        }
        let more = inc.held().saturating_sub(inc.grant.reserved);
        inc.grant.reserved += more;
        if more > 0 {
            let unvalidated = rpc.is_unvalidated();
            reserve(&mut self.grants, &mut self.peers, (rpc.peer, unvalidated), more);
            if unvalidated {
                self.validation.charge(more);
            }
        }
        let grants = &mut self.grants;
        let new = (rpc.peer, data.span.len);
        grants.hosts.repay(&mut self.peers, &mut grants.scheduler, new);
        let policy = &self.config.policy().grants;
        let Some(inc) = &rpc.inc else { return };
        // Arrivals change the order only if it counts unreceived bytes (Linux §2.4).
        if inc.grant.scheduled && policy.remaining == RemainingBytes::Unreceived {
            let new = Self::srpt_key(policy, handle, inc);
            let old = SrptKey { remaining: inc.bytes.length() - received, ..new };
            let host = Self::host_of(&self.peers, rpc.peer);
            grants.scheduler.update(old, new.remaining, host);
        }
    }

    /// The reader of a message that arrives has taken `more` bytes: their memory is free, and as
    /// many more may be granted.
    pub(crate) fn move_window(&mut self, handle: RpcHandle, more: u32) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let peer = rpc.peer;
        let Some(inc) = &mut rpc.inc else { return };
        inc.move_window(more);
        // A suspended message is resumed by its sender's bytes, not by its reader.
        let idle = !inc.grant.scheduled && !inc.grant.suspended;
        let opens = idle && inc.grant.granted < inc.limit();
        if opens && inc.grant.window_counted {
            // Its outstanding bytes are not its last any more.
            self.grants.finishing -= u64::from(inc.outstanding());
            inc.grant.scheduled = true;
            let key = Self::srpt_key(&self.config.policy().grants, handle, inc);
            self.enlist(key, peer);
        // It had no grant so far, so that it begins as any other message.
        } else if opens {
            self.schedule(handle);
        }
        release(&mut self.grants, &mut self.peers, (peer, false), more);
        self.wake_memory_queue();
    }

    /// An incoming message, just taken from its RPC, ends: delivered or given up. `from`: its
    /// sender, and whether that was not validated.
    pub(crate) fn end_incoming(
        &mut self,
        handle: RpcHandle,
        from: (PeerId, bool),
        inc: Box<IncomingMessage>,
    ) {
        // A suspended message was taken out of the totals when its sender fell silent.
        if !inc.grant.suspended {
            let outstanding = u64::from(inc.outstanding());
            self.grants.expected -= outstanding;
            self.grants.release_window(&inc, outstanding);
        }
        if inc.grant.scheduled {
            let key = Self::srpt_key(&self.config.policy().grants, handle, &inc);
            self.grants.scheduler.remove(key, Self::host_of(&self.peers, from.0));
        }
        // The memory of bytes that a reader took was released then (`move_window`).
        release(&mut self.grants, &mut self.peers, from, inc.memory());
        // From now on another message may exceed the budget.
        if self.grants.over_budget_message == Some(handle) {
            self.grants.over_budget_message = None;
        }
        self.grants.recycle(inc);
        self.wake_memory_queue();
    }

    /// A message of a client that is validated now: it counts for its host, and bytes are expected
    /// from it. It is not granted yet: see [`Endpoint::schedule`].
    pub(crate) fn admit_incoming(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let (peer, mut reserved) = (rpc.peer, 0);
        if let Some(inc) = &mut rpc.inc {
            inc.grant.suspended = false;
            self.grants.expected += u64::from(inc.outstanding());
            reserved = inc.grant.reserved;
        }
        // Its memory moves from the quota of unvalidated senders to its host.
        self.validation.release(reserved);
        release(&mut self.grants, &mut self.peers, (peer, true), reserved);
        reserve(&mut self.grants, &mut self.peers, (peer, false), reserved);
    }

    /// The split of levels changed, and with it perhaps the degree of overcommitment.
    pub(crate) fn update_degree(&mut self) {
        let degree = self.degree();
        self.grants.scheduler.set_degree(degree);
    }
}
