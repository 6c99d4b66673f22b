//! Counts over a capture: every frame is in exactly one of them.

use std::collections::BTreeMap;

use homa_proto::wire::kind;
use homa_proto::{Body, DropReason};
use serde::Serialize;

use super::dissect::Datagrams;
use super::finding::{Finding, Homa, Known};
use super::frame::{Content, Unreadable};
use super::rpc::{Ending, Rpc};

/// Counts by name.
pub type Counts = BTreeMap<String, u64>;

/// Counts over a capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Frames in the file.
    pub frames: u64,
    /// Frames with at least one Homa packet, malformed ones included.
    pub homa_frames: u64,
    /// Datagrams of Homa over UDP, as they are on the network.
    pub datagrams: u64,
    /// Frames that hold several of them: a kernel's GSO or GRO.
    pub trains: u64,
    /// Frames that may: the capture kept too little of them to tell.
    pub unclear_trains: u64,
    /// Datagrams that were captured before, on another interface or as the network's duplicate:
    /// not in `datagrams`, and none of their packets is counted.
    pub copies: u64,
    /// Homa packets; a frame and a datagram may hold several.
    pub packets: u64,
    /// Payload of DATA packets, bytes; retransmitted and duplicate ones included.
    pub data_bytes: u64,
    /// By type; retransmitted DATA included.
    pub types: Counts,
    /// By encapsulation.
    pub encapsulations: Counts,
    /// DATA packets marked as sent again.
    pub retransmitted: u64,
    /// DATA packets not marked, of bytes captured before.
    pub duplicates: u64,
    /// Packets that were captured up to the common header or less.
    pub cut: u64,
    /// Packets that break the format, by reason; not in `types`.
    pub malformed: Counts,
    /// ICMP refusals of Homa packets, by kind.
    pub icmp: Counts,
    /// Frames that could not be read, by reason.
    pub unreadable: Counts,
    /// Frames of other protocols.
    pub other: Counts,
    /// Frames older than the one before.
    pub backward_steps: u64,
    /// Acknowledgements of RPCs that the capture does not show, or no longer.
    pub stray_acks: u64,
    /// RPCs.
    pub rpcs: u64,
    /// RPCs by how they ended.
    pub endings: Counts,
    /// RPCs at the edges of the capture.
    pub under_way: UnderWay,
    /// Frames that the capturing program or its kernel lost, if the file has the number (pcapng).
    pub dropped: Option<u64>,
}

/// RPCs that a capture shows in part only, because of when it began and ended.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct UnderWay {
    /// The first bytes of their requests were not captured.
    pub at_start: u64,
    /// Nothing ended them.
    pub at_end: u64,
}

/// Adds one under a name.
fn add(counts: &mut Counts, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            counts.insert(name.to_owned(), 1);
        }
    }
}

impl Totals {
    /// Counts a frame without IP.
    pub fn other(&mut self, content: &Content<'_>) {
        if let Content::EtherType(number) = content {
            match number {
                0x0806 => add(&mut self.other, "arp"),
                number => add(&mut self.other, &format!("ethertype {number:#06x}")),
            }
        }
    }

    /// Counts a frame that cannot be read.
    pub fn unreadable(&mut self, reason: Unreadable) {
        add(&mut self.unreadable, &reason.to_string());
    }

    /// Counts a finding, the `index`th of its frame.
    pub fn finding(&mut self, finding: &Finding, index: usize) {
        match finding {
            Finding::Homa(homa) => {
                self.homa_frames += u64::from(index == 0);
                self.homa(homa);
            }
            Finding::Copy => {
                self.homa_frames += u64::from(index == 0);
                self.copies += 1;
            }
            Finding::EtherType(number) => self.other(&Content::EtherType(*number)),
            Finding::Icmp(icmp) => add(&mut self.icmp, &icmp.refusal.to_string()),
            Finding::Protocol(number) => add(&mut self.other, &protocol(*number)),
            Finding::Unreadable(reason) => self.unreadable(*reason),
        }
    }

    fn homa(&mut self, homa: &Homa) {
        self.packets += 1;
        add(&mut self.encapsulations, homa.encapsulation.name());
        match &homa.known {
            Known::All(packet, _) => {
                add(&mut self.types, type_name(&packet.body));
                if let Body::Data(data) = &packet.body {
                    self.retransmitted += u64::from(data.retransmit);
                    self.data_bytes += u64::from(data.span.len);
                }
            }
            Known::Header { kind, .. } => {
                self.cut += 1;
                add(&mut self.types, type_of(*kind));
            }
            Known::Nothing => self.cut += 1,
            Known::Malformed(reason) => add(&mut self.malformed, reason_name(*reason)),
        }
    }

    /// Adds the findings in UDP.
    pub fn datagrams(&mut self, found: Datagrams) {
        self.datagrams = found.all;
        self.trains = found.trains;
        self.unclear_trains = found.unclear;
    }

    /// Counts an RPC.
    pub fn rpc(&mut self, rpc: &Rpc, ending: Ending) {
        self.rpcs += 1;
        add(&mut self.endings, ending.name());
        self.under_way.at_start += u64::from(rpc.began_before());
        self.under_way.at_end += u64::from(ending == Ending::Open);
    }
}

/// A packet type's name, as the kernel module spells it.
pub fn type_name(body: &Body) -> &'static str {
    type_of(match body {
        // Its number is an option of the endpoints, so no capture shows it.
        Body::StartMsg { .. } => return "START_MSG",
        Body::Data(_) => kind::DATA,
        Body::Grant { .. } => kind::GRANT,
        Body::Resend { .. } => kind::RESEND,
        Body::RpcUnknown { .. } => kind::RPC_UNKNOWN,
        Body::Busy { .. } => kind::BUSY,
        Body::Cutoffs { .. } => kind::CUTOFFS,
        Body::Freeze => kind::FREEZE,
        Body::NeedAck | Body::Challenge { .. } => kind::NEED_ACK,
        Body::Ack(_) | Body::Proof(_) => kind::ACK,
    })
}

/// The name of a type's number.
pub fn type_of(number: u8) -> &'static str {
    match number {
        kind::DATA => "DATA",
        kind::GRANT => "GRANT",
        kind::RESEND => "RESEND",
        kind::RPC_UNKNOWN => "RPC_UNKNOWN",
        kind::BUSY => "BUSY",
        kind::CUTOFFS => "CUTOFFS",
        kind::FREEZE => "FREEZE",
        kind::NEED_ACK => "NEED_ACK",
        kind::ACK => "ACK",
        _ => "unknown",
    }
}

/// Why a packet is malformed: the reasons that the codec gives.
pub fn reason_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Truncated => "truncated",
        DropReason::UnknownType => "unknown type",
        DropReason::UnknownVersion => "unknown datagram version",
        DropReason::UnknownKey => "unknown key",
        DropReason::EmptyData => "DATA without bytes",
        DropReason::BeyondEnd => "bytes beyond the message's end",
        DropReason::NoServer => "DATA from or to port 0",
        _ => "not acceptable",
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        2 => "igmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        253 => "ip protocol 253 (kernel Homa before Linux 6.10 used it)".to_owned(),
        number => format!("ip protocol {number}"),
    }
}
