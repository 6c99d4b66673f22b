//! Lost packets (Homa §3.7): receivers notice silence and ask again; senders that are not ready say
//! BUSY.
//!
//! All timers of an RPC are one lazily re-armed entry in the wheel: [`Endpoint::check`] does what
//! is due and yields the time of the next check. Silence is time without DATA, GRANT or BUSY for
//! that RPC, and does not count while nothing is owed to us (everything granted arrived, or we have
//! bytes to send).

pub(crate) mod downlink;
mod stall;

pub(crate) use stall::HOST_STALL;

use crate::address_validation::Execution;
use crate::config::{Completion, Liveness, UnknownRpcReply};
use crate::endpoint::{Control, Endpoint};
use crate::event::{RpcError, RpcHandle};
use crate::link::Links;
use crate::packet::{Body, Packet, PeerId, ResendLength};
use crate::rpc::{Rpc, RpcState};
use crate::send::PacketSizes;
use crate::units::{Duration, Time};
use crate::util::timer::TICK;

/// RESENDs without DATA after which a message makes room for others.
pub(crate) const SUSPEND_AFTER: u16 = 2;
/// Most doublings of the interval between RESENDs that are answered by BUSY.
const MAX_BACKOFF: u16 = 5;
/// Longest patience that slowness can teach, and longest after doublings.
pub(crate) const MAX_LEARNED_TIMEOUT: Duration = Duration::millis(100);
const MAX_RESEND_TIMEOUT: Duration = Duration::millis(250);
/// The same for a request of which nothing more arrives: whoever sent its first packet need not be
/// where it said, and gets few packets for one. A client that lives asks for its response.
const MAX_REQUEST_RESEND_TIMEOUT: Duration = Duration::millis(2_500);
const MAX_BACKOFF_REQUEST: u16 = 9;
/// A response that hears nothing of its client for so long belongs to a client that is gone.
const RESPONSE_SILENCE: Duration = Duration::secs(10);
/// Nothing is due for an RPC in service; look again now and then.
const IDLE_CHECK: Duration = Duration::millis(200);

/// When something counts as done that was due and is done now: counters of ticks do not drift by
/// what each wake-up is late.
pub(crate) fn without_drift(due: Time, now: Time) -> Time {
    if now.since(due) <= TICK { due } else { now }
}

impl Endpoint {
    /// Silence that calls for a RESEND. Where patience is learned, it is for a response as long as
    /// responses of that peer lately took, and for the rest of a message as such gaps lately were
    /// (low levels wait for high ones): a server, or a network, that is slow with everything lost
    /// nothing, and asking again for all of it would be the load that keeps it slow.
    fn resend_timeout(&self, rpc: &Rpc) -> Duration {
        let loss = &self.config.loss;
        let base = if self.config.policy().loss.adaptive_timeout {
            let usual = match rpc.state {
                RpcState::ClientOutgoing => {
                    self.peer(rpc.peer).map(|p| p.cold.response_time.usual())
                }
                _ => self.peer(rpc.peer).map(|p| p.cold.data_gap.usual()),
            };
            let learned = usual.unwrap_or(Duration::ZERO).min(MAX_LEARNED_TIMEOUT);
            let (doublings, most) = match rpc.state {
                RpcState::ServerIncoming => (MAX_BACKOFF_REQUEST, MAX_REQUEST_RESEND_TIMEOUT),
                _ => (MAX_BACKOFF, MAX_RESEND_TIMEOUT),
            };
            let resend_timeout =
                loss.resend_after.max(learned).0 << rpc.resend_count.min(doublings);
            Duration(resend_timeout).min(most.max(loss.resend_after))
        } else {
            loss.resend_after
        };
        if loss.scale_with_bytes {
            // One behind the other, whichever endpoint of this host it is for.
            base + self
                .time_for(rpc.peer, self.outstanding() + self.links.sibling_shards.outstanding)
        } else {
            base
        }
    }

