//! When an RPC's state ends (Homa §3.8; Linux §2.5).
//!
//! `AtLeastOnce`: the server forgets with the last response packet. `Acked`: the client reports
//! completed RPCs, one in each DATA packet to the server's host or five to an ACK; a server that
//! waits too long asks with NEED_ACK, and gives up where the profile says so.

pub(crate) mod replay_window;

use crate::config::Completion;
use crate::endpoint::{Control, Endpoint};
use crate::event::{Event, RpcHandle};
use crate::loss::without_drift;
use crate::packet::{AckEntry, Acks, Body, Packet, PeerId, RpcId};
use crate::rpc::table::ServerKey;
use crate::rpc::{EndedRpc, RpcState, incoming_message, outgoing_message};
use crate::units::{Duration, Time};
use crate::util::timer::TICK;
use alloc::collections::VecDeque;

/// Most doublings of the interval between NEED_ACKs.
const MAX_BACKOFF: u16 = 6;

/// NEED_ACKs to one peer in a millisecond. The answer to each brings the acks that wait; to ask for
/// thousands of RPCs would be what keeps a busy peer from answering.
const MAX_NEED_ACKS: u16 = 16;

/// How soon an RPC beyond that may try again, at least: later than those who asked, which makes it
/// their turn next, and seldom enough for the number of them.
const REFUSED: Duration = Duration::millis(3);

/// How long more acks than that wait, well before a server asks for them.
const ACK_DELAY: Duration = Duration::millis(5);

/// Completed RPCs that a server has not been told about, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks(VecDeque<AckEntry>);

