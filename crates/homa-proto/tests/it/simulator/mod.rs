//! The rules in which the authors' simulator (Homa §5.2) differs from the paper's text, one by one,
//! and the variants of the paper's Figure 8.

mod basic;
mod levels;
mod receiver;
mod sender;

use homa_proto::{
    Body, Config, Data, Endpoint, MessageId, Packet, PeerId, PeerInfo, Rate, RpcId, Span, Submit,
    Time,
};

const LINK: Rate = Rate::gbps(10);
/// Message bytes of a full packet, unscheduled and scheduled.
const UNSCHEDULED: u32 = 1_442;
const SCHEDULED: u32 = 1_456;
/// Unscheduled bytes of a message: 10,000 on the wire.
const FIRST_BYTES: u32 = 9_328;
/// A full packet's time at 10 Gbit/s, in nanoseconds.
const PACKET_TIME: u64 = 1_231;

/// W3's split: four unscheduled levels, four scheduled ones.
fn simulator() -> Config {
    Config::sigcomm18_sim(LINK)
}

fn endpoint(config: Config, peers: u32) -> Endpoint {
    let mut endpoint = Endpoint::new(config.validate().expect("a valid configuration"));
    for host in 0..peers {
        endpoint.open_peer(PeerId(host), PeerInfo { host, max_payload: UNSCHEDULED });
    }
    endpoint
}

/// The contents of a GRANT: receiver, message, offset, level.
type Grant = (u32, u64, u32, u8);

fn grants(receiver: &mut Endpoint, now: u64) -> Vec<Grant> {
    let packets = std::iter::from_fn(|| receiver.transmit(Time(now)));
    packets
        .map(|p| match p.body {
            Body::Grant { offset, priority } => (p.peer.0, p.id.client().0, offset, priority),
            other => panic!("only grants are expected, not {other:?}"),
        })
        .collect()
}

/// A one-way message from `peer` that is in flight: yields its packets in order.
#[derive(Clone, Copy)]
struct PacedSender {
    peer: u32,
    id: u64,
    length: u32,
    sent: u32,
}

impl PacedSender {
    fn new(peer: u32, id: u64, length: u32) -> Self {
        Self { peer, id, length, sent: 0 }
    }

    /// The next packet; sent whether granted or not.
    fn packet(&mut self) -> Packet {
        let first = self.length.min(FIRST_BYTES);
        let (payload, limit) =
            if self.sent < first { (UNSCHEDULED, first) } else { (SCHEDULED, self.length) };
        let offset = self.sent;
        self.sent = (offset + payload).min(limit);
        let span = Span { message: MessageId(0), offset, len: self.sent - offset };
        let body = Body::Data(Data {
            span,
            message_length: self.length,
            incoming: first,
            ack: None,
            cutoff_version: 1,
            retransmit: false,
            incast: None,
        });
        let id = RpcId(self.id);
        Packet { peer: PeerId(self.peer), priority: 0, local_port: 0, remote_port: 0, id, body }
    }

    /// Delivers the next packet; returns the grants that follow.
    fn arrive(&mut self, receiver: &mut Endpoint, now: u64) -> Vec<Grant> {
        let _ = receiver.receive(Time(now), &self.packet());
        while receiver.event().is_some() {}
        grants(receiver, now)
    }
}

/// Submits a one-way message to peer 0.
fn submit(sender: &mut Endpoint, now: u64, length: u32) {
    let message = Submit::OneWay { peer: PeerId(0), length, cookie: 0 };
    sender.submit(Time(now), message).expect("accepted");
}

/// Everything a sender transmits now: (offset, length, level, unscheduled).
fn data(sender: &mut Endpoint, now: u64) -> Vec<(u32, u32, u8, bool)> {
    let packets = std::iter::from_fn(|| sender.transmit(Time(now)));
    packets
        .map(|p| match p.body {
            Body::Data(d) => (d.span.offset, d.span.len, p.priority, d.is_unscheduled()),
            other => panic!("only data is expected, not {other:?}"),
        })
        .collect()
}
