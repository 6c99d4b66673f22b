//! The client's side of an RPC (Homa §3.1): it starts, its response arrives, and RPC_UNKNOWN is
//! answered. How it ends is in `end`.

use super::state::{CallOptions, Rpc, RpcState, incoming_message, outgoing_message};
use crate::config::{LEVELS, UnknownReaction};
use crate::endpoint::Endpoint;
use crate::event::{DropReason, Event, Request, RpcError, RpcHandle, SubmitError, Submitted};
use crate::incast;
use crate::packet::{Limits, Packet, PeerId, RefusalReason, RpcId};
use crate::send::unscheduled::unscheduled_limit;
use crate::units::{Duration, Time};

/// After this many RESENDs in a row without DATA, an RPC_UNKNOWN is no longer taken for a late
/// copy.
const MAX_RESENDS_OF_LATE_COPY: u16 = 2;

impl Endpoint {
    /// Checks a message's length against our limit and the peer's; returns the unscheduled limit.
    pub(crate) fn check_length(&self, peer: PeerId, length: u32) -> Result<u32, SubmitError> {
        let peer = self.peer(peer).ok_or(SubmitError::UnknownPeer)?;
        if length == 0 {
            return Err(SubmitError::EmptyMessage);
        }
        let own = self.config.max_message;
        let max = peer.limit_exceeded_by(self.now, length).map_or(own, |max| max.min(own));
        // Refused here, because the receiver would only drop it.
        if length > max {
            return Err(SubmitError::MessageTooLong { max });
        }
        Ok(unscheduled_limit(&self.config, peer))
    }

    pub(crate) fn submit_request(
        &mut self,
        now: Time,
        request: &Request,
    ) -> Result<Submitted, SubmitError> {
        let unscheduled = self.check_length(request.peer, request.length)?;
        // Bounds memory, and how much a fast caller can queue.
        if self.rpcs.clients() >= self.config.max_rpcs as usize {
            return Err(SubmitError::TooManyRpcs { max: self.config.max_rpcs });
        }
        let outstanding = self.rpcs.clients() + 1;
        let incast = self.config.incast.as_ref();
        let own = self.response_burst(request.peer);
        let unscheduled_bytes = self.grants.pending_unscheduled() + u64::from(own);
        let response_limit = incast::incast_flag(incast, outstanding, unscheduled_bytes);
        // Homa §3.6: with the flag, the response brings no more than its limit.
        let pending_unscheduled = response_limit.map_or(own, |limit| own.min(limit.into()));
        self.grants.expect_response(pending_unscheduled);
        self.counters.incast_requests += u64::from(response_limit.is_some());
        self.counters.requests_sent += 1;
        // ACK packets that no DATA carries leave from the same port.
        self.acks.note_local_port(request.local_port);
        let ports = (request.local_port, request.remote_port);
        let (id, peer) = (self.rpcs.next_id(), request.peer);
        self.note_call(peer, id);
        let options = CallOptions {
            idempotent: request.idempotent,
            response_limit,
            pending_unscheduled,
            cookie: request.cookie,
            deadline: request.deadline,
        };
        let unscheduled = self.unasked(peer, request.length, unscheduled);
        let out = self.outgoing(peer, request.length, unscheduled).with_head(request.head);
        let rpc = Rpc::new(now, RpcState::ClientOutgoing, id, peer, ports);
        // The deadline may be sooner than the first RESEND.
        let first_check = (now + self.config.loss.resend_after).min(request.deadline);
        let started = self.start(rpc.with_options(options).with_message(out));
        // With START_MSG, a long request sends nothing else before its first GRANT.
        self.announce(started.rpc);
        self.arm(now, first_check, started.rpc);
        Ok(started)
    }

    /// Unscheduled bytes that a long response of this peer brings.
    fn response_burst(&self, peer: PeerId) -> u32 {
        let rtt_bytes = self.peer(peer).map_or(self.config.rtt_bytes, |p| p.cold.rtt.bytes());
        rtt_bytes.min(self.unscheduled_cap())
    }

