//! The specification page states what the code does: its test vectors should be our encoder's
//! output, and its numbers our constants.

use super::PEER;
use super::vectors::unhex;
use homa_proto::wire::datagram::RequestExtensions;
use homa_proto::wire::{self, Decoded, datagram};
use homa_proto::{
    AckEntry, Body, Data, Duration, Limits, MessageId, Packet, Proof, RefusalReason, ResendLength,
    RpcId, Span,
};
use std::fmt::Write;

const PAGE: &str = include_str!("../../../../../docs/udp-encapsulation.md");

/// The datagrams of the page.
fn examples() -> Vec<(&'static str, Vec<(Packet, RequestExtensions)>)> {
    let client = |id, priority, body| Packet {
        peer: PEER,
        priority,
        local_port: 32768,
        remote_port: 4000,
        id: RpcId(id),
        body,
    };
    let server = |id, priority, body| Packet {
        local_port: 4000,
        remote_port: 32768,
        ..client(id, priority, body)
    };
    let request = Data {
        span: Span { message: MessageId(0), offset: 0, len: 5 },
        message_length: 5,
        incoming: 5,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        incast: None,
    };
    let ack = Some(AckEntry { id: RpcId(0x1234), server_port: 4000 });
    let crowded = Data { ack, incast: Some(300), ..request };
    let limits = Some(Limits { max_message: 16 << 20, max_unscheduled: 60_000 });
    let cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200];
    let resend = Body::Resend { offset: 1400, length: ResendLength::Bytes(2800), priority: 5 };
    let challenge =
        Body::Challenge { boot: 0x1122_3344_5566_7788, remembered: Duration::millis(2_500) };
    let proof = Proof { token: 0x99aa_bbcc_ddee_ff01, epoch: 0x8765_4321, first: 17, next: 20 };
    let mut silent: Vec<(&str, Vec<Packet>)> = vec![
        ("A request in one packet", vec![client(0x1234, 5, Body::Data(request))]),
        (
            "Another, which acknowledges the first and limits its response",
            vec![client(0x1236, 5, Body::Data(crowded))],
        ),
        ("A packet that is its header only", vec![server(0x1235, 5, Body::NeedAck)]),
        (
            "Three packets",
            vec![
                server(0x1235, 5, Body::Grant { offset: 200_000, priority: 3 }),
                server(0x1237, 5, resend),
                server(0x1239, 5, Body::Busy { come_back: None }),
            ],
        ),
        (
            "Limits with cutoffs",
            vec![server(0x1235, 5, Body::Cutoffs { cutoffs, version: 1, limits })],
        ),
    ];
    silent.extend(refusals().map(|(name, body)| (name, vec![server(0x1235, 5, body)])));
    silent.extend([
        ("A server that asks who calls", vec![server(0x9876_5432_1000_0001, 5, challenge)]),
        ("The answer", vec![client(0x9876_5432_1000_0000, 5, Body::Proof(proof))]),
    ]);
    let nothing = |packet| (packet, RequestExtensions::NONE);
    silent
        .into_iter()
        .map(|(name, packets)| (name, packets.into_iter().map(nothing).collect()))
        .chain(told_examples(client(0x1234, 5, Body::Data(request))))
        .collect()
}

