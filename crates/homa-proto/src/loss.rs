//! Lost packets (Homa §3.7): receivers notice silence and ask again; senders that are not ready say
//! BUSY.
//!
//! All timers of an RPC are one lazily re-armed entry in the wheel: [`Endpoint::check`] does what
//! is due and yields the time of the next check. Silence is time without DATA, GRANT or BUSY for
//! that RPC, and does not count while nothing is owed to us (everything granted arrived, or we have
//! bytes to send).

use crate::admission::Known;
use crate::config::{Alive, Completion, UnknownRpcReply};
use crate::endpoint::{Control, Endpoint};
use crate::event::RpcError;
use crate::event::RpcHandle;
use crate::link::Links;
use crate::packet::{Body, Packet, PeerId, ResendLength};
use crate::rpc::{Rpc, State};
use crate::sender::PacketSizes;
use crate::timer::TICK;
use crate::units::{Duration, Time};

/// RESENDs without DATA after which a message makes room for others.
pub(crate) const PARK_ROUNDS: u16 = 2;
/// Most doublings of the interval between RESENDs that are answered by BUSY.
const MAX_BACKOFF: u16 = 5;
/// Longest patience that slowness can teach, and longest after doublings.
pub(crate) const MAX_LEARNED: Duration = Duration::millis(100);
const MAX_PATIENCE: Duration = Duration::millis(250);
/// The same for a request of which nothing more arrives: whoever sent its first packet need not be
/// where it said, and gets few packets for one. A client that lives asks for its response.
const MAX_PATIENCE_REQUEST: Duration = Duration::millis(2_500);
const MAX_BACKOFF_REQUEST: u16 = 9;
/// A response that hears nothing of its client for so long belongs to a client that is gone.
const RESPONSE_SILENCE: Duration = Duration::secs(10);
/// Nothing is due for an RPC in service; look again now and then.
const IDLE_CHECK: Duration = Duration::millis(200);

/// When something counts as done that was due and is done now: counters of ticks do not drift by
/// what each wake-up is late.
pub(crate) fn on_beat(due: Time, now: Time) -> Time {
    if now.since(due) <= TICK { due } else { now }
}

impl Endpoint {
    /// Silence that calls for a RESEND. Where patience is learned, it is for a response as long as
    /// responses of that peer lately took, and for the rest of a message as such gaps lately were
    /// (low levels wait for high ones): a server, or a network, that is slow with everything lost
    /// nothing, and asking again for all of it would be the load that keeps it slow.
    fn patience(&self, rpc: &Rpc) -> Duration {
        let loss = &self.config.loss;
        let base = if self.config.policy().loss.learns_patience {
            let usual = match rpc.state {
                State::ClientOutgoing => self.peer(rpc.peer).map(|p| p.more.response_time.usual()),
                _ => self.peer(rpc.peer).map(|p| p.more.data_gap.usual()),
            };
            let learned = usual.unwrap_or(Duration::ZERO).min(MAX_LEARNED);
            let (doublings, most) = match rpc.state {
                State::ServerIncoming => (MAX_BACKOFF_REQUEST, MAX_PATIENCE_REQUEST),
                _ => (MAX_BACKOFF, MAX_PATIENCE),
            };
            let patience = loss.resend_after.max(learned).0 << rpc.rounds.min(doublings);
            Duration(patience).min(most.max(loss.resend_after))
        } else {
            loss.resend_after
        };
        if loss.scale_with_bytes {
            // One behind the other, whichever endpoint of this host it is for.
            base + self.time_for(rpc.peer, self.owed() + self.links.neighbours.owed)
        } else {
            base
        }
    }

