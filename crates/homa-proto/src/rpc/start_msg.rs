//! Messages that are announced with START_MSG: public forks of the kernel module send nothing else
//! of a long message before its first grant.
//!
//! Invariant: START_MSG is sent only to peers that sent one.

use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Data, MessageId, Packet, PeerId, Span};
use crate::rpc::RpcState;
use crate::units::Time;

impl Endpoint {
    /// True if a peer speaks the wire with START_MSG. It shows that by sending one.
    pub fn speaks_start_msg(&self, peer: PeerId) -> bool {
        self.config.start_msg.is_some()
            && self.peer(peer).is_some_and(|peer| peer.cold.speaks_start_msg())
    }

    /// DATA shows which wire its sender has, if it says how much comes unasked and not all does.
    /// Returns the DATA as it is meant, if that differs: without `incoming`, all of it comes.
    #[inline]
    pub(crate) fn incoming_of(&mut self, packet: &Packet, data: &Data) -> Option<Data> {
        let starts = self.config.start_msg.is_some();
        if starts && data.incoming == 0 || !self.config.policy().wire.grants_and_cutoffs {
            return Some(Data { incoming: data.message_length, ..*data });
        }
        if starts
            && data.incoming < data.message_length
            && let Some(peer) = self.peer_mut(packet.peer)
        {
            peer.cold.note_start_msg(false);
        }
        None
    }

    /// START_MSG: the message begins without a byte, and waits for its grant.
    pub(crate) fn on_start_msg(
        &mut self,
        now: Time,
        packet: &Packet,
        found: Option<RpcHandle>,
        length: u32,
    ) -> Result<(), DropReason> {
        if self.config.start_msg.is_none() {
            return Err(DropReason::UnknownType);
        }
        if length == 0 {
            return Err(DropReason::EmptyData);
        }
        if let Some(peer) = self.peer_mut(packet.peer) {
            peer.cold.note_start_msg(true);
        }
        let data = Data {
            span: Span { message: MessageId(0), offset: 0, len: 0 },
            message_length: length,
            incoming: 0,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            incast: None,
        };
        let handle = match found {
            None if packet.id.from_server() => return Err(self.unknown_or_foreign(packet)),
            None => self.create_server_rpc(now, packet, &data, false)?,
            Some(handle) => handle,
        };
        let Some(rpc) = self.rpcs.get(handle) else { return Err(DropReason::UnknownRpc) };
        // A copy, or it is late.
        if rpc.inc.is_some() || !rpc.state.sends_resends() || rpc.state == RpcState::ClientIncoming
        {
            return Err(DropReason::Duplicate);
        }
        self.stop_waiting(handle);
        self.first_packet(now, handle, &data)?;
        if let Some(rpc) = self.rpcs.get_mut(handle) {
            rpc.loss.progressed(now);
        }
        // Homa §3.3: for a message without unscheduled bytes, this takes the place of DATA.
        self.grant(Some((handle, packet.peer)));
        Ok(())
    }

    /// Bytes of a message of `length` bytes that go to a peer unasked, of at most `unscheduled`.
    pub(crate) fn unasked(&self, peer: PeerId, length: u32, unscheduled: u32) -> u32 {
        let waits = length > unscheduled && self.speaks_start_msg(peer);
        if waits { 0 } else { unscheduled }
    }

    /// Announces the message of an RPC if nothing of it was granted yet; true then.
    #[inline]
    pub(crate) fn announce(&mut self, handle: RpcHandle) -> bool {
        // Otherwise something is always granted.
        if self.config.start_msg.is_none() {
            return false;
        }
        let Some(rpc) = self.rpcs.get(handle) else { return false };
        let (waits, length) = (rpc.out.exists() && rpc.out.granted == 0, rpc.out.length);
        if waits {
            self.queue_control(handle, Body::StartMsg { length });
        }
        waits
    }
}
