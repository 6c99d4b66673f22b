//! Basic sender behaviour (Homa §3.2): unscheduled bytes at once, scheduled bytes as granted, SRPT
//! over all messages that may send, control packets before all data (in `endpoint.rs`).
//!
//! Invariants: packet boundaries are a function of the message and the packet size of its peer, so
//! a retransmission repeats the original packets (Linux §2.3); the queues hold at most one valid
//! entry per message (`sender/queues.rs`).
//!
//! Where the packet size changed while messages were in progress, a retransmission holds exactly
//! the bytes requested for: they are gaps, whose ends are where packets that arrived began or
//! ended, and a packet that overlaps those is discarded whole (Linux §2.3).

pub(crate) mod levels;
mod packet_size;
mod queues;
mod srpt;

use crate::config::{Config, GrantedLevel, UnscheduledLevel, UnscheduledLimit};
use crate::endpoint::Endpoint;
use crate::link::{LinkId, Links};
use crate::packet::{AckEntry, Body, Data, Packet, PeerId, Span};
use crate::peer::Peer;
use crate::rpc::{RpcState, outgoing_message};
use crate::units::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;
use levels::GrantedLevels;

pub(crate) use queues::SendQueue;

/// Ranges kept for retransmission per message, enough for every other packet of the kernel module's
/// longest; more are merged into one.
const MAX_RESEND_RANGES: usize = 512;
/// Most bytes of a message that go unscheduled, whatever RTTbytes is: what the kernel module's
/// author found best at 25 and 100 Gbit/s. PeerCold would let a few senders fill a switch port's
/// buffer unasked.
pub(crate) const MAX_UNSCHEDULED: u32 = 60_000;

/// Message bytes per packet to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketSizes {
    unscheduled: u32,
    scheduled: u32,
    /// Some packets may have been of other sizes.
    changed: bool,
}

impl PacketSizes {
    pub(crate) fn new(config: &Config, peer: &Peer) -> Self {
        let unscheduled = peer.info.max_payload;
        let scheduled = unscheduled.saturating_add(config.scheduled_extra);
        Self { unscheduled, scheduled, changed: false }
    }

    /// For ranges that the receiver asks for again.
    pub(crate) fn again(config: &Config, peer: &Peer) -> Self {
        Self { changed: peer.cold.payload_changed, ..Self::new(config, peer) }
    }
}

/// [`OutgoingMessage::queued`] of a message that is not in the SRPT queue: no message has this much
/// left.
const NOT_QUEUED: u32 = u32::MAX;

/// Ranges to send again, ascending.
type Ranges = Vec<ResendRange>;

/// A range to send again, on packet boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ResendRange {
    start: u32,
    end: u32,
    /// Where the range ends that the receiver requested for.
    requested: u32,
}

/// What a message sends next.
struct NextRange {
    start: u32,
    end: u32,
    /// Sent again: where the range ends that the receiver requested for.
    again: Option<u32>,
}

/// An outgoing message.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OutgoingMessage {
    pub(crate) length: u32,
    /// Bytes before this go without a grant.
    pub(crate) unscheduled: u32,
    /// All bytes before this may be sent.
    pub(crate) granted: u32,
    /// All bytes before this were sent at least once.
    pub(crate) sent: u32,
    /// Key of the valid entry in the SRPT queue, or [`NOT_QUEUED`].
    queued: u32,
    in_fifo: bool,
    /// What its peer is reached by.
    pub(crate) link: LinkId,
    /// Level of retransmitted bytes, from the last RESEND.
    pub(crate) resend_priority: u8,
    /// Bytes in its first packet that are not the message's.
    head: u8,
    /// Order of submission.
    pub(crate) age: u64,
    /// Levels of granted bytes.
    levels: GrantedLevels,
    /// Absent while nothing was lost, as nearly always.
    resend: Option<Box<Ranges>>,
}

impl Default for OutgoingMessage {
    fn default() -> Self {
        Self::new(0, 0, 0, LinkId::default())
    }
}

impl OutgoingMessage {
    /// A message of `length` bytes, the `age`th.
    pub(crate) fn new(length: u32, unscheduled: u32, age: u64, link: LinkId) -> Self {
        Self {
            length,
            unscheduled,
            granted: unscheduled,
            sent: 0,
            queued: NOT_QUEUED,
            in_fifo: false,
            link,
            resend_priority: 0,
            head: 0,
            age,
            levels: GrantedLevels::default(),
            resend: None,
        }
    }