    /// How long bytes need that come to us as from this peer.
    pub(crate) fn time_for(&self, peer: PeerId, bytes: u64) -> Duration {
        let link = self.link_of(peer);
        match link.info.rate {
            Some(rate) => rate.time_for(bytes),
            None => link.downlink.time_for(bytes).min(MAX_LEARNED_TIMEOUT),
        }
    }

    /// Has an RPC looked at no later than `at`; never where loss has no timers.
    pub(crate) fn arm(&mut self, now: Time, at: Time, handle: RpcHandle) {
        if self.config.loss.resend_after == Duration::MAX {
            return;
        }
        if let Some(armed) = self.rpcs.armed(handle) {
            self.timers.arm(now, at, handle.index, armed);
        }
    }

    /// Acts on everything due for one RPC.
    pub(crate) fn check(&mut self, now: Time, handle: RpcHandle) {
        let Some(state) = self.rpcs.get(handle).map(|r| r.state) else { return };
        let next = match state {
            RpcState::ClientOutgoing | RpcState::ClientIncoming => self.check_client(now, handle),
            RpcState::ServerIncoming | RpcState::OneWayIncoming => {
                self.check_receiving(now, handle)
            }
            RpcState::ServerInService => Some(now + IDLE_CHECK),
            RpcState::ServerOutgoing => self.check_responding(now, handle),
            RpcState::ServerSent => self.check_sent(now, handle),
            RpcState::OneWayOutgoing => None,
        };
        if let Some(next) = next {
            self.arm(now, next, handle);
        }
    }

    fn check_client(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        let deadline = rpc.deadline;
        if now >= deadline {
            self.fail(handle, RpcError::DeadlineExceeded);
            return None;
        }
        if self.fail_too_long(handle) {
            return None;
        }
        let silence_starts_when_sent = self.config.policy().loss.silence_starts_when_sent;
        let rpc = self.rpcs.get_mut(handle)?;
        let ours = match silence_starts_when_sent {
            true => rpc.out.may_send_more(),
            false => rpc.out.has_bytes_to_send(),
        };
        if rpc.state == RpcState::ClientOutgoing
            && (ours || self.incoming.memory_queue.contains(handle))
        {
            rpc.last_heard = now;
        }
        if self.config.loss.timeout.is_some_and(|limit| now.since(rpc.last_heard) >= limit) {
            self.fail(handle, RpcError::PeerUnreachable);
            return None;
        }
        Some(self.check_silence(now, handle)?.min(deadline))
    }

