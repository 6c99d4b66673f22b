//! Challenges at the server, and the requests that wait for their answers.

use super::state::SHARE;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::{Body, Data, Packet, PeerId, ResendLength, RpcId};
use crate::units::{Duration, Time};
use crate::wire;

/// Bytes that may be sent for each byte received from an address that is not validated (RFC 9000
/// §8.1).
const AMPLIFICATION: u32 = 3;
/// What a datagram adds to its packet: our header, and those of UDP and IPv6.
const HEADERS: u32 = 16 + 8 + 40;
/// A request is dropped if its client was not validated for so long.
const VALIDATION_TIMEOUT: Duration = Duration::secs(1);
/// Least time between two challenges to one peer.
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::millis(1);

/// Bytes of a packet that was received: no more than on any wire.
fn received_bytes(packet: &Packet) -> u32 {
    let payload = match packet.body {
        Body::Data(Data { span, .. }) => span.len,
        _ => 0,
    };
    (wire::encoded_len(&packet.body) as u32).saturating_add(payload)
}

/// Bytes of a packet to be sent: no fewer than on any wire.
fn sent_bytes(packet: &Packet) -> u32 {
    received_bytes(packet) + HEADERS + wire::datagram::extensions_len(&packet.body) as u32
}

impl Endpoint {
    /// True if clients must show that they receive at their addresses.
    pub(crate) fn validates_addresses(&self) -> bool {
        self.config.validate_addresses
    }

    /// A packet arrived from an address that is not validated: more may be sent to it.
    pub(crate) fn grow_send_allowance(&mut self, packet: &Packet) {
        if let Some(peer) = self.peer_mut(packet.peer) {
            let allowance = &mut peer.cold.validation.send_allowance;
            *allowance =
                // No packet is longer than a datagram, whatever its header says.
                allowance.saturating_add(AMPLIFICATION * received_bytes(packet).min(1 << 16));
        }
    }

    /// True if a control packet may leave: its peer is validated, or has sent enough bytes for it.
    pub(crate) fn may_send_to(&mut self, packet: &Packet) -> bool {
        let Some(peer) = self.peers.get_mut(packet.peer.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        // Nearly always.
        if peer.validation.is_validated() {
            return true;
        }
        let left = peer.cold.validation.send_allowance.checked_sub(sent_bytes(packet));
        match left {
            Some(left) => peer.cold.validation.send_allowance = left,
            None => self.counters.answers_withheld += 1,
        }
        left.is_some()
    }

    /// True if a peer is validated: it answered a challenge, or is called. Only then may large
    /// packets be sent to it.
    pub fn is_validated(&self, peer: PeerId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.validation.is_validated())
    }

    /// Makes room for a request that has to wait for validation: drops the oldest that wait.
    pub(crate) fn evict_unvalidated(&mut self) {
        let most = (self.config.max_rpcs / SHARE).max(1) as usize;
        let budget = self.config.memory_budget;
        while self.validation.pending_count >= most || self.validation.is_short(0, budget) {
            let Some(oldest) = self.validation.pending.pop_front() else { return };
            if self.rpcs.get(oldest).is_some_and(|rpc| rpc.is_unvalidated()) {
                self.counters.unvalidated_requests_dropped += 1;
                self.end_server_rpc(oldest);
            }
        }
    }

    /// A request was created whose client has to answer a challenge first.
    pub(crate) fn await_validation(&mut self, now: Time, handle: RpcHandle, packet: &Packet) {
        self.validation.pending_count += 1;
        self.validation.pending.push_back(handle);
        // Entries of requests that ended are removed when they are more than half.
        if self.validation.pending.len() > 2 * self.validation.pending_count + 64 {
            let rpcs = &self.rpcs;
            self.validation
                .pending
                .retain(|&handle| rpcs.get(handle).is_some_and(|rpc| rpc.is_unvalidated()));
        }
        if let Some(peer) = self.peers.get_mut(packet.peer.0 as usize).and_then(Option::as_mut) {
            let served = peer.served() as usize;
            let held = &mut peer.cold.validation.pending;
            if held.len() > 2 * served {
                held.retain(|&handle| {
                    self.rpcs.get(handle).is_some_and(|rpc| rpc.is_unvalidated())
                });
            }
            held.push_back(handle);
        }
        self.challenge(now, packet.peer, (packet.local_port, packet.remote_port));
    }

