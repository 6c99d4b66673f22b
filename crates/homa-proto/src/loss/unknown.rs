//! RESEND of an RPC that we do not know (Homa §3.7; Linux §2.5): ask for the request, or answer
//! RPC_UNKNOWN and say how far back the memory of executed RPCs reaches. If no server listens at
//! the port, the DATA of a request is answered alike.

use crate::address_validation::Execution;
use crate::completion::replay_window::RefusalRecord;
use crate::config::UnknownRpcReply;
use crate::endpoint::Endpoint;
use crate::packet::{Body, Data, Packet, ResendLength};
use crate::units::{Duration, Time};

impl Endpoint {
    /// A RESEND of an RPC that we do not know.
    pub(crate) fn on_resend_unknown(&mut self, now: Time, packet: &Packet) {
        self.counters.resends_received += 1;
        if !self.may_answer() {
            return;
        }
        let for_server = !packet.id.from_server();
        match self.config.loss.unknown {
            // Homa §3.7: the whole request was lost, so the server asks for its first RTTbytes.
            UnknownRpcReply::ResendRequest if for_server => {
                self.counters.resends_sent += 1;
                let length = ResendLength::Bytes(self.config.rtt_bytes);
                let priority = self.levels.top();
                let body = Body::Resend { offset: 0, length, priority };
                self.answer(packet, body);
            }
            // A client without the RPC has its response or gave the call up.
            UnknownRpcReply::ResendRequest => {}
            // The RESEND was on its way when the client's ACK arrived.
            UnknownRpcReply::RpcUnknown if self.was_just_acked(now, packet) => {}
            UnknownRpcReply::RpcUnknown => self.answer_unknown(now, packet),
        }
    }

    /// DATA of a request arrived for a port without a server. A client that showed that it receives
    /// at its address is told at once, instead of after its RESEND; by then another server may
    /// listen, which cannot tell that the request was not executed. One answer for each request.
    pub(crate) fn answer_no_server(&mut self, now: Time, packet: &Packet, data: &Data) {
        let tells = self.config.policy().completion.tells_memory;
        let first = data.span.offset == 0 && self.is_validated(packet.peer);
        if tells && first && !self.may_have_moved(packet) && self.may_answer() {
            self.answer_unknown(now, packet);
        }
    }

    fn answer_unknown(&mut self, now: Time, packet: &Packet) {
        // Every question about a refused request gets the same answer.
        if let Some(RefusalRecord::Reason(reason)) = self.refusal(packet) {
            self.counters.unknowns_sent += 1;
            return self.answer(packet, reason.answer());
        }
        let closed = !self.rpcs.is_listening(packet.local_port);
        // A client that moved to another endpoint must not be judged by its old record.
        self.forget_departed_clients();
        // A client whose address changed must identify itself before it can be told that nothing
        // was executed.
        if closed && !packet.id.from_server() && self.may_have_moved(packet) {
            let ports = (packet.local_port, packet.remote_port);
            return self.challenge(now, packet.peer, ports);
        }
        self.counters.unknowns_sent += 1;
        let remembered = self.memory_reaches(now, packet, closed);
        let no_server = remembered.is_some() && closed;
        if no_server {
            self.refuse(now, packet);
        }
        self.answer(packet, Body::RpcUnknown { remembered, no_server, reason: None });
    }

    /// Queues an answer to a packet, about its RPC.
    fn answer(&mut self, packet: &Packet, body: Body) {
        let ports = (packet.local_port, packet.remote_port);
        let id = if packet.id.from_server() { packet.id.client() } else { packet.id.server() };
        self.queue_control_to(packet.peer, ports, id, body);
    }

    /// Why the request of a packet was refused before.
    fn refusal(&self, packet: &Packet) -> Option<RefusalRecord> {
        let peer = self.peer(packet.peer).filter(|_| !packet.id.from_server())?;
        peer.cold.executed.refusal(packet.id)
    }

    /// The port of an RPC is closed: it is not executed later either, if the request arrives after
    /// this answer and the port is open by then.
    fn refuse(&mut self, now: Time, packet: &Packet) {
        // An executed request must not be reported as refused.
        if self.execution(packet) != Execution::Executed {
            // With validation, its refusal alone marks it as executed (see `execution`).
            if !self.validates_addresses() {
                self.remember_executed(now, packet.peer, packet.id);
            }
            if let Some(peer) = self.peer_mut(packet.peer) {
                peer.cold.executed.refuse(packet.id, RefusalRecord::NoServer);
            }
        }
    }

    /// How far back we can say that this peer's RPC was never executed; `closed`: its port is. If
    /// the port was closed before and is open now, an RPC that was refused has to use another id.
    fn memory_reaches(&self, now: Time, packet: &Packet, closed: bool) -> Option<Duration> {
        let tells = self.config.policy().completion.tells_memory;
        if !tells || !self.suppresses_duplicates() || packet.id.from_server() {
            return None;
        }
        let executed = &self.peer(packet.peer)?.cold.executed;
        let refused = closed && executed.refusal(packet.id) == Some(RefusalRecord::NoServer);
        // The client would repeat a call that it takes for not executed.
        if self.execution(packet) == Execution::Executed && !refused {
            return Some(Duration::ZERO);
        }
        if self.is_of_named_client(packet) {
            // Its record is here, whatever was forgotten of others.
            return Some(Duration::MAX);
        }
        Some(match self.validates_addresses() {
            true => self.memory.covers(now),
            false => now.since(executed.since()),
        })
    }
}
