//! Packets and RPCs as rows: one line of text, or one JSON object.
//!
//! Ids are hexadecimal strings in JSON, because they need 64 bits; times are nanoseconds since the
//! capture's first frame.

use std::fmt;
use std::net::SocketAddr;

use homa_proto::{AckEntry, Body, Packet, RefusalReason, ResendLength, wire};
use serde::Serialize;

use super::finding::{Homa, Icmp, Known};
use super::rpc::{Ending, PcapMessage, Rpc};
use super::totals::{reason_name, type_name, type_of};

/// Position of a packet in the capture.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Frame, counted from 1.
    pub frame: u64,
    /// Nanoseconds since the first frame.
    pub time: Option<i64>,
}

/// A time in seconds with all its digits.
struct Seconds(Option<i64>);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(nanos) = self.0 else { return write!(f, "{:>13}", "-") };
        let sign = if nanos < 0 { "-" } else { "" };
        let nanos = nanos.unsigned_abs();
        let text = format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        write!(f, "{text:>13}")
    }
}

/// A packet's line: time, addresses, encapsulation if it is not plain IP, level, id, contents.
pub fn packet_line(place: Place, homa: &Homa, duplicate: bool) -> String {
    let Homa { source, destination, priority, .. } = homa;
    let head = format!("{} {source} > {destination}", Seconds(place.time));
    let said = match &homa.known {
        Known::All(packet, told) => {
            format!("P{priority} {:#x} {}{told}", packet.id.0, wire::pretty::body(&packet.body))
        }
        Known::Header { kind, id } => {
            format!("P{priority} {:#x} {} (cut by the capture)", id.0, type_of(*kind))
        }
        Known::Nothing => format!("P{priority} (cut by the capture)"),
        Known::Malformed(reason) => format!("P{priority} malformed: {}", reason_name(*reason)),
    };
    let number = homa.number.map(|number| format!(" {number}")).unwrap_or_default();
    let carried = match homa.encapsulation.name() {
        "ip" => String::new(),
        name => format!(" [{name}{number}]"),
    };
    let duplicate = if duplicate { " [duplicate]" } else { "" };
    format!("{head} {said}{carried}{duplicate}")
}

/// A refusal's line.
pub fn icmp_line(place: Place, icmp: &Icmp) -> String {
    let id = icmp.id.map(|id| format!(" {:#x}", id.0)).unwrap_or_default();
    let Icmp { from, refusal, source, destination, .. } = icmp;
    format!("{} {from} ICMP {refusal}: {source} > {destination}{id}", Seconds(place.time))
}

/// A packet or a refusal.
#[derive(Debug, Default, Serialize)]
pub struct PacketRow {
    frame: u64,
    time_ns: Option<i64>,
    encapsulation: &'static str,
    source: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagram: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    fields: Option<Fields>,
    /// What the client said of the request that begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idempotent: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

/// What a packet says, by type.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fields {
    Data {
        message_length: u32,
        offset: u32,
        bytes: u32,
        incoming: u32,
        cutoff_version: u16,
        retransmit: bool,
        ack: Option<AckRow>,
        incast: Option<u16>,
    },
    Grant {
        grant_offset: u32,
        grant_priority: u8,
    },
    Resend {
        resend_offset: u32,
        /// `null`: all that was sent.
        resend_length: Option<u32>,
        resend_priority: u8,
    },
    RpcUnknown {
        remembered_ns: Option<u64>,
        no_server: bool,
        reason: Option<ReasonRow>,
    },
    Busy {
        come_back_us: u64,
    },
    Cutoffs {
        unsched_cutoffs: [u32; 8],
        cutoff_version: u16,
        max_message: Option<u32>,
        max_unscheduled: Option<u32>,
    },
    Ack {
        acks: Vec<AckRow>,
    },
}

#[derive(Debug, Serialize)]
struct AckRow {
    id: String,
    server_port: u16,
}

/// Why a request was refused.
#[derive(Debug, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
enum ReasonRow {
    Overloaded,
    Abandoned,
    ResponseTooLong {
        response_length: u32,
        limit: u32,
    },
    DeadlinePassed,
    /// One that this version does not know.
    Other,
}

impl From<RefusalReason> for ReasonRow {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Overloaded => Self::Overloaded,
            RefusalReason::Abandoned => Self::Abandoned,
            RefusalReason::ResponseTooLong { length, max } => {
                Self::ResponseTooLong { response_length: length, limit: max }
            }
            RefusalReason::DeadlinePassed => Self::DeadlinePassed,
            _ => Self::Other,
        }
    }
}

