//! ACK at the client and at the server (Homa §3.8; Linux §2.5): the client reports completed RPCs,
//! and the server forgets them.

use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::{AckEntry, Acks, Body, Packet, PeerId, RpcId};
use crate::rpc::EndedRpc;
use crate::units::Time;

impl Endpoint {
    /// True if the request that a packet is about was acknowledged a moment ago, and the profile
    /// keeps quiet about it.
    pub(crate) fn was_just_acked(&self, now: Time, packet: &Packet) -> bool {
        !packet.id.from_server() && self.recent_acks.contains(now, packet.peer, packet.id)
    }

    /// Client: the response of an RPC is complete, so its server may forget it.
    pub(crate) fn acknowledge(&mut self, ended: &EndedRpc) {
        // Homa §3.8: the server forgot the RPC with its last packet.
        if self.config.completion == Completion::AtLeastOnce {
            return;
        }
        let entry = AckEntry { id: ended.id, server_port: ended.ports.1 };
        let most = self.config.policy().completion.acks;
        let Some(peer) = self.peer_mut(ended.peer) else { return };
        // Too many wait: the new one and the oldest leave in a packet.
        if !peer.push_ack(entry, most) {
            let acks = peer.take_acks();
            self.queue_ack(ended.peer, ended.ports, ended.id, acks);
        } else if peer.is_newly_late() {
            self.acks.add(self.now, ended.peer);
        }
    }

    /// Sends what has waited too long for DATA: more ACKs for one peer than a packet holds.
    pub(crate) fn expire_acks(&mut self, now: Time) {
        if now < self.acks.due() {
            return;
        }
        self.acks.restart();
        while let Some(late) = self.acks.pop() {
            if self.peer_mut(late).is_some_and(|peer| peer.take_late()) {
                self.flush_acks_to(late);
            }
        }
    }

    /// Sends the ACKs that wait for a peer.
    fn flush_acks_to(&mut self, peer: PeerId) {
        let port = self.acks.local_port();
        while let Some(first) = self.peer_mut(peer).and_then(|p| p.pop_ack(false)) {
            let acks = self.peer_mut(peer).map(|p| p.take_acks()).unwrap_or_default();
            self.queue_ack(peer, (port, first.server_port), first.id, acks);
        }
    }

    /// Tells servers at once which RPCs completed, instead of with the next DATA: before a
    /// shutdown.
    pub fn flush_acks(&mut self) {
        (0..self.peers.len()).for_each(|index| self.flush_acks_to(PeerId(index as u32)));
    }

    /// Queues an ACK that names `id` in its header.
    pub(crate) fn queue_ack(&mut self, peer: PeerId, ports: (u16, u16), id: RpcId, acks: Acks) {
        self.counters.acks_sent += 1;
        self.queue_control_to(peer, ports, id.client(), Body::Ack(acks));
    }

    /// NEED_ACK at the client. It answers with a RESEND of missing bytes; or, if none are missing,
    /// with its grant again, because the response is wanted and waits for shorter ones; or with an
    /// ACK, also of an RPC that it does not know.
    pub(crate) fn on_need_ack(&mut self, now: Time, packet: &Packet, handle: Option<RpcHandle>) {
        self.counters.need_acks_received += 1;
        if !self.may_answer() {
            return;
        }
        match handle {
            // The response is incomplete, so the server must keep it.
            Some(handle) => {
                self.request_missing_off_schedule(now, handle);
                if self.config.policy().completion.repeats_grant {
                    self.repeat_grant(handle);
                }
            }
            // Complete, cancelled, or of an earlier process: the server may forget it.
            None => {
                let acks = self.peer_mut(packet.peer).map(|p| p.take_acks()).unwrap_or_default();
                let ports = (packet.local_port, packet.remote_port);
                self.queue_ack(packet.peer, ports, packet.id, acks);
                // The server would ask for each of the others.
                self.flush_acks_to(packet.peer);
            }
        }
    }

    /// Sends the grant of a message again if all that was granted is here.
    fn repeat_grant(&mut self, handle: RpcHandle) {
        let inc = self.rpcs.get(handle).and_then(|rpc| rpc.inc.as_ref());
        let inc = inc.filter(|inc| inc.grant.is_scheduled());
        if inc.is_some_and(|inc| inc.missing().next().is_none()) {
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

    /// One RPC was acknowledged: forget it in whatever state it is. If the application is serving
    /// it, this cancels it.
    pub(crate) fn on_acked(&mut self, peer: PeerId, id: RpcId) {
        let Some(handle) = self.find_server(peer, id) else { return };
        self.counters.acks_received += 1;
        if self.config.policy().completion.quiet_after_ack {
            self.recent_acks.add(self.now, peer, id);
        }
        let answered = self.rpcs.get(handle).is_some_and(|rpc| rpc.out.exists());
        // An ACK of an RPC without a response cancels it.
        if !answered {
            self.counters.server_cancels += 1;
        }
        self.end_server_rpc(handle);
    }
}
