//! What a capture tells about one RPC.
//!
//! A capture is taken somewhere: packets may be missing, come twice, or out of order, and its clock
//! may step. So nothing here depends on order but what says so; a message is complete when all its
//! bytes were seen, and how an RPC ended is named with the reservation that belongs to it.
//!
//! Memory: an [`Rpc`] has a fixed size but for the ranges of its two messages, at most
//! [`MAX_RANGES`] each.

use std::fmt;
use std::net::SocketAddr;

use homa_proto::{Body, Data, Packet, RpcId};

use super::finding::{Encapsulation, IcmpRefusal};

/// Separate ranges of a message that are kept. A message that needs more has lost most of its
/// packets.
const MAX_RANGES: usize = 256;
/// Silence after which an RPC is called silent, nanoseconds: as long as the kernel module waits.
const SILENCE: i64 = 100_000_000;
/// RESENDs without an answer after which a peer is called unresponsive.
const UNANSWERED: u32 = 2;

/// One direction of an RPC.
#[derive(Clone, Debug, Default)]
pub struct PcapMessage {
    /// Bytes, as the first packet says.
    pub length: Option<u32>,
    /// DATA packets.
    pub packets: u64,
    /// Of them, those marked as sent again.
    pub retransmitted: u64,
    /// Of them, those not marked whose bytes had all been captured before.
    pub duplicates: u64,
    /// Distinct bytes captured.
    pub captured: u64,
    /// Bytes that were sent without a grant, as the first packet says.
    pub unscheduled: Option<u32>,
    /// When its first DATA packet was captured, nanoseconds.
    pub first: Option<i64>,
    /// When its last byte was captured, nanoseconds.
    pub completed: Option<i64>,
    /// GRANTs for it.
    pub grants: u64,
    /// The highest offset granted.
    pub granted: Option<u32>,
    /// The offset of the GRANT captured last, and its level.
    pub latest_grant: Option<(u32, u8)>,
    /// RESENDs that asked for it.
    pub resends: u64,
    /// BUSYs of its sender.
    pub busys: u64,
    /// DATA packets by level of the IP header: unscheduled ones, all others.
    pub levels: [[u64; 8]; 2],
    ranges: Vec<(u32, u32)>,
}

impl PcapMessage {
    /// All bytes were seen.
    pub fn is_complete(&self) -> bool {
        self.length.is_some_and(|length| self.captured >= u64::from(length))
    }

    /// Its first byte was seen.
    fn has_start(&self) -> bool {
        self.is_complete() || self.ranges.first().is_some_and(|range| range.0 == 0)
    }

    /// Bytes are missing in front of some that were seen.
    fn has_gaps(&self) -> bool {
        !self.is_complete()
            && self.ranges.last().is_some_and(|range| self.ranges.len() > 1 || range.0 > 0)
    }

    /// Bytes granted beyond the unscheduled ones.
    pub fn granted_bytes(&self) -> u64 {
        let free = self.unscheduled.unwrap_or(0);
        self.granted.map_or(0, |granted| u64::from(granted.saturating_sub(free)))
    }

    /// Takes a DATA packet in; true for bytes that were seen before, without a mark.
    fn data(&mut self, data: &Data, priority: u8, time: Option<i64>) -> bool {
        self.packets += 1;
        self.length.get_or_insert(data.message_length);
        if !data.retransmit {
            let unscheduled = data.incoming.min(data.message_length);
            self.unscheduled.get_or_insert(unscheduled);
        }
        self.first = earliest(self.first, time);
        self.levels[usize::from(!data.is_unscheduled())][usize::from(priority & 7)] += 1;
        let (start, end) = (data.span.offset, data.span.offset.saturating_add(data.span.len));
        let fresh = self.cover(start, end);
        self.captured += u64::from(fresh.unwrap_or(0));
        if fresh > Some(0) && self.is_complete() {
            self.completed = time;
            self.ranges = Vec::new();
        }
        let duplicate = fresh == Some(0) && !data.retransmit;
        self.retransmitted += u64::from(data.retransmit);
        self.duplicates += u64::from(duplicate);
        duplicate
    }