    /// The same where the first packet holds `head` bytes beside the message: unscheduled bytes
    /// still fill packets.
    pub(crate) fn with_head(self, head: u8) -> Self {
        let unscheduled = match self.unscheduled < self.length {
            true => self.unscheduled.saturating_sub(head.into()).max(1),
            false => self.unscheduled,
        };
        Self { head, unscheduled, granted: unscheduled, ..self }
    }

    /// True once a message was submitted.
    pub(crate) const fn exists(&self) -> bool {
        self.length > 0
    }

    pub(crate) const fn fully_sent(&self) -> bool {
        self.sent >= self.length && self.resend.is_none()
    }

    /// True while bytes may be sent that were not, or must be again.
    pub(crate) const fn has_bytes_to_send(&self) -> bool {
        self.may_send_more() || self.resend.is_some()
    }

    /// True while bytes may be sent for the first time.
    pub(crate) const fn may_send_more(&self) -> bool {
        self.sent < self.granted && self.sent < self.length
    }

    const fn is_queued(&self) -> bool {
        self.queued != NOT_QUEUED
    }

    /// Bytes left: what SRPT orders by.
    fn remaining(&self) -> u32 {
        let again: u32 =
            self.resend.iter().flat_map(|ranges| ranges.iter()).map(|r| r.end - r.start).sum();
        self.length - self.sent + again
    }

    /// Granted bytes up to `offset`, at `level`.
    pub(crate) fn grant(&mut self, offset: u32, level: u8, rule: GrantedLevel) {
        let offset = offset.min(self.length);
        match rule {
            GrantedLevel::AllUnsent => self.levels = GrantedLevels::all(level),
            GrantedLevel::OwnBytes if offset > self.granted => {
                self.levels.push(self.sent, offset, level);
            }
            GrantedLevel::OwnBytes => {}
        }
        self.granted = self.granted.max(offset);
    }

    /// Start of the part of the message that holds `offset`, its end, and its bytes per packet. A
    /// packet boundary is forced at the unscheduled limit.
    fn part_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32, u32) {
        if offset < self.unscheduled {
            (0, self.unscheduled.min(self.length), sizes.unscheduled)
        } else {
            (self.unscheduled, self.length, sizes.scheduled)
        }
    }

    /// The original packet that holds `offset`.
    fn packet_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32) {
        let (base, limit, payload) = self.part_at(sizes, offset);
        // As if the head were the message's first bytes.
        let head = if base == 0 { u32::from(self.head).min(payload - 1) } else { 0 };
        let start = base + (offset - base + head) / payload * payload;
        (start.saturating_sub(head), start.saturating_add(payload - head).min(limit))
    }

    /// Schedules a range of what was sent for sending again, on packet boundaries; false when
    /// nothing of it was sent yet.
    pub(crate) fn resend(&mut self, sizes: PacketSizes, range: (u32, u32), priority: u8) -> bool {
        let (start, end) = (range.0, range.1.min(self.sent));
        if start >= end {
            return false;
        }
        let (first, last) = match sizes.changed {
            true => (start, end),
            false => {
                (self.packet_at(sizes, start).0, self.packet_at(sizes, end - 1).1.min(self.sent))
            }
        };
        self.resend_priority = priority;
        let ranges = self.resend.get_or_insert_default();
        ranges.push(ResendRange { start: first, end: last, requested: end });
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
                kept.requested = kept.requested.max(next.requested);
            }
            touches
        });
        if ranges.len() > MAX_RESEND_RANGES {
            let last = ranges[ranges.len() - 1];
            let hull = ResendRange { start: ranges[0].start, ..last };
            ranges.clear();
            ranges.push(hull);
        }
        true
    }

    /// Forgets that anything was sent: the server says it never saw the request.
    pub(crate) fn restart(&mut self) {
        self.resend = None;
        self.sent = 0;
        self.granted = self.unscheduled;
    }

    /// Takes the next packet.
    fn take(&mut self, sizes: PacketSizes) -> NextRange {
        if let Some(accepted) = self.take_again(sizes) {
            return accepted;
        }
        // What was sent ends where a packet does.
        let start = self.sent;
        let (_, limit, payload) = self.part_at(sizes, start);
        let head = if start == 0 { u32::from(self.head).min(payload - 1) } else { 0 };
        self.sent = start.saturating_add(payload - head).min(limit);
        NextRange { start, end: self.sent, again: None }
    }

    fn take_again(&mut self, sizes: PacketSizes) -> Option<NextRange> {
        let ResendRange { start, end: limit, requested } = *self.resend.as_ref()?.first()?;
        let end = self.packet_at(sizes, start).1.min(limit);
        let ranges = self.resend.as_mut()?;
        if end < limit {
            ranges[0].start = end;
        } else {
            ranges.remove(0);
            if ranges.is_empty() {
                self.resend = None;
            }
        }
        Some(NextRange { start, end, again: Some(requested) })
    }
}