    /// How long bytes need that come to us as from this peer.
    pub(crate) fn time_for(&self, peer: PeerId, bytes: u64) -> Duration {
        let link = self.link_of(peer);
        match link.info.rate {
            Some(rate) => rate.time_for(bytes),
            None => link.downlink.time_for(bytes).min(MAX_LEARNED),
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
            State::ClientOutgoing | State::ClientIncoming => self.check_client(now, handle),
            State::ServerIncoming | State::OneWayIncoming => self.check_receiving(now, handle),
            State::ServerInService => Some(now + IDLE_CHECK),
            State::ServerOutgoing => self.check_responding(now, handle),
            State::ServerSent => self.check_sent(now, handle),
            State::OneWayOutgoing => None,
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
        let owed_when_sent = self.config.policy().loss.owed_when_sent;
        let rpc = self.rpcs.get_mut(handle)?;
        let ours = match owed_when_sent {
            true => rpc.out.may_send_more(),
            false => rpc.out.has_bytes_to_send(),
        };
        if rpc.state == State::ClientOutgoing && (ours || self.incoming.waiting.contains(handle)) {
            rpc.heard = now;
        }
        if self.config.loss.timeout.is_some_and(|limit| now.since(rpc.heard) >= limit) {
            self.fail(handle, RpcError::PeerUnreachable);
            return None;
        }
        Some(self.ask_again(now, handle)?.min(deadline))
    }

    fn check_receiving(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get(handle)?;
        if rpc.unproven {
            return self.check_stranger(now, handle);
        }
        if now.since(rpc.heard) >= self.config.loss.server_silence {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        if self.incoming.waiting.contains(handle) {
            return Some(now + self.config.loss.resend_after);
        }
        self.ask_again(now, handle)
    }

    fn check_responding(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        if rpc.out.has_bytes_to_send() {
            rpc.heard = now;
        } else if now.since(rpc.heard) >= RESPONSE_SILENCE {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        // A response that nobody grants: its client may have given up, and its ACK was lost, or
        // have crashed and be back. Whoever does not know the RPC confirms it.
        let wait = Duration(IDLE_CHECK.0 << rpc.rounds.min(MAX_BACKOFF));
        let silent = now.since(rpc.heard.max(rpc.asked)) >= wait;
        if silent && self.config.policy().completion.asks_while_sending && self.ask_for_ack(handle)
        {
            let rpc = self.rpcs.get_mut(handle)?;
            rpc.asked = now;
            rpc.rounds = rpc.rounds.saturating_add(1);
        }
        Some(now + IDLE_CHECK)
    }

    /// Sends RESENDs when the silence has lasted; yields the next check.
    fn ask_again(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let stalls = self.park_if_stalled(now, handle);
        let rpc = self.rpcs.get(handle)?;
        let due = rpc.heard.max(rpc.asked) + self.patience(rpc);
        if now < due {
            return Some(due.min(stalls));
        }
        if !self.may_ask() {
            return Some(now + self.config.loss.resend_after);
        }
        // While our link is full, what is missing may be waiting behind what arrives; asking for it
        // again would make the queue longer.
        let waited = now.since(rpc.heard.max(rpc.asked));
        let policy = &self.config.policy().loss;
        if policy.spares_full_link
            && self.link_of(rpc.peer).downlink.is_full(now)
            && waited < MAX_PATIENCE
        {
            return Some(now + self.config.loss.resend_after);
        }
        let held_back = self.config.loss.one_resend_per_peer;
        let until = self.peer(rpc.peer).map_or(Time::ZERO, |p| p.resend_until);
        if held_back && now < until {
            self.queue_for_turn(handle);
            // In case that the peer stays silent: the longer it is, the later.
            return Some(until.max(now + Duration(waited.0 / 2).min(MAX_PATIENCE)));
        }
        self.request_missing(now, handle);
        let rpc = self.rpcs.get_mut(handle)?;
        if policy.on_beat && rpc.asked == now {
            rpc.asked = on_beat(due, now);
        }
        let rpc = self.rpcs.get(handle)?;
        Some(rpc.heard.max(rpc.asked) + self.patience(rpc))
    }

    /// Lets an RPC ask when the peer is heard of.
    fn queue_for_turn(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if core::mem::replace(&mut rpc.queued, true) {
            return;
        }
        let peer = rpc.peer;
        let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        if peer.more.turns.len() > 2 * peer.rpcs as usize {
            peer.more.turns.retain(|&handle| self.rpcs.get(handle).is_some());
        }
        peer.more.turns.push_back(handle);
    }

    /// The peer was heard of after a RESEND: the next of the RPCs that waited for that, and have
    /// something to ask for, asks.
    pub(crate) fn pass_turn(&mut self, now: Time, peer: PeerId) {
        while let Some(handle) = self.peer_mut(peer).and_then(|peer| peer.more.turns.pop_front()) {
            let Some(rpc) = self.rpcs.get_mut(handle) else { continue };
            rpc.queued = false;
            let rpc = self.rpcs.get(handle).filter(|rpc| rpc.state.asks());
            if rpc.is_some_and(|rpc| now >= rpc.heard.max(rpc.asked) + self.patience(rpc)) {
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
        let ranges = if rpc.asking { 0 } else { policy.ranges };
        let mut asked = rpc.asking;
        let mut ask = |rpc: &mut Rpc, offset, length| {
            asked = true;
            if !core::mem::replace(&mut rpc.asking, true) {
                self.asking += 1;
                self.control.push_back(Control::Resends(handle));
            }
            let body = Body::Resend { offset, length, priority };
            self.control.push_back(Control::Packet(rpc.control(priority, body)));
            self.counters.resends_sent += 1;
        };
        if let Some(mut inc) = rpc.inc.take() {
            for (start, end) in inc.bytes.missing_before(inc.granted).take(ranges) {
                ask(rpc, start, ResendLength::Bytes(end - start));
            }
            inc.probe = None;
            rpc.inc = Some(inc);
        } else if matches!(rpc.state, State::ClientOutgoing | State::ServerIncoming) && ranges > 0 {
            ask(rpc, 0, ResendLength::All);
        }
        if !asked {
            self.nothing_owed(now, handle);
            return;
        }
        rpc.asked = now;
        rpc.rounds = rpc.rounds.saturating_add(1);
        let (peer, until) = (rpc.peer, now + self.config.loss.resend_after);
        let park = rpc.rounds >= PARK_ROUNDS && policy.parks;
        if let Some(peer) = self.peer_mut(peer) {
            peer.resend_until = until;
        }
        if park {
            self.park(handle);
        }
    }

    /// Everything granted is here: silence about this message means nothing. A client that lives
    /// goes on asking for its responses, so for the requests of a peer its last packet of any kind
    /// counts: those of a dead client are forgotten together, not one after the other as each gets
    /// its grant.
    fn nothing_owed(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let any_packet = self.config.policy().loss.alive == Alive::AnyPacket;
        let alive = self.peer(rpc.peer).map_or(Time::ZERO, |p| p.heard);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if rpc.state == State::ServerIncoming && !any_packet {
            rpc.heard = rpc.heard.max(alive);
            rpc.asked = now;
        } else {
            rpc.heard = now;
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
        if rpc.unproven {
            return self.on_resend_of_stranger(now, handle);
        }
        if !rpc.out.exists() {
            return self.on_resend_of_nothing(now, handle);
        }
        let anew = self.is_forgotten(rpc, range);
        if anew {
            self.start_over(handle);
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
        if matches!(rpc.state, State::ServerOutgoing | State::ServerSent) {
            rpc.heard = now;
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
    fn is_forgotten(&self, rpc: &Rpc, (offset, length): (u32, ResendLength)) -> bool {
        let all = match length {
            ResendLength::All => true,
            ResendLength::Bytes(n) => n >= rpc.out.unscheduled,
        };
        let granted = rpc.state == State::ClientOutgoing && rpc.out.length > rpc.out.unscheduled;
        offset == 0 && all && granted && self.config.completion == Completion::AtLeastOnce
    }

    /// A client asks for a response that does not exist yet. It lives, and what is missing of its
    /// request need not wait any longer to be asked for.
    fn on_resend_of_nothing(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if self.incoming.waiting.contains(handle) {
            rpc.heard = now;
        }
        let silence = now.since(rpc.heard.max(rpc.asked));
        let late = rpc.is_owed() && silence >= self.config.loss.resend_after;
        if self.config.policy().loss.busy_is_asked && late && self.may_ask() {
            self.request_missing(now, handle);
        }
        self.busy(handle);
    }

    /// RPC_UNKNOWN at a client that sends again: everything sent so far goes again, at the
    /// level of unscheduled bytes (Linux §2.5).
    pub(crate) fn send_again(&mut self, handle: RpcHandle) {
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
                self.disown_who_left();
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
        if self.knows(packet) != Known::Executed {
            if !self.asks_for_proof() {
                self.remember_executed(now, packet.peer, packet.id);
            }
            if let Some(peer) = self.peer_mut(packet.peer) {
                peer.more.executed.refuse(packet.id);
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
        let executed = &self.peer(packet.peer)?.more.executed;
        let refused = nobody && executed.is_refused(packet.id);
        if self.knows(packet) == Known::Executed && !refused {
            return Some(Duration::ZERO);
        }
        if self.is_of_named_client(packet) {
            // Whoever else was forgotten, this one was not.
            return Some(Duration::MAX);
        }
        Some(now.since(match self.asks_for_proof() {
            true => self.remembers_since(),
            false => executed.since,
        }))
    }

    /// BUSY: the sender is alive and will get to it.
    pub(crate) fn on_busy(&mut self, now: Time, handle: RpcHandle) {
        self.counters.busys_received += 1;
        if let Some(rpc) = self.rpcs.get_mut(handle) {
            rpc.heard = now;
        }
    }
}