    /// Adds a range; returns how many of its bytes are new, `None` when there is no room to tell.
    fn cover(&mut self, start: u32, end: u32) -> Option<u32> {
        if self.completed.is_some() || self.is_complete() || end <= start {
            return Some(0);
        }
        let from = self.ranges.partition_point(|range| range.1 < start);
        let to = self.ranges.partition_point(|range| range.0 <= end);
        if from == to && self.ranges.len() >= MAX_RANGES {
            return None;
        }
        let old = &self.ranges[from..to];
        let before: u32 = old.iter().map(|(start, end)| end - start).sum();
        let merged = old.iter().fold((start, end), |all, r| (all.0.min(r.0), all.1.max(r.1)));
        self.ranges.splice(from..to, [merged]);
        Some(merged.1 - merged.0 - before)
    }
}

fn earliest(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

/// How an RPC ended, as far as the capture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response is complete and its client said so.
    Acked,
    /// The response is complete.
    Complete,
    /// A one-way message is complete.
    OneWay,
    /// Its client is done with it, and the capture lacks its beginning, and some of the response.
    AckedBefore,
    /// Its client is done with it, and the capture lacks packets in the middle of its messages, or
    /// the ends of packets.
    AckedGaps,
    /// Its client is done with it, but not all of the response was captured, nor anything that
    /// shows that it was sent: cancelled, unless the capture lacks packets.
    AckedUnseen,
    /// Refused by ICMP.
    Unreachable(IcmpRefusal),
    /// The last word: the peer does not know it.
    Unknown,
    /// The last RESENDs, this many, were not answered.
    Unanswered {
        /// Asked by the server for the request.
        by_server: bool,
        /// How many.
        resends: u32,
    },
    /// No packet followed for this many nanoseconds until the capture ended.
    Silent(i64),
    /// Under way when the capture ended.
    Open,
}

impl Ending {
    /// Its name in JSON and in counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Complete => "complete",
            Self::OneWay => "one_way",
            Self::AckedBefore => "acked_before",
            Self::AckedGaps => "acked_gaps",
            Self::AckedUnseen => "acked_unseen",
            Self::Unreachable(_) => "unreachable",
            Self::Unknown => "unknown",
            Self::Unanswered { .. } => "unanswered",
            Self::Silent(_) => "silent",
            Self::Open => "open",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acked => f.write_str("acked"),
            Self::Complete => f.write_str("complete, no ack seen"),
            Self::OneWay => f.write_str("complete, one-way"),
            Self::AckedBefore => f.write_str("acked, began before the capture"),
            Self::AckedGaps => f.write_str("acked, the capture lacks packets of it"),
            Self::AckedUnseen => f.write_str("acked without a complete response: cancelled?"),
            Self::Unreachable(refusal) => write!(f, "ICMP {refusal}"),
            Self::Unknown => f.write_str("RPC_UNKNOWN"),
            Self::Unanswered { by_server, resends } => {
                let who = if *by_server { "client" } else { "server" };
                write!(f, "{who} silent: {resends} RESENDs unanswered")
            }
            Self::Silent(nanos) => write!(f, "silent for {} ms", nanos / 1_000_000),
            Self::Open => f.write_str("open at the capture's end"),
        }
    }
}

/// One RPC.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// Its client.
    pub client: SocketAddr,
    /// Its server.
    pub server: SocketAddr,
    /// Its id, as the client writes it.
    pub id: RpcId,
    /// What carried its first packet.
    pub encapsulation: Encapsulation,
    /// Frame of its first packet, counted from 1.
    pub frame: u64,
    /// Time of its first packet, nanoseconds.
    pub first: Option<i64>,
    /// Time of its last packet, nanoseconds.
    pub last: Option<i64>,
    /// Packets of all types that name it in their header.
    pub packets: u64,
    /// A message without a response: the request is all there is.
    pub one_way: bool,
    /// From client to server.
    pub request: PcapMessage,
    /// From server to client.
    pub response: PcapMessage,
    /// RPC_UNKNOWNs, by either side.
    pub unknowns: u64,
    /// NEED_ACKs.
    pub need_acks: u64,
    /// Acknowledgements, in ACK packets or on DATA of other RPCs.
    pub acks: u64,
    /// A refusal of one of its packets.
    pub refusal: Option<IcmpRefusal>,
    /// RESENDs since the peer was heard: the client's, the server's.
    waiting: [u32; 2],
    /// The last packet was RPC_UNKNOWN.
    forgotten: bool,
    /// The capture kept too little of one of its packets.
    cut: bool,
}

impl Rpc {
    /// An RPC without any known packet.
    pub fn new(
        (client, server): (SocketAddr, SocketAddr),
        id: RpcId,
        encapsulation: Encapsulation,
        frame: u64,
    ) -> Self {
        Self {
            client,
            server,
            id: id.client(),
            encapsulation,
            frame,
            first: None,
            last: None,
            packets: 0,
            one_way: false,
            request: PcapMessage::default(),
            response: PcapMessage::default(),
            unknowns: 0,
            need_acks: 0,
            acks: 0,
            refusal: None,
            waiting: [0; 2],
            forgotten: false,
            cut: false,
        }
    }

