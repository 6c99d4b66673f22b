//! Checks of packets: hosts send only live messages, only bytes they may send, and received bytes
//! land in their place.

use homa_proto::{
    Body, Data, DropReason, MessageId, Packet, PeerId, Placement, Receipt, ResendLength, RpcId,
};

use crate::time::SimTime;
use crate::topology::HostId;

use super::Checker;
use super::intervals::Intervals;
use super::record::{CallEnding, IncomingRecord, MessageRecord, OutgoingRecord};

impl Checker {
    pub(super) fn on_transmit(&mut self, at: (SimTime, HostId), packet: &Packet) {
        self.packets += 1;
        let quiet = self.quiet_from;
        self.require(at.0 < quiet, at, "silence after the last call", || format!("{packet:?}"));
        let addresses = self.hosts.len() + self.promises.foreign_addresses as usize;
        let known = (packet.peer.0 as usize) < addresses && packet.peer.0 != at.1.0;
        self.require(known, at, "packets go to known peers", || format!("{packet:?}"));
        self.check_amplification(at, packet);
        if let Body::Data(data) = &packet.body {
            self.on_transmit_data(at, packet, data);
        }
    }

    fn on_transmit_data(&mut self, at: (SimTime, HostId), packet: &Packet, data: &Data) {
        let (max_payload, max_unscheduled) =
            (self.promises.max_payload, self.promises.max_unscheduled);
        let record = &mut self.hosts[at.1.0 as usize];
        let Some(MessageRecord::Outgoing(message)) = record.messages.get_mut(&data.span.message)
        else {
            let detail = format!("{packet:?}");
            return self.violation(at.0, Some(at.1), "only live messages are sent", detail);
        };
        let end = data.span.offset.saturating_add(data.span.len);
        if message.unknown && message.id != Some(packet.id) {
            (message.id, message.allowed, message.unknown) = (Some(packet.id), 0, false);
        }
        message.unknown &= data.span.offset > 0 || data.retransmit;
        let whole = data.span.len > 0
            && data.span.len <= max_payload
            && end <= message.length
            && data.message_length == message.length
            && packet.peer == message.to
            && *message.id.get_or_insert(packet.id) == packet.id;
        if !data.retransmit {
            // Profile `linux-upstream` has no grants and says nothing: all of it may be sent.
            let unasked = if data.incoming == 0 { data.message_length } else { data.incoming };
            message.allowed = message.allowed.max(unasked.min(max_unscheduled));
        }
        // A packet that starts within the limit may be sent whole.
        let permitted = data.span.offset < message.allowed || data.retransmit;
        let (cookie, allowed) = (message.cookie, message.allowed);
        self.require(whole, at, "DATA describes its message", || format!("{packet:?}"));
        self.require(permitted, at, "no byte is sent without permission", || {
            format!("{allowed} bytes allowed, {packet:?}")
        });
        if !packet.id.from_server() {
            let other = *self.by_id.entry((at.1, packet.id)).or_insert(cookie);
            self.require(other == cookie, at, "RPC ids are unique", || {
                format!("{:?} stands for calls {other} and {cookie}", packet.id)
            });
        }
    }

    /// A packet as its receiver understood it; `forged` if it claims another source address.
    pub(super) fn on_receive(
        &mut self,
        at: (SimTime, HostId),
        packet: &Packet,
        (receipt, forged): (&Receipt, bool),
    ) {
        if self.promises.foreign_addresses > 0 {
            self.exchanged.came(at.1, packet);
        }
        match (receipt, &packet.body) {
            (Receipt::Place(place), Body::Data(data)) => self.on_place(at, packet, data, *place),
            (Receipt::Place(_), _) => {
                let detail = format!("{packet:?}");
                self.violation(at.0, Some(at.1), "only DATA has bytes to place", detail);
            }
            (Receipt::Dropped(_), _) if forged => {}
            (Receipt::Dropped(reason), _) => {
                // A client that moved counts as a new client, and its request waits for address
                // validation. Its grant for the response therefore comes too early.
                let moved = *reason == DropReason::WrongState
                    && self.promises.moves.iter().any(|(host, _)| host.0 == packet.peer.0);
                let possible = possible_here(*reason) || moved;
                self.require(possible, at, "correct packets are not refused", || {
                    format!("{reason:?} for {packet:?}")
                });
            }
            (Receipt::Consumed, _) => {}
        }
        match packet.body {
            Body::Grant { offset, .. } => self.permit(at, packet, offset),
            Body::Resend { offset, length: ResendLength::Bytes(length), .. } => {
                self.permit(at, packet, offset.saturating_add(length));
            }
            Body::RpcUnknown { .. } => self.may_rename(at, packet),
            _ => {}
        }
        let alive = match packet.body {
            Body::Data(_) => matches!(receipt, Receipt::Place(_)),
            Body::Grant { .. } | Body::Busy { .. } => matches!(receipt, Receipt::Consumed),
            _ => false,
        };
        if alive && packet.id.from_server() {
            let cookie = self.by_id.get(&(at.1, packet.id.client())).copied();
            if let Some(call) = cookie.and_then(|cookie| self.calls.get_mut(&cookie)) {
                call.last_heard = at.0;
            }
        }
    }