impl From<AckEntry> for AckRow {
    fn from(entry: AckEntry) -> Self {
        Self { id: format!("{:#x}", entry.id.0), server_port: entry.server_port }
    }
}

impl Fields {
    fn of(packet: &Packet) -> Option<Self> {
        Some(match &packet.body {
            Body::Data(data) => Self::Data {
                message_length: data.message_length,
                offset: data.span.offset,
                bytes: data.span.len,
                incoming: data.incoming,
                cutoff_version: data.cutoff_version,
                retransmit: data.retransmit,
                ack: data.ack.map(AckRow::from),
                incast: data.incast,
            },
            &Body::Grant { offset, priority } => {
                Self::Grant { grant_offset: offset, grant_priority: priority }
            }
            &Body::Resend { offset, length, priority } => Self::Resend {
                resend_offset: offset,
                resend_length: match length {
                    ResendLength::Bytes(bytes) => Some(bytes),
                    ResendLength::All => None,
                },
                resend_priority: priority,
            },
            &Body::RpcUnknown { remembered, no_server, reason } => Self::RpcUnknown {
                remembered_ns: remembered.map(|time| time.0),
                no_server,
                reason: reason.map(ReasonRow::from),
            },
            &Body::Busy { come_back: Some(time) } => Self::Busy { come_back_us: time.0 / 1_000 },
            Body::Cutoffs { cutoffs, version, limits } => Self::Cutoffs {
                unsched_cutoffs: *cutoffs,
                cutoff_version: *version,
                max_message: limits.map(|limits| limits.max_message),
                max_unscheduled: limits.map(|limits| limits.max_unscheduled),
            },
            Body::Ack(acks) => Self::Ack { acks: acks.iter().map(AckRow::from).collect() },
            // An empty list of acks, as the packet has.
            Body::Proof(_) => Self::Ack { acks: Vec::new() },
            Body::Busy { .. }
            | Body::Freeze
            | Body::NeedAck
            | Body::Challenge { .. }
            | Body::StartMsg { .. } => return None,
        })
    }
}

impl PacketRow {
    /// Of a packet.
    pub fn new(place: Place, homa: &Homa, duplicate: bool) -> Self {
        let row = Self {
            frame: place.frame,
            time_ns: place.time,
            encapsulation: homa.encapsulation.name(),
            source: homa.source.to_string(),
            destination: homa.destination.to_string(),
            priority: Some(homa.priority),
            datagram: homa.number,
            duplicate,
            ..Self::default()
        };
        match &homa.known {
            Known::All(packet, told) => Self {
                deadline_us: told.left.map(|left| left.0 / 1_000),
                trace: told.trace.map(|trace| trace.to_string()),
                idempotent: told.idempotent,
                id: Some(format!("{:#x}", packet.id.0)),
                kind: Some(type_name(&packet.body)),
                fields: Fields::of(packet),
                ..row
            },
            Known::Header { kind, id } => Self {
                id: Some(format!("{:#x}", id.0)),
                kind: Some(type_of(*kind)),
                cut: true,
                ..row
            },
            Known::Nothing => Self { cut: true, ..row },
            Known::Malformed(reason) => Self { malformed: Some(reason_name(*reason)), ..row },
        }
    }

    /// Of a refusal.
    pub fn refusal(place: Place, icmp: &Icmp) -> Self {
        Self {
            frame: place.frame,
            time_ns: place.time,
            encapsulation: "icmp",
            source: icmp.source.to_string(),
            destination: icmp.destination.to_string(),
            id: icmp.id.map(|id| format!("{:#x}", id.0)),
            refusal: Some(icmp.refusal.to_string()),
            ..Self::default()
        }
    }
}

/// An RPC.
#[derive(Debug, Serialize)]
pub struct RpcRow {
    id: String,
    client: SocketAddr,
    server: SocketAddr,
    encapsulation: &'static str,
    first_frame: u64,
    start_ns: Option<i64>,
    first_byte_ns: Option<i64>,
    latency_ns: Option<i64>,
    packets: u64,
    one_way: bool,
    request: MessageRow,
    response: MessageRow,
    retransmitted: u64,
    resends: u64,
    busys: u64,
    grants: u64,
    rpc_unknowns: u64,
    need_acks: u64,
    acks: u64,
    refusal: Option<String>,
    began_before: bool,
    ending: &'static str,
    ending_text: String,
}