impl PendingAcks {
    /// One to ride on a DATA packet: the oldest, or the newest.
    pub(crate) fn pop(&mut self, newest: bool) -> Option<AckEntry> {
        if newest { self.0.pop_back() } else { self.0.pop_front() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As many as an ACK packet holds.
    fn take(&mut self) -> Acks {
        let mut acks = Acks::default();
        while acks.len() < Acks::CAPACITY
            && let Some(entry) = self.0.pop_front()
        {
            let _ = acks.push(entry);
        }
        acks
    }
}

impl Endpoint {
    /// Client: the response of an RPC is complete; its server may forget it.
    pub(crate) fn acknowledge(&mut self, ended: &EndedRpc) {
        if self.config.completion == Completion::AtLeastOnce {
            return;
        }
        let entry = AckEntry { id: ended.id, server_port: ended.ports.1 };
        let kept = self.config.policy().completion.acks;
        let Some(peer) = self.peer_mut(ended.peer) else { return };
        let acks = &mut peer.cold.acks;
        if acks.0.len() < kept {
            acks.0.push_back(entry);
            peer.has_acks = true;
            if acks.0.len() > Acks::CAPACITY && !peer.acks_listed {
                peer.acks_listed = true;
                self.late_acks.push(ended.peer);
                self.acks_due = self.acks_due.min(self.now + ACK_DELAY);
            }
        } else {
            let acks = acks.take();
            self.queue_ack(ended.peer, ended.ports, ended.id, acks);
        }
    }

    /// Sends what has waited too long for DATA: more acks for one peer than an ACK packet's worth.
    pub(crate) fn expire_acks(&mut self, now: Time) {
        if now < self.acks_due {
            return;
        }
        self.acks_due = Time::MAX;
        while let Some(late) = self.late_acks.pop() {
            let Some(peer) = self.peer_mut(late) else { continue };
            peer.acks_listed = false;
            if peer.cold.acks.0.len() > Acks::CAPACITY {
                self.flush_acks_to(late);
            }
        }
    }

    /// Sends the acks that wait for a peer.
    fn flush_acks_to(&mut self, peer: PeerId) {
        let port = self.last_local_port;
        while let Some(first) = self.peer_mut(peer).and_then(|p| p.pop_ack(false)) {
            let acks = self.peer_mut(peer).map(|p| p.cold.acks.take()).unwrap_or_default();
            self.queue_ack(peer, (port, first.server_port), first.id, acks);
        }
    }

    /// Queues a control packet from `ports.0` to `ports.1`; the RPC need not be known here.
    pub(crate) fn queue_control_to(
        &mut self,
        peer: PeerId,
        ports: (u16, u16),
        id: RpcId,
        body: Body,
    ) {
        self.control.push_back(Control::Packet(Packet {
            peer,
            priority: self.levels.top(),
            local_port: ports.0,
            remote_port: ports.1,
            id,
            body,
        }));
    }

    /// Queues an ACK that names `id` in its header.
    pub(crate) fn queue_ack(&mut self, peer: PeerId, ports: (u16, u16), id: RpcId, acks: Acks) {
        self.counters.acks_sent += 1;
        self.queue_control_to(peer, ports, id.client(), Body::Ack(acks));
    }

    /// Sends every ack that waits for a DATA packet to ride on: before a shutdown.
    pub(crate) fn flush_pending_acks(&mut self) {
        (0..self.peers.len()).for_each(|index| self.flush_acks_to(PeerId(index as u32)));
    }

    /// NEED_ACK at the client: ask for what is missing, say again what is granted where nothing is
    /// (the response is wanted, and waits for shorter ones), or confirm (also for an RPC we do not
    /// know).
    pub(crate) fn on_need_ack(&mut self, now: Time, packet: &Packet, handle: Option<RpcHandle>) {
        self.counters.need_acks_received += 1;
        if !self.may_answer() {
            return;
        }
        match handle {
            Some(handle) => {
                let beat = self.rpcs.get(handle).map(|rpc| rpc.last_resend);
                self.request_missing(now, handle);
                if self.config.policy().completion.repeats_grant {
                    self.repeat_grant(handle);
                }
                // The next RESEND of a counter of ticks comes when it would have come.
                let ticks = self.config.policy().loss.without_drift;
                if let (true, Some(beat), Some(rpc)) = (ticks, beat, self.rpcs.get_mut(handle)) {
                    rpc.last_resend = beat;
                }
            }
            None => {
                let acks =
                    self.peer_mut(packet.peer).map(|p| p.cold.acks.take()).unwrap_or_default();
                let ports = (packet.local_port, packet.remote_port);
                self.queue_ack(packet.peer, ports, packet.id, acks);
                // It would ask for each of them.
                self.flush_acks_to(packet.peer);
            }
        }
    }

    /// Says again what a message was granted, when all of that is here.
    fn repeat_grant(&mut self, handle: RpcHandle) {
        let inc =
            self.rpcs.get(handle).and_then(|rpc| rpc.inc.as_ref()).filter(|inc| inc.scheduled);
        if inc.is_some_and(|inc| inc.bytes.missing_before(inc.granted).next().is_none()) {
            self.queue_grant(handle);
        }
    }

    /// ACK at the server.
    pub(crate) fn on_ack(&mut self, peer: PeerId, id: RpcId, acks: &Acks) {
        self.on_acked(peer, id.client());
        for entry in acks.iter() {
            self.on_acked(peer, entry.id.client());
        }
    }

    /// One RPC was acknowledged: forget it in whatever state it is (a running one is thereby
    /// cancelled).
    pub(crate) fn on_acked(&mut self, peer: PeerId, id: RpcId) {
        let Some(handle) = self.find_server(peer, id) else { return };
        self.counters.acks_received += 1;
        let answered = self.rpcs.get(handle).is_some_and(|r| r.out.exists());
        if !answered {
            self.counters.server_cancels += 1;
        }
        self.end_server_rpc(handle);
    }

    /// Server: the RPC is over; the application hears of it when it was asked to serve it and had
    /// not answered, or its answer was not confirmed.
    pub(crate) fn end_server_rpc(&mut self, handle: RpcHandle) {
        let Some(ended) = self.forget(handle) else { return };
        if ended.state == RpcState::ServerInService {
            self.events.push_back(Event::Cancelled { rpc: handle });
        }
    }

    /// All bytes of an outgoing message were sent (again).
    pub(crate) fn message_sent(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        match (rpc.state, self.config.completion) {
            (RpcState::OneWayOutgoing, _)
            | (RpcState::ServerOutgoing | RpcState::ServerSent, Completion::AtLeastOnce) => {
                self.forget(handle);
            }
            (RpcState::ServerOutgoing, Completion::Acked { need_ack_after, .. }) => {
                rpc.state = RpcState::ServerSent;
                rpc.last_heard = now;
                rpc.last_resend = now;
                rpc.resend_count = 0;
                self.arm(now, now + need_ack_after, handle);
            }
            (RpcState::ClientOutgoing, _) => rpc.request_sent = now,
            _ => {}
        }
    }

    /// Timer of a server RPC whose response was sent: NEED_ACK, or give up. Yields the next check.
    pub(crate) fn check_sent(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let Completion::Acked { need_ack_after, need_ack_interval, give_up, .. } =
            self.config.completion
        else {
            return None;
        };
        let rpc = self.rpcs.get_mut(handle)?;
        if now.since(rpc.last_heard) >= give_up {
            self.counters.ack_give_ups += 1;
            self.end_server_rpc(handle);
            return None;
        }
        let policy = self.config.policy();
        let steady = policy.completion.steady;
        let interval = |attempts: u16| match attempts {
            0 => need_ack_after,
            _ => Duration(need_ack_interval.0 << attempts.saturating_sub(steady).min(MAX_BACKOFF)),
        };
        let due = rpc.last_resend + interval(rpc.resend_count);
        if now < due {
            return Some(due);
        }
        let next = if policy.loss.without_drift { without_drift(due, now) } else { now };
        if !self.queue_need_ack(handle) {
            return Some(now + need_ack_interval.max(REFUSED));
        }
        let rpc = self.rpcs.get_mut(handle)?;
        rpc.last_resend = next;
        rpc.resend_count = rpc.resend_count.saturating_add(1);
        Some(next + interval(rpc.resend_count))
    }

    /// NEED_ACK for an RPC; false when the last one has not left, or too much was asked already.
    pub(crate) fn queue_need_ack(&mut self, handle: RpcHandle) -> bool {
        let (may, tick) = (self.may_send_resend(), self.now.0 / TICK.0);
        let Some(rpc) = self.rpcs.get_mut(handle).filter(|rpc| may && !rpc.resends_queued) else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        let (since, count) = &mut peer.cold.need_acks;
        if *since != tick {
            (*since, *count) = (tick, 0);
        }
        if *count == MAX_NEED_ACKS {
            return false;
        }
        *count += 1;
        rpc.resends_queued = true;
        self.resends_queued += 1;
        self.control.push_back(Control::NeedAck(handle));
        true
    }

    /// The NEED_ACK that was to leave, unless the RPC is over.
    pub(crate) fn need_ack_packet(&mut self, handle: RpcHandle) -> Option<Packet> {
        let packet = self.control_packet(handle, Body::NeedAck)?;
        self.rpcs.get_mut(handle)?.resends_queued = false;
        self.counters.need_acks_sent += 1;
        Some(packet)
    }

    /// Removes an RPC and releases its messages; the caller says what the application hears.
    pub(crate) fn forget(&mut self, handle: RpcHandle) -> Option<EndedRpc> {
        let rpc = self.rpcs.get_mut(handle)?;
        let ended = EndedRpc {
            state: rpc.state,
            id: rpc.id,
            peer: rpc.peer,
            ports: (rpc.local_port, rpc.remote_port),
            cookie: rpc.cookie,
        };
        self.sender.forget(&mut rpc.out);
        self.incoming.memory_queue.remove(handle);
        self.incoming.pending_unscheduled -= u64::from(rpc.pending_unscheduled);
        let (sends, inc) = (rpc.out.exists(), rpc.inc.take());
        let unvalidated = rpc.unvalidated;
        if unvalidated {
            self.release_unvalidated(inc.as_ref().map_or(0, |inc| inc.reserved));
        }
        self.rpcs.remove(handle.index);
        self.sender.sweep(&self.rpcs);
        if ended.state.is_client() {
            self.client_rpcs.remove(ended.id);
        } else {
            self.server_rpcs.remove(&ServerKey(ended.peer, ended.id));
        }
        if let Some(peer) = self.peer_mut(ended.peer) {
            peer.rpcs -= 1;
            peer.cold.served -= u32::from(!ended.state.is_client());
        }
        if !ended.state.is_client() && !unvalidated {
            self.charge_request(ended.peer, false);
        }
        if sends {
            self.events.push_back(Event::Release { message: outgoing_message(handle) });
        }
        if let Some(inc) = inc {
            self.events.push_back(Event::Release { message: incoming_message(handle) });
            self.end_incoming(handle, (ended.peer, unvalidated), inc);
            self.grant(None);
        }
        Some(ended)
    }

    /// How a cancel travels, and a failure: an ACK naming the RPC, which servers of the kernel
    /// module free in any state (Linux §2.5; its own clients send none, and leave the RPC to its
    /// timers). The paper's profile has no acks.
    pub(crate) fn tell_cancelled(&mut self, ended: &EndedRpc) {
        if self.config.completion != Completion::AtLeastOnce {
            self.queue_ack(ended.peer, ended.ports, ended.id, Acks::default());
        }
    }
}