    /// Notes that a packet names it.
    fn touch(&mut self, time: Option<i64>) {
        self.packets += 1;
        self.first = earliest(self.first, time);
        self.last = self.last.max(time);
    }

    /// Notes a truncated packet that names it.
    pub fn cut(&mut self, time: Option<i64>) {
        self.touch(time);
        self.cut = true;
    }

    /// Takes a packet in; true for a duplicate.
    pub fn observe(&mut self, packet: &Packet, time: Option<i64>) -> bool {
        let by_server = packet.id.from_server();
        self.touch(time);
        self.waiting[usize::from(!by_server)] = 0;
        self.forgotten = matches!(packet.body, Body::RpcUnknown { .. });
        let (own, other) = if by_server {
            (&mut self.response, &mut self.request)
        } else {
            (&mut self.request, &mut self.response)
        };
        match &packet.body {
            Body::Data(data) => return own.data(data, packet.priority, time),
            &Body::Grant { offset, priority } => {
                other.grants += 1;
                other.granted = other.granted.max(Some(offset));
                other.latest_grant = Some((offset, priority));
            }
            Body::Resend { .. } => {
                other.resends += 1;
                self.waiting[usize::from(by_server)] += 1;
            }
            Body::Busy { .. } => own.busys += 1,
            Body::RpcUnknown { .. } => self.unknowns += 1,
            Body::NeedAck | Body::Challenge { .. } => self.need_acks += 1,
            Body::Ack(_) | Body::Proof(_) => self.acks += 1,
            Body::Cutoffs { .. } | Body::Freeze | Body::StartMsg { .. } => {}
        }
        false
    }

    /// Nanoseconds from the request's first packet to the response's first.
    pub fn first_byte(&self) -> Option<i64> {
        interval(self.request.first, self.response.first)
    }

    /// Nanoseconds from the request's first packet to the response's last byte, or to that of a
    /// one-way message.
    pub fn latency(&self) -> Option<i64> {
        interval(self.request.first, self.last_message().completed)
    }

    /// True when more packets of it are not expected.
    pub fn is_over(&self) -> bool {
        self.acks > 0 || self.last_message().is_complete() || self.refusal.is_some()
    }

    /// The message with which it ends.
    fn last_message(&self) -> &PcapMessage {
        if self.one_way { &self.request } else { &self.response }
    }

    /// The capture shows its packets, but not the beginning of its request: it was under way when
    /// the capture began, or the capture lost packets.
    pub fn began_before(&self) -> bool {
        !self.cut && !self.request.has_start()
    }

    /// The capture lacks packets of it, or parts of packets.
    fn has_gaps(&self) -> bool {
        // A server does not answer before the request is complete.
        let early = self.response.packets > 0 && !self.request.is_complete();
        self.cut || early || self.request.has_gaps() || self.response.has_gaps()
    }

    /// How it ended, in a capture whose last frame is of the given time.
    pub fn ending(&self, capture_end: Option<i64>) -> Ending {
        let silence = interval(self.last, capture_end).unwrap_or(0);
        match (self.last_message().is_complete(), self.refusal) {
            (true, _) if self.one_way => Ending::OneWay,
            (true, _) if self.acks > 0 => Ending::Acked,
            (true, _) => Ending::Complete,
            (_, Some(refusal)) => Ending::Unreachable(refusal),
            _ if self.acks > 0 && self.began_before() => Ending::AckedBefore,
            _ if self.acks > 0 && self.has_gaps() => Ending::AckedGaps,
            _ if self.acks > 0 => Ending::AckedUnseen,
            _ if self.forgotten => Ending::Unknown,
            _ => match self.waiting {
                [resends, _] if resends >= UNANSWERED => {
                    Ending::Unanswered { by_server: false, resends }
                }
                [_, resends] if resends >= UNANSWERED => {
                    Ending::Unanswered { by_server: true, resends }
                }
                _ if silence >= SILENCE => Ending::Silent(silence),
                _ => Ending::Open,
            },
        }
    }
}

/// Time between two captured packets; none when a clock stepped back in between.
fn interval(from: Option<i64>, to: Option<i64>) -> Option<i64> {
    to?.checked_sub(from?).filter(|nanos| *nanos >= 0)
}