/// What a server says about requests that it does not answer.
fn refusals() -> [(&'static str, Body); 5] {
    let unknown = |remembered, no_server, reason| Body::RpcUnknown {
        remembered: Some(remembered),
        no_server,
        reason,
    };
    let age = Duration::millis(2_500);
    let too_long = RefusalReason::ResponseTooLong { length: 20_000_000, max: 16 << 20 };
    [
        ("A restarted server that remembers 2.5 s", unknown(age, false, None)),
        ("A host whose server ended, or never ran", unknown(age, true, None)),
        (
            "A server that is overloaded and did not execute the request",
            unknown(Duration::MAX, false, Some(RefusalReason::Overloaded)),
        ),
        (
            "A server whose response exceeds its client's limit",
            unknown(Duration::ZERO, false, Some(too_long)),
        ),
        (
            "A server that has no room for the request for 20 ms",
            Body::Busy { come_back: Some(Duration::millis(20)) },
        ),
    ]
}

/// Datagrams with request extensions, for a request like this one.
fn told_examples(request: Packet) -> [(&'static str, Vec<(Packet, RequestExtensions)>); 3] {
    let next = Packet { id: RpcId(0x1236), ..request };
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok();
    let told = |millis, trace| RequestExtensions {
        left: Some(Duration::millis(millis)),
        trace,
        ..RequestExtensions::NONE
    };
    [
        ("A request of a trace, whose client waits for 2.5 s", vec![(request, told(2_500, trace))]),
        (
            "Two, whose clients wait for 10 s and 1 ms",
            vec![(request, told(10_000, None)), (next, told(1, None))],
        ),
        (
            "A request that may be executed more than once",
            vec![(request, RequestExtensions { idempotent: true, ..RequestExtensions::NONE })],
        ),
    ]
}

/// The datagram of an example; its payloads are "hello".
fn write(packets: &[(Packet, RequestExtensions)], number: u64) -> Vec<u8> {
    let mut buffer = [0; 1500];
    let mut writer = datagram::Writer::new(&mut buffer, number).unwrap();
    for (packet, told) in packets {
        let slot = writer.push_request(packet, told).unwrap();
        let len = slot.len();
        slot.copy_from_slice(&b"hello"[..len]);
    }
    let length = writer.len();
    buffer[..length].to_vec()
}

/// The examples as the page shows them.
fn rendered() -> String {
    let mut text = String::new();
    for (number, (name, packets)) in (1..).zip(examples()) {
        writeln!(text, "{name}; packet number {number}:").unwrap();
        for (packet, told) in &packets {
            writeln!(text, "  {}{told}", wire::pretty::sent(packet)).unwrap();
        }
        for line in write(&packets, number).chunks(16) {
            let words: Vec<String> = line
                .chunks(4)
                .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            writeln!(text, "    {}", words.join(" ")).unwrap();
        }
        text.push('\n');
    }
    text.trim_end().into()
}

/// The text between the two fences below the heading "Test vectors".
fn shown() -> &'static str {
    let (_, section) = PAGE.split_once("## Test vectors").expect("the heading");
    let (_, block) = section.split_once("```text\n").expect("a block of text");
    block.split_once("\n```").expect("the end of the block").0
}

#[test]
fn the_documented_examples_are_the_encoders_output() {
    let rendered = rendered();
    assert!(shown() == rendered, "replace the block of test vectors by:\n{rendered}");
}

#[test]
fn the_bytes_on_the_page_decode_to_the_lines_above_them() {
    let mut packets = 0;
    for example in shown().split("\n\n") {
        let hex: Vec<&str> = example.lines().filter(|line| line.starts_with("    ")).collect();
        let lines = example.lines().filter(|line| line.starts_with("  ") && !hex.contains(line));
        let bytes = unhex(&hex.concat());
        let datagram = datagram::decode(&bytes).unwrap();
        let (mut all, mut read) = (datagram.packets(PEER, 5), Vec::new());
        while let Some(next) = all.next() {
            let next: Decoded<'_> = next.unwrap();
            let told = all.request_extensions();
            read.push(format!("{}{told}", wire::pretty::received(&next.packet)));
        }
        assert_eq!(read, lines.map(str::trim).collect::<Vec<_>>());
        packets += read.len();
    }
    assert_eq!(packets, 18);
}

#[test]
fn the_documented_payload_is_the_mtu_less_our_headers() {
    for (ip_version, mtu, ip_header, payload) in [
        ("IPv4", 1500, 20, 1400),
        ("IPv6", 1500, 40, 1380),
        ("IPv4", 9000, 20, 8900),
        ("IPv6", 9000, 40, 8880),
    ] {
        assert_eq!(mtu - ip_header - 8 - datagram::DATA_OVERHEAD, payload);
        let row = format!("| {mtu} | {ip_version} | {payload} |");
        assert!(PAGE.contains(&row), "the table lacks {row}");
    }
}