    /// Sends a challenge, unless one was just sent.
    pub(crate) fn challenge(&mut self, now: Time, to: PeerId, ports: (u16, u16)) {
        if !self.may_answer() {
            return;
        }
        let boot = self.validation.clients.boot;
        let remembered = self.memory.covers(now);
        // Zero stands for no challenge.
        let fresh = self.validation.random.next() | 1;
        let forgotten = self.validation.clients.forgotten();
        let Some(peer) = self.peer_mut(to) else { return };
        let validation = &mut peer.cold.validation;
        if validation.challenged.is_some_and(|at| now.since(at) < CHALLENGE_INTERVAL)
            && validation.challenge != 0
        {
            return;
        }
        // A challenge keeps its id until it is answered, because answers may be slower than the
        // interval.
        if validation.challenge == 0 {
            (validation.challenge, validation.challenged_after) = (fresh, forgotten);
        }
        validation.challenged = Some(now);
        let id = RpcId(validation.challenge);
        self.counters.challenges_sent += 1;
        let body = match self.config.policy().wire.challenges {
            true => Body::Challenge { boot, remembered },
            false => Body::NeedAck,
        };
        self.queue_control_to(to, ports, id, body);
    }

    /// Environment out: boot id and remembered time of a challenge that leaves at `now`; `None` if
    /// this endpoint sends none. An environment that proves addresses by a handshake carries the
    /// challenge in it, under a random id, and calls [`Self::note_challenged`] after it.
    pub fn challenge_at(&self, now: Time) -> Option<(u64, Duration)> {
        let sends = self.validates_addresses() && self.config.policy().wire.challenges;
        sends.then(|| (self.validation.clients.boot, self.memory.covers(now)))
    }

    /// Environment in: a peer got a challenge with this id and boot id outside of this protocol,
    /// and will answer it as if it had come in a packet. If something was forgotten since, the
    /// challenge is void, and the peer's first request causes another one.
    pub fn note_challenged(&mut self, now: Time, peer: PeerId, (id, boot): (RpcId, u64)) {
        self.begin(now);
        if boot != self.validation.clients.boot {
            return;
        }
        let forgotten = self.validation.clients.forgotten();
        if let Some(peer) = self.peer_mut(peer) {
            let validation = &mut peer.cold.validation;
            (validation.challenge, validation.challenged) = (id.server().0, Some(now));
            validation.challenged_after = forgotten;
        }
    }

    /// When a request ends that was executed before its client answered a challenge; never for
    /// others, and after the answer.
    pub(crate) fn proof_due(&self, handle: RpcHandle) -> Time {
        let Some(rpc) = self.rpcs.get(handle).filter(|rpc| rpc.executes_unvalidated()) else {
            return Time::MAX;
        };
        let answered = self.peer(rpc.peer).and_then(|peer| peer.cold.validation.answered_at);
        match answered.is_some_and(|at| at >= rpc.started()) {
            true => Time::MAX,
            false => rpc.started() + VALIDATION_TIMEOUT,
        }
    }

    /// Timer of a request that waits: one more challenge, then nothing. Returns when to check next.
    pub(crate) fn check_unvalidated(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        // More DATA of the request is no answer, so only the time since its start counts.
        let end = rpc.started() + VALIDATION_TIMEOUT;
        if now >= end {
            self.counters.unvalidated_requests_dropped += 1;
            self.end_server_rpc(handle);
            return None;
        }
        if rpc.loss.resends() == 0 {
            // No RESEND: missing bytes are asked for once the client is validated.
            rpc.loss.asked(now);
            let (peer, ports) = (rpc.peer, rpc.ports());
            self.challenge(now, peer, ports);
        }
        Some(end)
    }

    fn request_one_range(&mut self, handle: RpcHandle) {
        let priority = self.levels.top();
        let missing = self.rpcs.get(handle).and_then(|rpc| {
            let inc = rpc.inc.as_ref()?;
            inc.missing().next()
        });
        if let Some((start, end)) = missing {
            let length = ResendLength::Bytes(end - start);
            self.counters.resends_sent += 1;
            self.queue_control(handle, Body::Resend { offset: start, length, priority });
        }
    }

    /// The client of a request that waits sends a RESEND: it is challenged again, and asked for one
    /// missing range.
    pub(crate) fn on_resend_of_unvalidated(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let (peer, ports) = (rpc.peer, rpc.ports());
        self.challenge(now, peer, ports);
        self.request_one_range(handle);
    }

    /// Environment in: drops the waiting requests of a peer that is not validated, to make room for
    /// another peer. [`Self::close_peer`] succeeds then, unless more is in progress with it.
    pub fn drop_unvalidated(&mut self, peer: PeerId) {
        let Some(held) = self.peer_mut(peer).filter(|peer| !peer.validation.is_validated()) else {
            return;
        };
        for handle in core::mem::take(&mut held.cold.validation.pending) {
            if self.rpcs.get(handle).is_some_and(|rpc| rpc.is_unvalidated()) {
                self.counters.unvalidated_requests_dropped += 1;
                self.end_server_rpc(handle);
            }
        }
    }
}
