//! DATA leaves (Homa §3.2): the next packet of the message with the fewest bytes left.

use super::message::{NextRange, OutgoingMessage, PacketSizes};
use crate::config::UnscheduledLevel;
use crate::endpoint::Endpoint;
use crate::link::{LinkId, Links};
use crate::packet::{AckEntry, Body, Data, Packet, PeerId, Span};
use crate::peer::Peer;
use crate::priority::Levels;
use crate::rpc::{RpcState, outgoing_message};
use crate::units::Time;

impl Endpoint {
    /// A new outgoing message of `length` bytes for a peer.
    pub(crate) fn outgoing(
        &mut self,
        peer: PeerId,
        length: u32,
        unscheduled: u32,
    ) -> OutgoingMessage {
        let link = self.peer(peer).map_or(LinkId::default(), |peer| peer.link());
        OutgoingMessage::new(length, unscheduled.min(length), self.send_queue.age(), link)
    }

    /// The next DATA packet for one of `links`.
    pub(crate) fn next_data(&mut self, now: Time, links: Links) -> Option<Packet> {
        let handle = self.send_queue.pick(&mut self.rpcs, links)?;
        let rpc = self.rpcs.get_mut(handle)?;
        let peer = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut)?;
        let NextRange { start, end, requested } =
            rpc.out.take(PacketSizes::new(&self.config, peer));
        let retransmit = requested.is_some();
        self.send_queue.settle(handle, &mut rpc.out);
        let policy = self.config.policy();
        let begins_to_wait = !retransmit && !rpc.out.may_send_more();
        // The kernel module's clients start to wait when all that may be sent was sent.
        if policy.loss.silence_starts_when_sent
            && rpc.state == RpcState::ClientOutgoing
            && begins_to_wait
        {
            rpc.loss.heard(now);
        }
        let out = &rpc.out;
        let range = (start, retransmit);
        let priority = level(&self.levels, self.config.unscheduled_level, peer, out, range);
        if retransmit {
            self.counters.data_resent += 1;
        } else {
            self.counters.data_sent += 1;
            self.counters.data_bytes_sent += u64::from(end - start);
        }
        // A message without scheduled bytes gets no GRANT, and a retransmission would measure the
        // loss.
        if self.config.measure_rtt_bytes
            && start == 0
            && out.unscheduled < out.length
            && !retransmit
        {
            peer.cold.rtt.begin(now, out.age);
        }
        // An ACK that is carried by DATA costs no packet.
        let ack: Option<AckEntry> = peer.pop_ack(policy.completion.newest_first);
        let one_way = rpc.state == RpcState::OneWayOutgoing;
        let incast = if rpc.state.is_client() && !one_way { rpc.response_limit() } else { None };
        let (local_port, remote_port) = rpc.ports();
        let packet = Packet {
            peer: rpc.peer,
            priority,
            local_port,
            remote_port,
            id: rpc.wire_id(),
            body: Body::Data(Data {
                span: Span { message: outgoing_message(handle), offset: start, len: end - start },
                message_length: out.length,
                incoming: match requested {
                    _ if !policy.wire.grants_and_cutoffs || peer.cold.speaks_start_msg() => 0,
                    None => out.unscheduled,
                    Some(requested) if policy.wire.again_as_asked => requested,
                    Some(_) => out.unscheduled.max(end),
                },
                ack,
                cutoff_version: match policy.wire.grants_and_cutoffs {
                    true => peer.cutoff_version(),
                    false => 0,
                },
                retransmit,
                incast,
            }),
        };
        // All bytes left, and none has to be retransmitted.
        if rpc.out.fully_sent() {
            self.message_sent(now, handle);
        }
        Some(packet)
    }
}

/// The level of DATA from `start` (Homa §3.4). The receiver chose it, in its RESEND, in its cutoffs
/// or in its GRANT.
#[inline]
fn level(
    levels: &Levels,
    rule: UnscheduledLevel,
    peer: &Peer,
    out: &OutgoingMessage,
    (start, retransmit): (u32, bool),
) -> u8 {
    // The RESEND names the level of what it asks for.
    if retransmit {
        return out.resend_priority;
    }
    // Scheduled: the level of the GRANT that allowed this byte.
    if start >= out.unscheduled {
        return out.levels.at(start);
    }
    // Homa §3.4: unscheduled bytes use the level that the receiver's cutoffs give.
    let length = match rule {
        UnscheduledLevel::MessageLength => out.length,
        UnscheduledLevel::BytesLeft => out.length - start,
    };
    levels.unscheduled_priority(levels.cutoffs_of(peer), length)
}
