//! The server's side of an RPC (Homa §3.1): a request creates its state, the application answers,
//! and the response is sent like any other message.

use super::state::{Rpc, RpcState, outgoing_message};
use crate::address_validation::Execution;
use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle, SubmitError, Submitted};
use crate::packet::{Body, Data, Limits, Packet, PeerId, RpcId};
use crate::units::{Duration, Time};

/// CUTOFFS to one peer are at least this far apart (Linux §2.4: one per jiffy).
const CUTOFFS_INTERVAL: Duration = Duration::millis(1);

impl Endpoint {
    /// The first packet of a request (or one-way message): creates the RPC. `idempotent`: see
    /// [`Endpoint::receive_idempotent`].
    pub(crate) fn create_server_rpc(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        idempotent: bool,
    ) -> Result<RpcHandle, DropReason> {
        let one_way = packet.local_port == 0;
        if !one_way && !self.rpcs.is_listening(packet.local_port) {
            self.answer_no_server(now, packet, data);
            return Err(DropReason::NoServer);
        }
        if data.message_length > self.config.max_message {
            // CUTOFFS carry our limits, if the wire format has room for them.
            if self.config.policy().wire.limits {
                self.send_cutoffs(now, packet);
            }
            return Err(DropReason::TooLong);
        }
        self.forget_departed_clients();
        let known = if one_way { Execution::Fresh } else { self.execution(packet) };
        if known == Execution::Executed {
            return Err(DropReason::AlreadyExecuted);
        }
        // A whole request that may be executed more than once does not wait for its validation.
        let executes = idempotent && data.span.len == data.message_length;
        let unvalidated = known == Execution::Unvalidated && !executes;
        let executes_unvalidated = known == Execution::Unvalidated && executes;
        if unvalidated && !self.postpones_requests {
            self.evict_unvalidated();
        }
        // Bounds memory, and what a flood of requests can take.
        if self.rpcs.servers() >= self.config.max_rpcs as usize || self.postpones_requests {
            self.send_away(now, packet, data);
            return Err(DropReason::TooManyRpcs);
        }
        let left = self.config.max_rpcs as usize - self.rpcs.servers();
        let served = self.requests_of_host(packet.peer);
        // A host that has more than is left for all others gets no more.
        if !unvalidated && served.is_some_and(|served| served >= left) {
            self.send_away(now, packet, data);
            return Err(DropReason::TooManyOfPeer);
        }
        let state = if one_way { RpcState::OneWayIncoming } else { RpcState::ServerIncoming };
        let ports = (packet.local_port, packet.remote_port);
        let limit = data.incast.filter(|_| self.config.policy().wire.response_limits);
        let mut rpc = Rpc::new(now, state, packet.id.client(), packet.peer, ports);
        if executes_unvalidated {
            rpc.set_executes_unvalidated();
        }
        let handle = self.rpcs.insert_server(rpc.with_request(limit, unvalidated));
        self.return_times.note_room();
        if let Some(peer) = self.peer_mut(packet.peer) {
            peer.begin_rpc(false);
            peer.note_recent_rpc(handle);
        }
        if !unvalidated {
            self.charge_request(packet.peer, true);
        }
        self.arm(now, now + self.config.loss.resend_after, handle);
        if unvalidated {
            self.await_validation(now, handle, packet);
        }
        Ok(handle)
    }

    /// True if a request is executed at most once, as far as executions are remembered.
    pub(crate) fn suppresses_duplicates(&self) -> bool {
        matches!(self.config.completion, Completion::Acked { suppress_duplicates: true, .. })
    }

    /// The whole request arrived: the application serves it.
    pub(crate) fn begin_service(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.state = RpcState::ServerInService;
        rpc.loss.restart(now);
        let (peer, id, begun) =
            (rpc.peer, rpc.id, rpc.is_begun_early() || rpc.executes_unvalidated());
        self.counters.requests_delivered += 1;
        // A request that is read early counts as executed from its beginning on.
        if !begun {
            self.remember_executed(now, peer, id);
        }
    }

    pub(crate) fn submit_response(
        &mut self,
        now: Time,
        handle: RpcHandle,
        length: u32,
    ) -> Result<Submitted, SubmitError> {
        let serves = |rpc: &&Rpc| match rpc.state {
            RpcState::ServerIncoming => rpc.is_begun_early(),
            state => state == RpcState::ServerInService,
        };
        let rpc = self.rpcs.get(handle).filter(serves);
        let rpc = rpc.ok_or(SubmitError::UnknownRpc)?;
        // At least a byte, because the client learns about the response from it.
        let limit = rpc.response_limit().map_or(u32::MAX, |l| u32::from(l.max(1)));
        let unscheduled = self.check_length(rpc.peer, length)?;
        let peer = rpc.peer;
        self.stop_reading(now, handle);
        let unscheduled = self.unasked(peer, length, unscheduled.min(limit));
        let out = self.outgoing(peer, length, unscheduled);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Err(SubmitError::UnknownRpc) };
        rpc.out = out;
        rpc.state = RpcState::ServerOutgoing;
        rpc.loss.restart(now);
        self.send_queue.wake(handle, &mut rpc.out);
        self.counters.responses_sent += 1;
        self.announce(handle);
        Ok(Submitted { rpc: handle, message: Some(outgoing_message(handle)) })
    }

    /// Sends a peer our cutoffs if its DATA was sent by other ones (Homa §3.4).
    pub(crate) fn refresh_cutoffs(&mut self, now: Time, packet: &Packet, version: u16) {
        if version != self.levels.cutoffs().1 {
            self.send_cutoffs(now, packet);
        }
    }

    /// Sends CUTOFFS to the sender of a packet, with our limits if the wire format has room for
    /// them.
    pub(crate) fn send_cutoffs(&mut self, now: Time, packet: &Packet) {
        if !self.config.policy().wire.grants_and_cutoffs || !self.may_answer() {
            return;
        }
        let (cutoffs, version) = self.levels.cutoffs();
        let limits = self.config.policy().wire.limits.then(|| Limits {
            max_message: self.config.max_message,
            max_unscheduled: self.unscheduled_cap(),
        });
        let Some(peer) = self.peer_mut(packet.peer) else { return };
        if peer.cutoffs_sent().is_some_and(|at| now.since(at) < CUTOFFS_INTERVAL) {
            return;
        }
        peer.note_cutoffs_sent(now);
        self.counters.cutoffs_sent += 1;
        // The direction bit must fit the receiver's role (Linux trap 15).
        let id = if packet.id.from_server() { packet.id.client() } else { packet.id.server() };
        let ports = (packet.local_port, packet.remote_port);
        self.queue_control_to(packet.peer, ports, id, Body::Cutoffs { cutoffs, version, limits });
    }

    /// The server RPC of a peer with this (even) id, if it is in progress.
    pub(crate) fn find_server(&self, peer: PeerId, id: RpcId) -> Option<RpcHandle> {
        let recent = self.peer(peer)?.recent_rpc();
        self.rpcs.server(peer, id, recent)
    }
}
