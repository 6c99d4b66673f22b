//! When an RPC's state ends (Homa §3.8; Linux §2.5).
//!
//! `AtLeastOnce`: the server forgets with the last response packet. `Acked`: the client reports
//! completed RPCs, one in each DATA packet to the server's host or five to an ACK; a server that
//! waits too long asks with NEED_ACK, and gives up where the profile says so.

use crate::config::{Completion, Profile};
use crate::endpoint::{Control, Endpoint};
use crate::event::Event;
use crate::packet::{AckEntry, Acks, Body, Packet, PeerId, RpcId};
use crate::rpc::{Ended, State, incoming_message, outgoing_message};
use crate::table::Ref;
use crate::units::{Duration, Time};

/// Most doublings of the interval between NEED_ACKs.
const MAX_BACKOFF: u32 = 6;

/// Completed RPCs that a server has not been told about.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks(Acks);

impl PendingAcks {
    /// Adds one; when full, the five that must leave to make room.
    fn push(&mut self, entry: AckEntry) -> Option<Acks> {
        let full = self.0.push(entry).is_err();
        full.then(|| core::mem::take(&mut self.0))
    }

    /// One to ride on a DATA packet, the youngest first.
    pub(crate) fn pop(&mut self) -> Option<AckEntry> {
        self.0.pop()
    }

    fn take(&mut self) -> Acks {
        core::mem::take(&mut self.0)
    }
}

impl Endpoint {
    /// Client: the response of an RPC is complete; its server may forget it.
    pub(crate) fn acknowledge(&mut self, ended: &Ended) {
        if self.config.completion == Completion::AtLeastOnce {
            return;
        }
        let entry = AckEntry { id: ended.id, server_port: ended.ports.1 };
        let overflow = self.peer_mut(ended.peer).and_then(|p| p.acks.push(entry));
        if let Some(acks) = overflow {
            self.queue_ack(ended.peer, ended.ports, ended.id, acks);
        }
    }

    /// Queues an ACK that names `id` in its header.
    pub(crate) fn queue_ack(&mut self, peer: PeerId, ports: (u16, u16), id: RpcId, acks: Acks) {
        self.counters.acks_sent += 1;
        self.control.push_back(Control::Packet(Packet {
            peer,
            priority: self.levels.top(),
            local_port: ports.0,
            remote_port: ports.1,
            id: id.client(),
            body: Body::Ack(acks),
        }));
    }

    /// Sends every ack that waits for a DATA packet to ride on: before a shutdown.
    pub(crate) fn flush_pending_acks(&mut self) {
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            let mut acks = peer.acks.take();
            if let Some(last) = acks.pop() {
                let port = self.last_local_port;
                self.queue_ack(PeerId(index as u32), (port, last.server_port), last.id, acks);
            }
        }
    }

    /// NEED_ACK at the client: ask for what is missing, or confirm (also for an RPC we do not
    /// know).
    pub(crate) fn on_need_ack(&mut self, now: Time, packet: &Packet, who: Option<Ref>) {
        self.counters.need_acks_received += 1;
        match who {
            Some(who) => self.request_missing(now, who),
            None => {
                let acks = self.peer_mut(packet.peer).map(|p| p.acks.take()).unwrap_or_default();
                let ports = (packet.local_port, packet.remote_port);
                self.queue_ack(packet.peer, ports, packet.id, acks);
            }
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
        let Some(&who) = self.server_rpcs.get(&(peer.0, id.0)) else { return };
        self.counters.acks_received += 1;
        let answered = self.rpcs.get(who).is_some_and(|r| r.out.exists());
        if !answered {
            self.counters.server_cancels += 1;
        }
        self.end_server_rpc(who);
    }

    /// Server: the RPC is over; the application hears of it when it was asked to serve it and had
    /// not answered, or its answer was not confirmed.
    pub(crate) fn end_server_rpc(&mut self, who: Ref) {
        let Some(ended) = self.forget(who) else { return };
        if ended.state == State::ServerInService {
            self.events.push_back(Event::Cancelled { rpc: who.into() });
        }
    }

    /// All bytes of an outgoing message were sent (again).
    pub(crate) fn message_sent(&mut self, now: Time, who: Ref) {
        let Some(rpc) = self.rpcs.get_mut(who) else { return };
        match (rpc.state, self.config.completion) {
            (State::OneWayOutgoing, _)
            | (State::ServerOutgoing | State::ServerSent, Completion::AtLeastOnce) => {
                self.forget(who);
            }
            (State::ServerOutgoing, Completion::Acked { need_ack_after, .. }) => {
                rpc.state = State::ServerSent;
                rpc.heard = now;
                rpc.asked = now;
                rpc.rounds = 0;
                self.arm(now, now + need_ack_after, who);
            }
            _ => {}
        }
    }

    /// Timer of a server RPC whose response was sent: NEED_ACK, or give up. Yields the next check.
    pub(crate) fn check_sent(&mut self, now: Time, who: Ref) -> Option<Time> {
        let Completion::Acked { need_ack_after, need_ack_interval, give_up, .. } =
            self.config.completion
        else {
            return None;
        };
        let rpc = self.rpcs.get_mut(who)?;
        if give_up.is_some_and(|limit| now.since(rpc.heard) >= limit) {
            self.counters.ack_give_ups += 1;
            self.end_server_rpc(who);
            return None;
        }
        let backoff = if give_up.is_some() { rpc.rounds.min(MAX_BACKOFF) } else { 0 };
        let wait = match rpc.rounds {
            0 => need_ack_after,
            _ => Duration(need_ack_interval.0 << backoff),
        };
        if now < rpc.asked + wait {
            return Some(rpc.asked + wait);
        }
        rpc.asked = now;
        rpc.rounds += 1;
        self.counters.need_acks_sent += 1;
        self.queue_control(who, Body::NeedAck);
        Some(now + need_ack_interval)
    }

    /// Removes an RPC and releases its messages; the caller says what the application hears.
    pub(crate) fn forget(&mut self, who: Ref) -> Option<Ended> {
        let rpc = self.rpcs.get_mut(who)?;
        let ended = Ended {
            state: rpc.state,
            id: rpc.id,
            peer: rpc.peer,
            ports: (rpc.local_port, rpc.remote_port),
            cookie: rpc.cookie,
        };
        self.sender.forget(&mut rpc.out);
        let (sends, inc) = (rpc.out.exists(), rpc.inc.take());
        self.rpcs.remove(who.index);
        if ended.state.is_client() {
            self.client_rpcs.remove(&ended.id.0);
        } else {
            self.server_rpcs.remove(&(ended.peer.0, ended.id.0));
        }
        if let Some(peer) = self.peer_mut(ended.peer) {
            peer.rpcs -= 1;
        }
        if sends {
            self.events.push_back(Event::Release { message: outgoing_message(who) });
        }
        if let Some(inc) = inc {
            self.events.push_back(Event::Release { message: incoming_message(who) });
            self.end_incoming(who, ended.peer, &inc);
            self.grant(None);
        }
        Some(ended)
    }

    /// How a cancel travels: an ACK naming the RPC (never sent by the kernel module, which would
    /// not tell the server; nor by the paper's profile, which has no acks).
    pub(crate) fn tell_cancelled(&mut self, ended: &Ended) {
        if self.config.profile == Profile::Default {
            self.queue_ack(ended.peer, ended.ports, ended.id, Acks::default());
        }
    }
}