/// One direction of an RPC.
#[derive(Debug, Serialize)]
struct MessageRow {
    length: Option<u32>,
    captured_bytes: u64,
    complete: bool,
    packets: u64,
    retransmitted: u64,
    duplicates: u64,
    resends: u64,
    busys: u64,
    unscheduled_bytes: Option<u32>,
    grants: u64,
    granted_bytes: u64,
    granted_offset: Option<u32>,
    latest_grant: Option<GrantRow>,
    unscheduled_levels: [u64; 8],
    scheduled_levels: [u64; 8],
}

#[derive(Debug, Serialize)]
struct GrantRow {
    offset: u32,
    priority: u8,
}

impl From<&PcapMessage> for MessageRow {
    fn from(message: &PcapMessage) -> Self {
        Self {
            length: message.length,
            captured_bytes: message.captured,
            complete: message.is_complete(),
            packets: message.packets,
            retransmitted: message.retransmitted,
            duplicates: message.duplicates,
            resends: message.resends,
            busys: message.busys,
            unscheduled_bytes: message.unscheduled,
            grants: message.grants,
            granted_bytes: message.granted_bytes(),
            granted_offset: message.granted,
            latest_grant: message
                .latest_grant
                .map(|(offset, priority)| GrantRow { offset, priority }),
            unscheduled_levels: message.levels[0],
            scheduled_levels: message.levels[1],
        }
    }
}

impl RpcRow {
    /// Of an RPC in a capture that began at `start`.
    pub fn new(rpc: &Rpc, ending: Ending, start: Option<i64>) -> Self {
        let Rpc { request, response, .. } = rpc;
        Self {
            id: format!("{:#x}", rpc.id.0),
            client: rpc.client,
            server: rpc.server,
            encapsulation: rpc.encapsulation.name(),
            first_frame: rpc.frame,
            start_ns: rpc.first.zip(start).map(|(first, start)| first.saturating_sub(start)),
            first_byte_ns: rpc.first_byte(),
            latency_ns: rpc.latency(),
            packets: rpc.packets,
            one_way: rpc.one_way,
            retransmitted: request.retransmitted + response.retransmitted,
            resends: request.resends + response.resends,
            busys: request.busys + response.busys,
            grants: request.grants + response.grants,
            request: request.into(),
            response: response.into(),
            rpc_unknowns: rpc.unknowns,
            need_acks: rpc.need_acks,
            acks: rpc.acks,
            refusal: rpc.refusal.map(|refusal| refusal.to_string()),
            began_before: rpc.began_before(),
            ending: ending.name(),
            ending_text: ending.to_string(),
        }
    }
}

/// The columns of an RPC's line: title, least width.
pub const COLUMNS: [(&str, usize); 14] = [
    ("id", 8),
    ("client > server", 38),
    ("request", 8),
    ("response", 8),
    ("first us", 9),
    ("latency us", 10),
    ("packets", 7),
    ("retx", 4),
    ("resend", 6),
    ("busy", 4),
    ("grants", 9),
    ("granted B", 13),
    ("levels", 7),
    ("ended", 5),
];

/// An RPC's cells. Pairs are request + response; levels are those of unscheduled and of scheduled
/// DATA, in both directions.
pub fn rpc_cells(rpc: &Rpc, ending: Ending) -> Vec<String> {
    let Rpc { request, response, .. } = rpc;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let micros = |nanos: Option<i64>| or_dash(nanos.map(|n| format!("{:.1}", n as f64 / 1e3)));
    let length = |message: &PcapMessage| or_dash(message.length.map(|length| length.to_string()));
    let pair = |one: u64, other: u64| format!("{one}+{other}");
    let levels = |index: usize| -> String {
        (0..8_usize)
            .filter(|&level| request.levels[index][level] + response.levels[index][level] > 0)
            .map(|level| level.to_string())
            .collect()
    };
    let levels = match (levels(0), levels(1)) {
        (free, granted) if granted.is_empty() => free,
        (free, granted) => format!("{free}/{granted}"),
    };
    vec![
        format!("{:#x}", rpc.id.0),
        format!("{} > {}", rpc.client, rpc.server),
        length(request),
        if rpc.one_way { "one-way".to_owned() } else { length(response) },
        micros(rpc.first_byte()),
        micros(rpc.latency()),
        rpc.packets.to_string(),
        pair(request.retransmitted, response.retransmitted),
        pair(request.resends, response.resends),
        pair(request.busys, response.busys),
        pair(request.grants, response.grants),
        pair(request.granted_bytes(), response.granted_bytes()),
        levels,
        ending.to_string(),
    ]
}
