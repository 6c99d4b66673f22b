//! A conversation written packet by packet, as a capture.

use homa_proto::wire;
use homa_proto::{
    AckEntry, Acks, Body, Data, MessageId, Packet, PeerId, ResendLength, RpcId, Span,
};

use super::formats::PLAIN;
use super::frames::{ETHERNET, Record, ipv4};

/// Port of the client and of the server.
pub const PORTS: [u16; 2] = [0x8001, 4000];

/// Packets between 10.99.0.11 (client) and 10.99.0.12.
#[derive(Debug, Default)]
pub struct Talk {
    /// The frames so far.
    pub records: Vec<Record>,
}

impl Talk {
    /// A packet of the client (side 0) or the server (side 1) about an RPC, at a level.
    pub fn say(&mut self, micros: u64, side: u8, id: u64, level: u8, body: Body) {
        let bytes = encoded(side, id, &body);
        self.frame(micros, &ipv4(side, 146, level, &bytes));
    }

    /// An IP packet.
    pub fn frame(&mut self, micros: u64, ip: &[u8]) {
        let bytes = ETHERNET.frame(ip);
        let time = 1_700_000_000_000_000_000 + 1_000 * micros;
        self.records.push(Record { time, original: bytes.len() as u32, bytes });
    }

    /// The capture.
    pub fn file(&self) -> Vec<u8> {
        PLAIN.file(1, &self.records)
    }
}

/// A packet's bytes, payload included.
pub fn encoded(side: u8, id: u64, body: &Body) -> Vec<u8> {
    let mut bytes = vec![0; 2_000];
    let [client, server] = PORTS;
    let (local_port, remote_port) = if side == 0 { (client, server) } else { (server, client) };
    let packet = Packet {
        peer: PeerId(0),
        priority: 0,
        local_port,
        remote_port,
        id: RpcId(id | u64::from(side)),
        body: *body,
    };
    let header = wire::encode(&packet, &mut bytes).expect("room");
    let payload = if let Body::Data(data) = body { data.span.len as usize } else { 0 };
    bytes.truncate(header + payload);
    bytes
}

/// Bytes `range` of a message.
pub fn data(range: std::ops::Range<u32>, length: u32, unscheduled: u32) -> Body {
    Body::Data(Data {
        span: Span { message: MessageId(0), offset: range.start, len: range.end - range.start },
        message_length: length,
        incoming: unscheduled,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        incast: None,
    })
}

/// The same, sent again.
pub fn again(range: std::ops::Range<u32>, length: u32) -> Body {
    match data(range.clone(), length, range.end) {
        Body::Data(data) => Body::Data(Data { retransmit: true, ..data }),
        other => other,
    }
}

/// The same, with an acknowledgement of another RPC.
pub fn acking(body: Body, id: u64) -> Body {
    match body {
        Body::Data(data) => {
            let ack = Some(AckEntry { id: RpcId(id), server_port: PORTS[1] });
            Body::Data(Data { ack, ..data })
        }
        other => other,
    }
}

/// Everything that was sent is missing.
pub fn resend_all() -> Body {
    Body::Resend { offset: 0, length: ResendLength::All, priority: 7 }
}

/// An ACK that lists some RPCs.
pub fn acks(ids: &[u64]) -> Body {
    let mut acks = Acks::default();
    for &id in ids {
        acks.push(AckEntry { id: RpcId(id), server_port: PORTS[1] }).expect("at most five");
    }
    Body::Ack(acks)
}