    fn check_receiving(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get(handle)?;
        if rpc.unvalidated {
            return self.check_unvalidated(now, handle);
        }
        if now.since(rpc.last_heard) >= self.config.loss.server_silence {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        if self.incoming.memory_queue.contains(handle) {
            return Some(now + self.config.loss.resend_after);
        }
        self.check_silence(now, handle)
    }

    fn check_responding(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        if rpc.out.has_bytes_to_send() {
            rpc.last_heard = now;
        } else if now.since(rpc.last_heard) >= RESPONSE_SILENCE {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        // A response that nobody grants: its client may have given up, and its ACK was lost, or
        // have crashed and be back. Whoever does not know the RPC confirms it.
        let wait = Duration(IDLE_CHECK.0 << rpc.resend_count.min(MAX_BACKOFF));
        let silent = now.since(rpc.last_heard.max(rpc.last_resend)) >= wait;
        if silent
            && self.config.policy().completion.asks_while_sending
            && self.queue_need_ack(handle)
        {
            let rpc = self.rpcs.get_mut(handle)?;
            rpc.last_resend = now;
            rpc.resend_count = rpc.resend_count.saturating_add(1);
        }
        Some(now + IDLE_CHECK)
    }

    /// Sends RESENDs when the silence has lasted; yields the next check.
    fn check_silence(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let stalls = self.suspend_if_stalled(now, handle);
        let rpc = self.rpcs.get(handle)?;
        let due = rpc.last_heard.max(rpc.last_resend) + self.resend_timeout(rpc);
        if now < due {
            return Some(due.min(stalls));
        }
        if !self.may_send_resend() {
            return Some(now + self.config.loss.resend_after);
        }
        // While our link is full, what is missing may be waiting behind what arrives; asking for it
        // again would make the queue longer.
        let waited = now.since(rpc.last_heard.max(rpc.last_resend));
        let policy = &self.config.policy().loss;
        if policy.defers_on_full_link
            && self.link_of(rpc.peer).downlink.is_full(now)
            && waited < MAX_RESEND_TIMEOUT
        {
            return Some(now + self.config.loss.resend_after);
        }
        let held_back = self.config.loss.one_resend_per_peer;
        let until = self.peer(rpc.peer).map_or(Time::ZERO, |p| p.resend_until);
        if held_back && now < until {
            self.queue_resend(handle);
            // In case that the peer stays silent: the longer it is, the later.
            return Some(until.max(now + Duration(waited.0 / 2).min(MAX_RESEND_TIMEOUT)));
        }
        self.request_missing(now, handle);
        let rpc = self.rpcs.get_mut(handle)?;
        if policy.without_drift && rpc.last_resend == now {
            rpc.last_resend = without_drift(due, now);
        }
        let rpc = self.rpcs.get(handle)?;
        Some(rpc.last_heard.max(rpc.last_resend) + self.resend_timeout(rpc))
    }

    /// Lets an RPC ask when the peer is heard of.
    fn queue_resend(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if core::mem::replace(&mut rpc.in_resend_queue, true) {
            return;
        }
        let peer = rpc.peer;
        let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        if peer.cold.resend_queue.len() > 2 * peer.rpcs as usize {
            peer.cold.resend_queue.retain(|&handle| self.rpcs.get(handle).is_some());
        }
        peer.cold.resend_queue.push_back(handle);
    }

    /// The peer was heard of after a RESEND: the next of the RPCs that waited for that, and have
    /// something to ask for, asks.
    pub(crate) fn next_resend(&mut self, now: Time, peer: PeerId) {
        while let Some(handle) =
            self.peer_mut(peer).and_then(|peer| peer.cold.resend_queue.pop_front())
        {
            let Some(rpc) = self.rpcs.get_mut(handle) else { continue };
            rpc.in_resend_queue = false;
            let rpc = self.rpcs.get(handle).filter(|rpc| rpc.state.sends_resends());
            if rpc.is_some_and(|rpc| {
                now >= rpc.last_heard.max(rpc.last_resend) + self.resend_timeout(rpc)
            }) {
                self.check(now, handle);
                if self.peer(peer).is_none_or(|peer| peer.resend_until != Time::ZERO) {
                    return;
                }
            }
        }
    }

    /// Sends a RESEND for each missing range of what was granted.
    pub(crate) fn request_missing(&mut self, now: Time, handle: RpcHandle) {
        self.make_room(handle);
        let priority = self.levels.top();
        let policy = &self.config.policy().loss;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        // One round at a time waits for the link.
        let ranges = if rpc.resends_queued { 0 } else { policy.ranges };
        let mut sent_any = rpc.resends_queued;
        let mut send = |rpc: &mut Rpc, offset, length| {
            sent_any = true;
            if !core::mem::replace(&mut rpc.resends_queued, true) {
                self.resends_queued += 1;
                self.control.push_back(Control::Resends(handle));
            }
            let body = Body::Resend { offset, length, priority };
            self.control.push_back(Control::Packet(rpc.control(priority, body)));
            self.counters.resends_sent += 1;
        };
        if let Some(mut inc) = rpc.inc.take() {
            for (start, end) in inc.bytes.missing_before(inc.granted).take(ranges) {
                send(rpc, start, ResendLength::Bytes(end - start));
            }
            inc.probe = None;
            rpc.inc = Some(inc);
        } else if matches!(rpc.state, RpcState::ClientOutgoing | RpcState::ServerIncoming)
            && ranges > 0
        {
            send(rpc, 0, ResendLength::All);
        }
        if !sent_any {
            self.nothing_outstanding(now, handle);
            return;
        }
        rpc.last_resend = now;
        rpc.resend_count = rpc.resend_count.saturating_add(1);
        let (peer, until) = (rpc.peer, now + self.config.loss.resend_after);
        let suspend = rpc.resend_count >= SUSPEND_AFTER && policy.suspends;
        if let Some(peer) = self.peer_mut(peer) {
            peer.resend_until = until;
        }
        if suspend {
            self.suspend(handle);
        }
    }

    /// Everything granted is here: silence about this message means nothing. A client that lives
    /// goes on asking for its responses, so for the requests of a peer its last packet of any kind
    /// counts: those of a dead client are forgotten together, not one after the other as each gets
    /// its grant.
    fn nothing_outstanding(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let any_packet = self.config.policy().loss.liveness == Liveness::AnyPacket;
        let peer_heard = self.peer(rpc.peer).map_or(Time::ZERO, |p| p.last_heard);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if rpc.state == RpcState::ServerIncoming && !any_packet {
            rpc.last_heard = rpc.last_heard.max(peer_heard);
            rpc.last_resend = now;
        } else {
            rpc.last_heard = now;
        }
    }

    /// RESEND at the sender of the bytes: retransmit, or say BUSY when nothing can go at once (Homa
    /// Figure 3; the kernel module says so only where there is nothing to retransmit).
    pub(crate) fn on_resend(
        &mut self,
        now: Time,
        handle: RpcHandle,
        range: (u32, ResendLength),
        priority: u8,
    ) {
        self.counters.resends_received += 1;
        let Some(rpc) = self.rpcs.get(handle) else { return };
        if rpc.unvalidated {
            return self.on_resend_of_unvalidated(now, handle);
        }
        if !rpc.out.exists() {
            return self.on_resend_before_response(now, handle);
        }
        let anew = self.server_forgot(rpc, range);
        if anew {
            self.restart_request(handle);
        }
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(peer) = self.peers.get(rpc.peer.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        let sizes = PacketSizes::again(&self.config, peer);
        let policy = &self.config.policy().loss;
        let out = &mut rpc.out;
        let (start, end) = match range {
            (offset, ResendLength::All) => (offset, out.sent),
            (offset, ResendLength::Bytes(n)) => (offset, offset.saturating_add(n).min(out.length)),
        };
        let again = out.resend(sizes, (start, end), priority.min(self.levels.top())) || anew;
        if end > out.granted {
            out.granted = end;
        }
        // Whoever asks wants it still, also when all of it was sent.
        if matches!(rpc.state, RpcState::ServerOutgoing | RpcState::ServerSent) {
            rpc.last_heard = now;
        }
        let link = Links::only(out.link);
        self.sender.wake(handle, out);
        // What goes again may wait for shorter messages, and silence would look like death.
        let waits = policy.busy_while_waiting
            && self.sender.shortest(&self.rpcs, link).is_some_and(|first| first != handle);
        if !again || waits {
            self.busy(handle);
        }
    }

    /// Where servers forget at once (Homa §3.8), one that asks for all that comes without grants
    /// has nothing of the request, and will grant the rest again. What arrived of a response is
    /// kept: the server will execute the request again, and answer alike.
    fn server_forgot(&self, rpc: &Rpc, (offset, length): (u32, ResendLength)) -> bool {
        let all = match length {
            ResendLength::All => true,
            ResendLength::Bytes(n) => n >= rpc.out.unscheduled,
        };
        let granted = rpc.state == RpcState::ClientOutgoing && rpc.out.length > rpc.out.unscheduled;
        offset == 0 && all && granted && self.config.completion == Completion::AtLeastOnce
    }

    /// A client asks for a response that does not exist yet. It lives, and what is missing of its
    /// request need not wait any longer to be asked for.
    fn on_resend_before_response(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if self.incoming.memory_queue.contains(handle) {
            rpc.last_heard = now;
        }
        let silence = now.since(rpc.last_heard.max(rpc.last_resend));
        let late = rpc.awaits_bytes() && silence >= self.config.loss.resend_after;
        if self.config.policy().loss.requests_missing_on_resend && late && self.may_send_resend() {
            self.request_missing(now, handle);
        }
        self.busy(handle);
    }

    /// RPC_UNKNOWN at a client that sends again: everything sent so far goes again, at the
    /// level of unscheduled bytes (Linux §2.5).
    pub(crate) fn retransmit_all(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(peer) = self.peers.get(rpc.peer.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        let cutoffs = self.levels.cutoffs_of(peer);
        let level = self.levels.unscheduled_priority(cutoffs, rpc.out.length);
        let sent = rpc.out.sent;
        rpc.out.resend(PacketSizes::again(&self.config, peer), (0, sent), level);
        self.sender.wake(handle, &mut rpc.out);
    }

    fn busy(&mut self, handle: RpcHandle) {
        if !self.may_answer() {
            return;
        }
        self.counters.busys_sent += 1;
        self.queue_control(handle, Body::Busy);
    }

    /// RESEND for an RPC we do not know (Homa §3.7; Linux §2.5).
    pub(crate) fn on_resend_unknown(&mut self, now: Time, packet: &Packet) {
        self.counters.resends_received += 1;
        if !self.may_answer() {
            return;
        }
        let for_server = !packet.id.from_server();
        let (id, body) = match self.config.loss.unknown {
            UnknownRpcReply::ResendRequest if for_server => {
                self.counters.resends_sent += 1;
                let length = ResendLength::Bytes(self.config.rtt_bytes);
                let priority = self.levels.top();
                (packet.id.server(), Body::Resend { offset: 0, length, priority })
            }
            UnknownRpcReply::ResendRequest => return,
            UnknownRpcReply::RpcUnknown => {
                let nobody = !self.listening.contains(&packet.local_port);
                // A client that moved has to say who it is before it can be told that nothing ran.
                self.forget_departed_clients();
                if nobody && for_server && self.may_have_moved(packet) {
                    let ports = (packet.local_port, packet.remote_port);
                    return self.challenge(now, packet.peer, ports);
                }
                self.counters.unknowns_sent += 1;
                let remembered = self.memory_reaches(now, packet, nobody);
                let no_server = remembered.is_some() && nobody;
                if no_server {
                    self.refuse(now, packet);
                }
                let id = if for_server { packet.id.server() } else { packet.id.client() };
                (id, Body::RpcUnknown { remembered, no_server })
            }
        };
        self.queue_control_to(packet.peer, (packet.local_port, packet.remote_port), id, body);
    }

    /// An RPC that nobody listens for will not be executed either when it comes after this, and
    /// somebody listens then.
    fn refuse(&mut self, now: Time, packet: &Packet) {
        if self.execution(packet) != Execution::Executed {
            if !self.validates_addresses() {
                self.remember_executed(now, packet.peer, packet.id);
            }
            if let Some(peer) = self.peer_mut(packet.peer) {
                peer.cold.executed.refuse(packet.id);
            }
        }
    }

    /// How far back we can say that this peer's RPC was never executed; `nobody` listens for it.
    /// Where somebody does by now, one that was refused has to go on under another id.
    fn memory_reaches(&self, now: Time, packet: &Packet, nobody: bool) -> Option<Duration> {
        let tells = self.config.policy().completion.tells_memory;
        if !tells || !self.suppresses_duplicates() || packet.id.from_server() {
            return None;
        }
        let executed = &self.peer(packet.peer)?.cold.executed;
        let refused = nobody && executed.is_refused(packet.id);
        if self.execution(packet) == Execution::Executed && !refused {
            return Some(Duration::ZERO);
        }
        if self.is_of_named_client(packet) {
            // Whoever else was forgotten, this one was not.
            return Some(Duration::MAX);
        }
        Some(now.since(match self.validates_addresses() {
            true => self.memory_complete_since(),
            false => executed.since,
        }))
    }

    /// BUSY: the sender is alive and will get to it.
    pub(crate) fn on_busy(&mut self, now: Time, handle: RpcHandle) {
        self.counters.busys_received += 1;
        if let Some(rpc) = self.rpcs.get_mut(handle) {
            rpc.last_heard = now;
        }
    }
}
