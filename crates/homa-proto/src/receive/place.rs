//! DATA at its receiver (Homa §3.1, §3.3): finds or creates the RPC, places the bytes, delivers
//! whole messages. Grants and priorities follow from it and are decided elsewhere.

use crate::address_validation::Execution;
use crate::config::{Completion, FULL_FRAME, Liveness};
use crate::endpoint::Endpoint;
use crate::event::{Delivered, DropReason, Event, MessageKind, Placement, RpcError, RpcHandle};
use crate::link::LinkId;
use crate::packet::{Data, Packet, PeerId};
use crate::rpc::{RpcState, incoming_message};
use crate::units::Time;

impl Endpoint {
    /// Accepts DATA; returns where its bytes belong. `idempotent`: see
    /// [`Endpoint::receive_idempotent`].
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        found: Option<RpcHandle>,
        idempotent: bool,
    ) -> Result<Placement, DropReason> {
        let meant = self.incoming_of(packet, data);
        let data = meant.as_ref().unwrap_or(data);
        // Before everything else, because it may free memory and an RPC.
        if let Some(ack) = data.ack {
            self.on_acked(packet.peer, ack.id.client());
        }
        if data.message_length == 0 || data.span.len == 0 {
            return Err(DropReason::EmptyData);
        }
        let end = data.span.offset.checked_add(data.span.len).ok_or(DropReason::BeyondEnd)?;
        if end > data.message_length {
            return Err(DropReason::BeyondEnd);
        }
        let (max_payload, link) = self
            .peer(packet.peer)
            .map_or((FULL_FRAME, LinkId::default()), |p| (p.info.max_payload, p.link()));
        // If more is outstanding, the link was kept busy by us and shows its rate.
        let more = self.grants.expected() > u64::from(data.span.len);
        self.links.get_mut(link).received(now, (data.span.len, max_payload), more);
        let cutoffs_after = self.config.policy().wire.cutoffs_after_data;
        if !cutoffs_after && self.is_validated(packet.peer) {
            self.refresh_cutoffs(now, packet, data.cutoff_version);
        }
        // A one-way message of one packet needs no RPC; in a simulation these are most messages.
        let place = if data.span.len == data.message_length && packet.is_one_way() {
            self.whole_one_way(packet, data)?
        } else {
            let handle = self.rpc_of_data(now, packet, data, found, idempotent)?;
            self.accept(now, handle, data, end)?
        };
        if cutoffs_after {
            self.refresh_cutoffs(now, packet, data.cutoff_version);
        }
        self.counters.data_received += 1;
        self.counters.data_bytes_received += u64::from(data.span.len);
        Ok(place)
    }

    fn rpc_of_data(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        found: Option<RpcHandle>,
        idempotent: bool,
    ) -> Result<RpcHandle, DropReason> {
        // A piggybacked ACK may have ended the RPC.
        let known = found.and_then(|handle| self.rpcs.get(handle));
        let found = known.and(found);
        // The request is complete already.
        if known.is_some_and(|rpc| rpc.state.has_request()) {
            return Err(DropReason::Duplicate);
        }
        let begun = known.is_some_and(|rpc| rpc.inc.is_some());
        let end = data.span.offset + data.span.len;
        // Without the first packets the message's announcement is not known, and memory for it
        // would be reserved on the sender's word.
        if !begun && end > self.grants.max_ahead() {
            return Err(self.why_not_begun(packet, found));
        }
        let first = self.first_bytes(packet.peer, data.incoming.min(data.message_length), end);
        // The address of a client that is not validated may be spoofed, so its host's share does
        // not matter.
        let greedy = !begun
            && !packet.id.from_server()
            && self.has_its_share(packet.peer)
            && self.execution(packet) != Execution::Unvalidated;
        // Memory is reserved for what is here and announced, before the message is accepted.
        if !begun && (greedy || !self.has_memory(first)) {
            if self.config.policy().grants.waits_for_memory {
                self.wait_for_memory(now, packet, data, found, first, idempotent)?;
            }
            self.send_away(now, packet, data);
            return Err(DropReason::NoMemory);
        }
        let handle = match found {
            Some(handle) => {
                self.stop_waiting(handle);
                handle
            }
            None if packet.id.from_server() => return Err(self.unknown_or_foreign(packet)),
            None => self.create_server_rpc(now, packet, data, idempotent)?,
        };
        if !begun && self.is_validated(packet.peer) {
            self.correct_sender(now, packet, data);
        }
        Ok(handle)
    }

    /// Why bytes from the middle of a message are dropped if nothing of it is here.
    fn why_not_begun(&self, packet: &Packet, found: Option<RpcHandle>) -> DropReason {
        match found {
            None if packet.id.from_server() => self.unknown_or_foreign(packet),
            None if self.execution(packet) == Execution::Executed => DropReason::AlreadyExecuted,
            _ => DropReason::NotBegun,
        }
    }

    /// A one-way message that fits in one packet ends as it begins.
    fn whole_one_way(&mut self, packet: &Packet, data: &Data) -> Result<Placement, DropReason> {
        let length = data.message_length;
        if length > self.config.max_message {
            return Err(DropReason::TooLong);
        }
        if !self.has_memory(length) {
            return Err(DropReason::NoMemory);
        }
        self.measure_message(packet.peer, length, data.incoming);
        let handle = self.rpcs.reserve();
        let message = incoming_message(handle);
        self.events.push_back(Event::Delivered(Delivered {
            rpc: handle,
            message,
            kind: MessageKind::OneWay,
            peer: packet.peer,
            remote_port: packet.remote_port,
            local_port: packet.local_port,
            id: packet.id,
            length,
            cookie: 0,
        }));
        Ok(Placement { message, total: length, offset: 0, len: length })
    }

    /// Accounts for a new incoming message in the allocation of levels.
    fn measure_message(&mut self, peer: PeerId, length: u32, incoming: u32) {
        let payload = self.peer(peer).map_or(FULL_FRAME, |p| p.info.max_payload);
        // Levels are allocated by wire bytes, because those are what the levels carry.
        let overhead = FULL_FRAME.saturating_sub(payload);
        if self.levels.record_message(length, incoming, payload, overhead) {
            self.counters.cutoff_changes += 1;
            self.update_degree();
        }
    }

    fn accept(
        &mut self,
        now: Time,
        handle: RpcHandle,
        data: &Data,
        end: u32,
    ) -> Result<Placement, DropReason> {
        let rpc = self.rpcs.get_mut(handle).ok_or(DropReason::UnknownRpc)?;
        if !rpc.state.sends_resends() {
            return Err(DropReason::WrongState);
        }
        let fresh = rpc.inc.is_none();
        if fresh {
            self.first_packet(now, handle, data)?;
        }
        let Some(rpc) = self.rpcs.get(handle) else { return Err(DropReason::TooLong) };
        let (peer, payload) = (rpc.peer, Self::payload_of(&self.peers, rpc.peer));
        let length = rpc.inc.as_ref().map_or(data.message_length, |inc| inc.bytes.length());
        let (offset, len) = (data.span.offset, data.span.len);
        let place = Placement { message: incoming_message(handle), total: length, offset, len };
        let Some(inc) = &rpc.inc else {
            self.deliver(now, handle, length);
            return Ok(place);
        };
        if end.saturating_sub(inc.grant.granted()) > self.grants.max_ahead() {
            // The grant may be from before the received bytes were dropped.
            let late = rpc.is_restarted() || self.config.completion == Completion::AtLeastOnce;
            return Err(if late { DropReason::NotBegun } else { DropReason::NotGranted });
        }
        let more = inc.held_with(end, len).saturating_sub(inc.grant.reserved());
        if more > 0 {
            self.find_memory(now, handle, more)?;
        }
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Err(DropReason::UnknownRpc) };
        let Some(inc) = &mut rpc.inc else { return Err(DropReason::WrongState) };
        let mut before = (inc.outstanding(), inc.bytes.received());
        let last_heard = rpc.loss.last_heard();
        if self.config.policy().loss.liveness == Liveness::AnyPacket {
            rpc.loss.heard(now);
        }
        inc.bytes.insert(data.span.offset, end)?;
        // In profile `default` only new bytes are a sign of life: an attacker cannot keep an RPC
        // alive by repeating old ones.
        if !fresh
            && !data.retransmit
            && let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut)
        {
            peer.cold.timing.note_data_gap(now.since(last_heard));
        }
        rpc.loss.progressed(now);
        let complete = inc.bytes.is_complete();
        if complete || len >= payload / 2 {
            inc.grant.note_progress(now);
        }
        if inc.grant.is_suspended() && !fresh {
            before.0 = inc.outstanding();
            if !rpc.is_unvalidated() {
                self.resume(handle);
            }
        }
        self.sample_rtt(now, handle, data.span.offset);
        self.account_received(handle, before, data);
        if complete {
            self.deliver(now, handle, length);
        } else {
            self.announce_prefix(handle);
        }
        self.grant(Some((handle, peer)));
        Ok(place)
    }

    /// The first packet of a message: its length is known now. A message of one packet needs no
    /// state.
    pub(crate) fn first_packet(
        &mut self,
        now: Time,
        handle: RpcHandle,
        data: &Data,
    ) -> Result<(), DropReason> {
        let length = data.message_length;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Err(DropReason::UnknownRpc) };
        if length > self.config.max_message {
            if rpc.state.is_client() {
                let max = self.config.max_message;
                self.fail(handle, RpcError::ResponseTooLong { length, max });
            } else {
                // A request that waited for memory announces another length now.
                self.end_server_rpc(handle);
            }
            return Err(DropReason::TooLong);
        }
        let (peer, sent, waits) = (rpc.peer, rpc.request_sent(), rpc.is_unvalidated());
        // The sender may hold grants from before we dropped its bytes, and use them.
        if !rpc.state.is_client() {
            rpc.set_restarted(data.retransmit || data.span.offset > 0);
        }
        // Homa §3.6: the bytes of this response are no longer a mere possibility.
        if rpc.state == RpcState::ClientOutgoing {
            rpc.state = RpcState::ClientIncoming;
            let pending = rpc.take_pending_unscheduled();
            self.grants.response_begins(pending);
            // A loss says nothing about how slow the server is, nor does the time that the request
            // needed to leave.
            let lost = rpc.is_restarted() || data.retransmit || sent == Time::MAX;
            if let Some(peer) = self.peer_mut(peer).filter(|_| !lost) {
                peer.cold.timing.note_response_time(now.since(sent));
            }
        }
        self.measure_message(peer, length, data.incoming);
        // It is delivered at once, unless its client has to answer a challenge first.
        if data.span.len == length && !waits {
            return Ok(());
        }
        self.begin_incoming(handle, data);
        self.events.push_back(Event::Started {
            rpc: handle,
            message: incoming_message(handle),
            total: length,
        });
        Ok(())
    }

    pub(crate) fn announce_prefix(&mut self, handle: RpcHandle) {
        if !self.config.readable_events && !self.rpcs.reads_early() {
            return;
        }
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let (kind, cookie, waits) = (rpc.state.receives(), rpc.cookie(), rpc.is_unvalidated());
        let Some(inc) = rpc.inc.as_mut() else { return };
        // A reader is told of a request once its client is validated.
        let wanted = if inc.has_reader() { !waits } else { self.config.readable_events };
        if !wanted {
            return;
        }
        if let Some(offset) = inc.announce_prefix() {
            let (rpc, message) = (handle, incoming_message(handle));
            self.events.push_back(Event::Readable { rpc, message, kind, offset, cookie });
        }
    }

    /// A message is complete: its bytes go to the application.
    pub(crate) fn deliver(&mut self, now: Time, handle: RpcHandle, length: u32) {
        let Some(rpc) = self.rpcs.get(handle).filter(|rpc| !rpc.is_unvalidated()) else { return };
        // The record of a request of one packet was read a moment ago.
        let request = rpc.state.receives() == MessageKind::Request && rpc.inc.is_some();
        let begun = rpc.is_begun_early();
        let (peer, id) = (rpc.peer, rpc.id);
        // The client may have moved while the request arrived.
        if request && !begun && self.ran_elsewhere(peer, id) {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return;
        }
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let inc = rpc.inc.take();
        let (state, peer) = (rpc.state, rpc.peer);
        let kind = state.receives();
        self.events.push_back(Event::Delivered(Delivered {
            rpc: handle,
            message: incoming_message(handle),
            kind,
            peer,
            remote_port: rpc.ports().1,
            local_port: rpc.ports().0,
            id: rpc.id,
            length,
            cookie: rpc.cookie(),
        }));
        if let Some(inc) = inc {
            self.end_incoming(handle, (peer, false), inc);
        }
        match kind {
            MessageKind::Response => self.complete_client(handle),
            MessageKind::Request => {
                // The bytes that a reader took are the application's already.
                if !begun {
                    self.charge_unaccepted(peer, length);
                }
                self.begin_service(now, handle);
            }
            MessageKind::OneWay => {
                self.forget(handle);
            }
        }
    }
}