/// How many bytes of a message to `peer` go unscheduled (Homa §3.2). The user profile fills
/// packets.
pub(crate) fn unscheduled_limit(config: &Config, peer: &Peer) -> u32 {
    let limit = match config.unscheduled {
        UnscheduledLimit::RttBytes => peer.rtt_bytes.min(MAX_UNSCHEDULED),
        UnscheduledLimit::Fixed(bytes) => bytes,
    };
    let limit = limit.min(peer.unscheduled_cap);
    match config.profile.policy().grants.whole_packets {
        true => (limit / peer.info.max_payload).max(1) * peer.info.max_payload,
        false => limit.max(1),
    }
}

/// Most bytes of a message that any sender of this profile sends unscheduled, but for what is left
/// of a packet.
pub(crate) fn most_unscheduled(config: &Config) -> u32 {
    match config.unscheduled {
        UnscheduledLimit::RttBytes => MAX_UNSCHEDULED,
        UnscheduledLimit::Fixed(bytes) => bytes.max(MAX_UNSCHEDULED),
    }
}

impl Endpoint {
    /// A new outgoing message of `length` bytes for a peer.
    pub(crate) fn outgoing(
        &mut self,
        peer: PeerId,
        length: u32,
        unscheduled: u32,
    ) -> OutgoingMessage {
        let link = self.peer(peer).map_or(LinkId::default(), |peer| peer.link);
        OutgoingMessage::new(length, unscheduled.min(length), self.sender.age(), link)
    }

    /// The next DATA packet for one of `links`.
    pub(crate) fn next_data(&mut self, now: Time, links: Links) -> Option<Packet> {
        let handle = self.sender.pick(&mut self.rpcs, links)?;
        let rpc = self.rpcs.get_mut(handle)?;
        let peer = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut)?;
        let NextRange { start, end, again } = rpc.out.take(PacketSizes::new(&self.config, peer));
        let retransmit = again.is_some();
        self.sender.settle(handle, &mut rpc.out);
        let policy = self.config.policy();
        let begins_to_wait = !retransmit && !rpc.out.may_send_more();
        if policy.loss.silence_starts_when_sent
            && rpc.state == RpcState::ClientOutgoing
            && begins_to_wait
        {
            rpc.last_heard = now;
        }
        let out = &rpc.out;
        let priority = if retransmit {
            out.resend_priority
        } else if start < out.unscheduled {
            let by = match self.config.unscheduled_level {
                UnscheduledLevel::MessageLength => out.length,
                UnscheduledLevel::BytesLeft => out.length - start,
            };
            self.levels.unscheduled_priority(self.levels.cutoffs_of(peer), by)
        } else {
            out.levels.at(start).min(self.levels.top())
        };
        if retransmit {
            self.counters.data_resent += 1;
        } else {
            self.counters.data_sent += 1;
            self.counters.data_bytes_sent += u64::from(end - start);
        }
        if self.config.measure_rtt_bytes
            && start == 0
            && out.unscheduled < out.length
            && !retransmit
        {
            peer.cold.rtt.begin(now, out);
        }
        let ack: Option<AckEntry> = peer.pop_ack(policy.completion.newest_first);
        let one_way = rpc.state == RpcState::OneWayOutgoing;
        let incast = if rpc.state.is_client() && !one_way { rpc.response_limit } else { None };
        let packet = Packet {
            peer: rpc.peer,
            priority,
            local_port: rpc.local_port,
            remote_port: rpc.remote_port,
            id: rpc.wire_id(),
            body: Body::Data(Data {
                span: Span { message: outgoing_message(handle), offset: start, len: end - start },
                message_length: out.length,
                incoming: match again {
                    None => out.unscheduled,
                    Some(requested) if policy.wire.again_as_asked => requested,
                    Some(_) => out.unscheduled.max(end),
                },
                ack,
                cutoff_version: peer.cutoff_version,
                retransmit,
                incast,
            }),
        };
        if rpc.out.fully_sent() {
            self.message_sent(now, handle);
        }
        Some(packet)
    }
}