    pub(crate) fn submit_one_way(
        &mut self,
        now: Time,
        peer: PeerId,
        length: u32,
        cookie: u64,
    ) -> Result<Submitted, SubmitError> {
        let unscheduled = self.check_length(peer, length)?;
        let id = self.rpcs.next_id();
        let options = CallOptions {
            idempotent: false,
            response_limit: None,
            pending_unscheduled: 0,
            cookie,
            deadline: Time::MAX,
        };
        let out = self.outgoing(peer, length, unscheduled);
        let rpc = Rpc::new(now, RpcState::OneWayOutgoing, id, peer, (0, 0));
        Ok(self.start(rpc.with_options(options).with_message(out)))
    }

    fn start(&mut self, rpc: Rpc) -> Submitted {
        let peer = rpc.peer;
        let handle = self.rpcs.insert_client(rpc);
        if let Some(peer) = self.peer_mut(peer) {
            peer.begin_rpc(true);
        }
        if let Some(rpc) = self.rpcs.get_mut(handle) {
            self.send_queue.wake(handle, &mut rpc.out);
        }
        Submitted { rpc: handle, message: Some(outgoing_message(handle)) }
    }

    /// RPC_UNKNOWN at the client: the server lost the RPC, never had it, or gave it up.
    pub(crate) fn on_unknown_at_client(
        &mut self,
        now: Time,
        handle: RpcHandle,
        (remembered, no_server): (Option<Duration>, bool),
        reason: Option<RefusalReason>,
    ) {
        match self.config.policy().loss.unknown {
            // The server dropped it because of its deadline, and our timer is late.
            UnknownReaction::AtMostOnce
                if self.rpcs.get(handle).is_some_and(|rpc| now >= rpc.deadline()) =>
            {
                self.fail(handle, RpcError::DeadlineExceeded);
            }
            UnknownReaction::AtMostOnce => {
                if !reason.is_some_and(|reason| self.fail_refused(handle, reason)) {
                    self.on_unknown_at_most_once(now, handle, remembered, no_server);
                }
            }
            // The response has begun, so the server has the request. This is a late copy.
            _ if self.rpcs.get(handle).is_none_or(|rpc| rpc.state != RpcState::ClientOutgoing) => {}
            // If nothing was granted, only the announcement can be repeated.
            UnknownReaction::Retransmit if self.announce(handle) => {}
            UnknownReaction::Retransmit => self.retransmit_all(handle),
            UnknownReaction::Restart => self.restart_request(handle),
        }
    }

    /// The same in profile `default`. The request is sent again only if the server's memory covers
    /// the RPC's whole life, so that it was never executed; or if the call is idempotent, which
    /// continues under another id, because the server may remember this one as executed. Otherwise
    /// the call fails as `Indeterminate`, after another question if the answer may have covered the
    /// call when it left. So does a call whose request never left whole, because servers may act on
    /// the part of a request that arrived.
    fn on_unknown_at_most_once(
        &mut self,
        now: Time,
        handle: RpcHandle,
        remembered: Option<Duration>,
        no_server: bool,
    ) {
        let first_asked = self.config.loss.resend_after;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.loss.set_server_absent(false);
        rpc.loss.rest_until(Time::ZERO);
        let covered = remembered.is_some_and(|age| age > now.since(rpc.started()));
        let begun = rpc.state != RpcState::ClientOutgoing;
        if covered && begun && rpc.loss.resends() < MAX_RESENDS_OF_LATE_COPY {
            // Sent before the request arrived, and overtaken by the response: a late copy.
            return;
        }
        // A server that had begun to answer and does not know the RPC knew us by another address.
        let never_executed = covered && !begun;
        // See above: an idempotent call continues, but not faster than its timer.
        if rpc.is_idempotent() && (no_server || !rpc.loss.awaits_answer() && !never_executed) {
            // No server listens, or it gave the request up. To send it again at once would be a
            // loop as fast as the network, so the timer does it.
            if no_server {
                self.await_server(now, handle);
            }
            return;
        }
        // The answer left after our first question, and may have been delayed since.
        let late = !begun && !covered && remembered.is_some_and(|age| age > first_asked);
        if late && !no_server && !rpc.is_idempotent() && rpc.loss.doubts_answer() {
            return;
        }
        if !rpc.is_idempotent() && (no_server || !never_executed) {
            let refused = no_server && never_executed;
            let error = if refused { RpcError::PortUnreachable } else { RpcError::Indeterminate };
            return self.fail(handle, error);
        }
        rpc.loss.heard(now);
        // The server may refuse the old id as executed.
        if !never_executed {
            self.rpcs.renumber(now, handle);
        }
        self.restart_request(handle);
    }

