//! RESEND at the receiver (Homa §3.7): when it is due, ask for each missing range of the granted
//! bytes.
//!
//! The decision is [`due`](super::due); this file gathers its arguments and acts.

use super::due::{
    ABSENT_RETRY, Block, MAX_LEARNED, Owed, Path, ResendDue, Silence, due_at, outstanding_for,
    resend_due,
};
use super::without_drift;
use crate::config::Liveness;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::{Body, PeerId, ResendLength};
use crate::rpc::{Rpc, RpcState};
use crate::units::{Duration, Time};

/// After this many RESENDs without DATA a message makes room for others.
pub(crate) const SUSPEND_AFTER: u16 = 2;

impl Silence {
    fn of(now: Time, rpc: &Rpc) -> Self {
        let (since, resends) = (rpc.loss.silent_since(), rpc.loss.resends());
        Self { now, since, resends, rest_until: rpc.loss.rests_until() }
    }
}

impl Endpoint {
    /// What the RPC waits for, and how long such a wait usually takes.
    fn owed(&self, rpc: &Rpc) -> Owed {
        let peer = self.peer(rpc.peer);
        let usual = match rpc.state {
            // Before a response begins, the server may compute; later only pauses are usual.
            RpcState::ClientOutgoing => peer.map(|p| p.cold.timing.usual_response_time()),
            _ => peer.map(|p| p.cold.timing.usual_gap()),
        };
        let transfer = match self.config.loss.scale_with_bytes {
            true => self.time_for(rpc.peer, self.outstanding_on_host()),
            false => Duration::ZERO,
        };
        let is_request = rpc.state == RpcState::ServerIncoming;
        let server_absent = rpc.loss.is_server_absent();
        Owed { is_request, usual: usual.unwrap_or_default(), transfer, server_absent }
    }

    fn path(&self, now: Time, peer: PeerId) -> Path {
        Path {
            queue_full: !self.control.may_resend(),
            downlink_full: self.link_of(peer).downlink.is_full(now),
            resend_until: self.peer(peer).map_or(Time::ZERO, |peer| peer.loss.resend_until()),
        }
    }

    /// When silence of an RPC calls for a RESEND.
    pub(super) fn resend_at(&self, rpc: &Rpc) -> Time {
        let (config, policy) = (&self.config.loss, &self.config.policy().loss);
        due_at(&Silence::of(self.now, rpc), &self.owed(rpc), config, policy)
    }

    /// How long `bytes` to this host take on the link to a peer.
    pub(crate) fn time_for(&self, peer: PeerId, bytes: u64) -> Duration {
        let link = self.link_of(peer);
        match link.info.rate {
            Some(rate) => rate.time_for(bytes),
            // A measured rate may be far below the true one, so it delays a RESEND only this much.
            None => link.downlink.time_for(bytes).min(MAX_LEARNED),
        }
    }

    /// Sends RESENDs if they are due; returns when to check next.
    pub(super) fn resend_if_due(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let stalls_at = self.suspend_if_stalled(now, handle);
        let rpc = self.rpcs.get(handle)?;
        let policy = &self.config.policy().loss;
        let silence = Silence::of(now, rpc);
        let (owed, path) = (self.owed(rpc), self.path(now, rpc.peer));
        match resend_due(&silence, &owed, &path, &self.config.loss, policy) {
            ResendDue::At(at) => return Some(at.min(stalls_at)),
            ResendDue::Blocked(Block::PeerAsked, until) => {
                // It is this RPC's turn when the peer is heard from.
                self.queue_resend(handle);
                return Some(until);
            }
            ResendDue::Blocked(_, until) => return Some(until),
            ResendDue::Now => {}
        }
        let due = due_at(&silence, &owed, &self.config.loss, policy);
        self.request_missing(now, handle);
        let rpc = self.rpcs.get_mut(handle)?;
        // Nothing may have been asked, because nothing was missing.
        if policy.without_drift && rpc.loss.last_resend() == now {
            rpc.loss.resent_at(without_drift(due, now));
        }
        self.rpcs.get(handle).map(|rpc| self.resend_at(rpc))
    }

