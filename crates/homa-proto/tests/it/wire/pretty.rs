//! The one-line form of every packet, as a text to review.

use super::PEER;
use homa_proto::wire::pretty;
use homa_proto::{
    AckEntry, Acks, Body, Data, Duration, Limits, MessageId, Packet, Proof, RefusalReason,
    ResendLength, RpcId, Span,
};

/// One body of every form.
fn bodies() -> Vec<Body> {
    let data = Data {
        span: Span { message: MessageId(3), offset: 1400, len: 1400 },
        message_length: 10_000,
        incoming: 10_000,
        ack: None,
        cutoff_version: 2,
        retransmit: false,
        incast: None,
    };
    let entry = |id| AckEntry { id: RpcId(id), server_port: 4000 };
    let mut acks = Acks::default();
    acks.push(entry(0x10)).unwrap();
    acks.push(entry(0x12)).unwrap();
    let unknown = |reason| Body::RpcUnknown {
        remembered: Some(Duration::ZERO),
        no_server: false,
        reason: Some(reason),
    };
    let limits = Limits { max_message: 16_777_216, max_unscheduled: 60_000 };
    let cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200];
    vec![
        Body::Data(data),
        Body::Data(Data { ack: Some(entry(0x10)), retransmit: true, incast: Some(300), ..data }),
        Body::Grant { offset: 20_000, priority: 2 },
        Body::Resend { offset: 1400, length: ResendLength::Bytes(2800), priority: 7 },
        Body::Resend { offset: 0, length: ResendLength::All, priority: 7 },
        Body::RpcUnknown { remembered: None, no_server: false, reason: None },
        Body::RpcUnknown { remembered: Some(Duration::millis(12)), no_server: true, reason: None },
        Body::Busy { come_back: None },
        Body::Cutoffs { cutoffs, version: 1, limits: None },
        Body::Cutoffs { cutoffs, version: 1, limits: Some(limits) },
        Body::Freeze,
        Body::NeedAck,
        Body::Ack(Acks::default()),
        Body::Ack(acks),
        unknown(RefusalReason::Overloaded),
        unknown(RefusalReason::Abandoned),
        unknown(RefusalReason::ResponseTooLong { length: 20_000_000, max: 16_777_216 }),
        unknown(RefusalReason::DeadlinePassed),
        Body::Busy { come_back: Some(Duration::millis(20)) },
        Body::Challenge { boot: 0x1234, remembered: Duration::millis(3) },
        Body::Proof(Proof { token: 0x5678, epoch: 0x8765_4321, first: 3, next: 9 }),
    ]
}

#[test]
fn every_packet_has_a_line() {
    let lines: Vec<String> = bodies().iter().map(|body| pretty::body(body).to_string()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_line_names_the_source_port_first() {
    let packet = Packet {
        peer: PEER,
        priority: 6,
        local_port: 32768,
        remote_port: 4000,
        id: RpcId(0x1234),
        body: Body::Busy { come_back: None },
    };
    assert_eq!(pretty::sent(&packet).to_string(), "32768 > 4000 P6 0x1234 BUSY");
    assert_eq!(pretty::received(&packet).to_string(), "4000 > 32768 P6 0x1234 BUSY");
}