    /// Sends the request as if nothing of it had been sent. Received bytes of its response are
    /// dropped.
    pub(crate) fn restart_request(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.set_restarted(true);
        rpc.out.restart();
        self.send_queue.wake(handle, &mut rpc.out);
        self.drop_response(handle);
    }

    /// Drops the received bytes of a response.
    pub(crate) fn drop_response(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let (peer, inc) = (rpc.peer, rpc.inc.take());
        rpc.state = RpcState::ClientOutgoing;
        // The response begins again with its first packet.
        if let Some(inc) = inc {
            rpc.note_seen_by_peer();
            self.events.push_back(Event::Release { message: incoming_message(handle) });
            self.end_incoming(handle, (peer, false), inc);
            // Its place and its part of the window are free for others.
            self.grant(None);
        }
    }

    /// Fails a request that is longer than its server accepts; true then.
    pub(crate) fn fail_too_long(&mut self, handle: RpcHandle) -> bool {
        let Some(rpc) = self.rpcs.get(handle) else { return false };
        if rpc.state != RpcState::ClientOutgoing {
            return false;
        }
        let (now, length) = (self.now, rpc.out.length);
        let exceeded = self.peer(rpc.peer).and_then(|peer| peer.limit_exceeded_by(now, length));
        if let Some(max) = exceeded {
            self.fail(handle, RpcError::RequestTooLong { max });
        }
        exceeded.is_some()
    }

    /// Fails a request whose server named a smaller limit in a packet about this RPC.
    fn fail_longer(&mut self, handle: RpcHandle, max: u32) {
        let rpc = self.rpcs.get(handle);
        if rpc.is_some_and(|rpc| rpc.state == RpcState::ClientOutgoing && rpc.out.length > max) {
            self.fail(handle, RpcError::RequestTooLong { max });
        }
    }

    /// Why the RPC of a packet was not found.
    pub(crate) fn unknown_or_foreign(&self, packet: &Packet) -> DropReason {
        let foreign = packet.id.from_server() && self.rpcs.client(packet.id).is_some();
        if foreign { DropReason::WrongPeer } else { DropReason::UnknownRpc }
    }

    /// The id of a client RPC, if it is in progress with this peer.
    pub(crate) fn find_client(&self, peer: PeerId, id: RpcId) -> Option<RpcHandle> {
        let handle = self.rpcs.client(id)?;
        self.rpcs.get(handle).filter(|r| r.peer == peer).map(|_| handle)
    }
}

impl Endpoint {
    /// CUTOFFS: the peer's levels for our unscheduled bytes, and its limits (Homa §3.4; Linux
    /// §2.2). `handle` is the RPC that the packet names; it fails here if its request is too long.
    /// Others fail when they are checked.
    pub(crate) fn on_cutoffs(
        &mut self,
        from: PeerId,
        handle: Option<RpcHandle>,
        cutoffs: [u32; LEVELS],
        version: u16,
        limits: Option<Limits>,
    ) {
        self.counters.cutoffs_received += 1;
        let now = self.now;
        let Some(peer) = self.peer_mut(from) else { return };
        peer.set_cutoffs(cutoffs, version);
        if let Some(limits) = limits {
            peer.set_limits(now, limits, handle.is_some());
            if let Some(handle) = handle
                && !self.fail_too_long(handle)
            {
                self.fail_longer(handle, limits.max_message);
            }
        }
    }
}