    /// Sends a RESEND for each missing range of the granted bytes.
    pub(crate) fn request_missing(&mut self, now: Time, handle: RpcHandle) {
        self.make_room(handle);
        // Nothing can be missing of the response to a request that was not granted.
        let waits = self.rpcs.get(handle).is_some_and(|rpc| rpc.state.is_client());
        if waits && self.announce(handle) {
            if let Some(rpc) = self.rpcs.get_mut(handle) {
                rpc.loss.asked(now);
            }
            return;
        }
        let priority = self.levels.top();
        let policy = &self.config.policy().loss;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        // One round at a time waits for the link.
        let ranges = if rpc.loss.has_queued_resends() { 0 } else { policy.ranges };
        let mut asked = rpc.loss.has_queued_resends();
        let mut ask = |rpc: &mut Rpc, offset, length| {
            asked = true;
            if rpc.loss.queue_resends() {
                self.control.push_resends(handle);
            }
            let body = Body::Resend { offset, length, priority };
            self.control.push(rpc.control(priority, body));
            self.counters.resends_sent += 1;
        };
        if let Some(mut inc) = rpc.inc.take() {
            // Homa §3.7 asks for the first missing range; other profiles ask for several.
            for (start, end) in inc.missing().take(ranges) {
                ask(rpc, start, ResendLength::Bytes(end - start));
            }
            // A round trip that includes a retransmission measures nothing.
            inc.stop_rtt_probe();
            rpc.inc = Some(inc);
        } else if matches!(rpc.state, RpcState::ClientOutgoing | RpcState::ServerIncoming)
            && ranges > 0
        {
            // Nothing has arrived, so not even the length is known.
            ask(rpc, 0, ResendLength::All);
        }
        if !asked {
            self.nothing_owed(now, handle);
            return;
        }
        rpc.loss.asked(now);
        // Homa §3.5: a sender that does not answer leaves its place to others.
        let suspend = rpc.loss.resends() >= SUSPEND_AFTER && policy.suspends;
        let peer = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut);
        if let Some(peer) = peer {
            // RFC 8085 §3.1.1: the longer the peer is silent, the longer it is not asked again.
            let unanswered = peer.cold.timing.count_round(now, peer.loss.last_heard());
            peer.loss.resent(now + outstanding_for(unanswered, &self.config.loss, policy));
        }
        if suspend {
            self.suspend(handle);
        }
    }

    /// NEED_ACK asks for the same at once, but must not change when the next RESEND is due if that
    /// counts ticks (Linux §2.5).
    pub(crate) fn request_missing_off_schedule(&mut self, now: Time, handle: RpcHandle) {
        let last_resend = self.rpcs.get(handle).map(|rpc| rpc.loss.last_resend());
        self.request_missing(now, handle);
        let ticks = self.config.policy().loss.without_drift;
        if let (true, Some(at), Some(rpc)) = (ticks, last_resend, self.rpcs.get_mut(handle)) {
            rpc.loss.resent_at(at);
        }
    }

    /// The host of an idempotent call's peer said that no server is there: the call asks now and
    /// then whether one is back, and other calls to the peer wait for the same answer.
    pub(crate) fn await_server(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.loss.set_server_absent(true);
        // A time that the server named while it was there no longer counts.
        rpc.loss.rest_until(Time::ZERO);
        let peer = rpc.peer;
        if let Some(peer) = self.peer_mut(peer) {
            // Its host answered, which ends the silence of the peer.
            peer.loss.heard(now);
            // Not from now on, because any number of reports may arrive.
            peer.loss.resent(peer.cold.timing.last_round() + ABSENT_RETRY);
        }
        self.arm(now, now + ABSENT_RETRY, handle);
    }

    /// Everything that was granted is here, so silence about this message means nothing.
    fn nothing_owed(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let any_packet = self.config.policy().loss.liveness == Liveness::AnyPacket;
        let peer_heard = self.peer(rpc.peer).map_or(Time::ZERO, |peer| peer.loss.last_heard());
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if rpc.state == RpcState::ServerIncoming && !any_packet {
            // A client that is alive keeps asking for its responses, so for a request any packet of
            // its client counts. Then the requests of a dead client are forgotten together, not one
            // after the other as each gets its grant.
            rpc.loss.heard(rpc.loss.last_heard().max(peer_heard));
            rpc.loss.resent_at(now);
        } else {
            rpc.loss.heard(now);
        }
    }
}