    /// The receiver of a message of this host allows it to send up to `end`.
    fn permit(&mut self, at: (SimTime, HostId), packet: &Packet, end: u32) {
        // The receiver writes the id in the other form, because one side is the client.
        let id = if packet.id.from_server() { packet.id.client() } else { packet.id.server() };
        let concerns = |m: &OutgoingRecord| m.id == Some(id) && m.to == packet.peer;
        for message in self.host(at.1).messages.values_mut() {
            if let MessageRecord::Outgoing(message) = message
                && concerns(message)
            {
                message.allowed = message.allowed.max(end.min(message.length));
            }
        }
    }

    /// If the server does not know an idempotent call, the call may continue under another id.
    fn may_rename(&mut self, at: (SimTime, HostId), packet: &Packet) {
        let own_id = Some(packet.id.client());
        let calls = &self.calls;
        for message in self.hosts[at.1.0 as usize].messages.values_mut() {
            if let MessageRecord::Outgoing(message) = message
                && (message.id, message.to) == (own_id, packet.peer)
            {
                message.unknown = self.promises.indeterminate
                    && calls.get(&message.cookie).is_some_and(|call| call.idempotent);
            }
        }
    }

    fn on_place(&mut self, at: (SimTime, HostId), packet: &Packet, data: &Data, place: Placement) {
        let faithful = place.offset == data.span.offset
            && place.len == data.span.len
            && place.total == data.message_length
            && place.offset.saturating_add(place.len) <= place.total;
        self.require(faithful, at, "bytes go where the packet says", || {
            format!("{place:?} for {packet:?}")
        });
        let record = self.host(at.1);
        let new = || MessageRecord::Incoming(incoming(packet, place));
        let held = match record.messages.entry(place.message).or_insert_with(new) {
            MessageRecord::Incoming(message)
                if (message.from, message.id, message.total)
                    == (packet.peer, packet.id, place.total) =>
            {
                message.packets += 1;
                let new = message.here.add(place.offset, place.offset.saturating_add(place.len));
                record.held_bytes += u64::from(new);
                record.held_bytes
            }
            other => {
                let detail = format!("{packet:?} placed in {:?}, {other:?}", place.message);
                return self.violation(at.0, Some(at.1), "bytes of one RPC stay apart", detail);
            }
        };
        let budget = self.promises.memory_budget;
        self.require(held <= budget, at, "memory stays in its budget", || {
            format!("{held} bytes held, {budget} allowed")
        });
    }

    /// The transport no longer holds the bytes of an incoming message.
    pub(super) fn give_up_incoming(
        &mut self,
        host: HostId,
        id: MessageId,
    ) -> Option<IncomingRecord> {
        let record = self.host(host);
        match record.messages.remove(&id) {
            Some(MessageRecord::Incoming(message)) => {
                record.held_bytes -= u64::from(message.here.bytes());
                Some(message)
            }
            Some(other) => {
                record.messages.insert(id, other);
                None
            }
            None => None,
        }
    }

    /// The call that the client `peer` means by `id`.
    pub(super) fn call_of(&self, peer: PeerId, id: RpcId) -> Option<u64> {
        self.by_id.get(&(HostId(peer.0), id.client())).copied()
    }

    /// Records the end of a call, which must be the first.
    pub(super) fn end_call(&mut self, at: (SimTime, HostId), cookie: u64, ending: CallEnding) {
        let slack = self.promises.deadline_slack;
        let Some(call) = self.calls.get_mut(&cookie) else {
            let detail = format!("{ending:?} for cookie {cookie}, which no call has");
            return self.violation(at.0, Some(at.1), "events name their call", detail);
        };
        let first = call.ending == CallEnding::Open && call.client == at.1;
        if first {
            call.ending = ending;
            call.ended = at.0;
        }
        let late = at.0 > SimTime::from_protocol(call.deadline) + slack;
        let call = call.clone();
        self.require(first, at, "a call ends once", || format!("{ending:?} after {call:?}"));
        self.require(!late, at, "a call ends in time", || format!("{call:?}"));
    }
}

fn incoming(packet: &Packet, place: Placement) -> IncomingRecord {
    IncomingRecord {
        rpc: None,
        from: packet.peer,
        id: packet.id,
        total: place.total,
        here: Intervals::default(),
        packets: 0,
    }
}

/// Whether a packet of an honest peer can be dropped for this reason in the simulator.
fn possible_here(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::Overlap
            | DropReason::NotBegun
            | DropReason::TooManyGaps
            | DropReason::Duplicate
            | DropReason::UnknownRpc
            | DropReason::AlreadySent
            | DropReason::TooLong
            | DropReason::TooManyRpcs
            | DropReason::TooManyOfPeer
            | DropReason::NoMemory
            | DropReason::AlreadyExecuted
    )
}
