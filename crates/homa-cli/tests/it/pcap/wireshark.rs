//! The dissector for Wireshark agrees with `homa pcap` field by field, and no packet makes it fail.
//! Runs tshark; if it is missing, says how to install it.

use std::process::{Command, Stdio};

use homa_proto::{Body, Duration, Limits, RefusalReason};
use serde_json::Value;

use super::conversation::{acks, data, encoded};
use super::formats::{PLAIN, carried, datagram_of};
use super::frames::{ETHERNET, LINKS, Temporary, Vector, ipv4, kernel_packets, records, udp};
use super::hostile::damaged;
use super::trains::{LENGTHS, conversation, mutated, packet};
use super::{common, decoded, lines};

const SCRIPT: &str =
    concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../contrib/wireshark/homa.lua");

/// Fields of tshark and the same values in our rows: a path, `[]` for all elements of a list.
const FIELDS: [(&str, &str); 31] = [
    ("homa.sport", "source"),
    ("homa.dport", "destination"),
    ("homa.type", "type"),
    ("homa.id", "id"),
    ("homa.priority", "priority"),
    ("homa.length", "message_length"),
    ("homa.offset", "offset"),
    ("homa.payload_length", "bytes"),
    ("homa.incoming", "incoming"),
    ("homa.retransmit", "retransmit"),
    ("homa.client_id", "ack.id"),
    ("homa.client_id", "acks[].id"),
    ("homa.server_port", "ack.server_port"),
    ("homa.server_port", "acks[].server_port"),
    ("homa.incast_limit", "incast"),
    ("homa.cutoff_version", "cutoff_version"),
    ("homa.cutoff.cutoff_version", "cutoff_version"),
    ("homa.unsched_cutoffs", "unsched_cutoffs[]"),
    ("homa.grant_offset", "grant_offset"),
    ("homa.grant_priority", "grant_priority"),
    ("homa.resend_offset", "resend_offset"),
    ("homa.resend_length", "resend_length"),
    ("homa.resend_priority", "resend_priority"),
    ("homa.response_length", "reason.response_length"),
    ("homa.response_limit", "reason.limit"),
    ("homa.come_back", "come_back_us"),
    ("homa.malformed", "malformed"),
    ("homa.udp.number", "datagram"),
    ("homa.deadline", "deadline_us"),
    ("homa.traceparent", "trace"),
    ("homa.idempotent", "idempotent"),
];

fn is_installed() -> bool {
    let version = Command::new("tshark").arg("--version").stderr(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

/// Wireshark reads the same in a capture as `homa pcap`; a part of a test.
pub fn agrees(name: &str, file: &[u8]) {
    match is_installed() {
        true => assert!(compare(name, file, &[]) > 0, "{name} has no packets"),
        false => skip::part(&format!("tshark (apt-get install tshark): {name}")),
    }
}

/// Whether the comparison can be made here.
fn has_tshark() -> bool {
    let there = is_installed();
    if !there {
        skip::test("tshark (apt-get install tshark)");
    }
    there
}

/// The values of fields in every frame, each a list.
fn tshark(path: &str, fields: &[&str], arguments: &[&str]) -> Vec<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-X", SCRIPT, "-n", "-r", path, "-T", "fields"]);
    command.args(["-E", "separator=/t", "-E", "aggregator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.args(arguments).output().expect("tshark starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!errors.contains("homa.lua:"), "{errors}");
    let list = |cell: &str| match cell {
        "" => Vec::new(),
        cell => cell.split('|').map(str::to_owned).collect(),
    };
    text.lines().map(|line| line.split('\t').map(list).collect()).collect()
}

/// A value of ours as tshark prints it.
fn printed(field: &str, value: &Value) -> String {
    let kinds = ["DATA", "GRANT", "RESEND", "RPC_UNKNOWN", "BUSY", "CUTOFFS", "FREEZE"];
    let kinds = kinds.iter().chain(&["NEED_ACK", "ACK"]);
    match (field, value) {
        ("homa.type", Value::String(name)) => {
            let number = kinds.clone().position(|kind| kind == name).expect("a type") + 0x10;
            format!("{number:#04x}")
        }
        ("homa.id" | "homa.client_id", Value::String(id)) => {
            let id = u64::from_str_radix(id.trim_start_matches("0x"), 16).expect("an id");
            format!("{id:#018x}")
        }
        // All that was sent.
        ("homa.resend_length", Value::Null) => "-1".to_owned(),
        (_, Value::Bool(value)) => u8::from(*value).to_string(),
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}

/// Our values for a field of tshark.
fn ours(row: &Value, field: &str, path: &str) -> Vec<String> {
    let absent = |value: &Value| value.is_null() && field != "homa.resend_length";
    let (list, rest) = path.split_once("[]").unwrap_or((path, ""));
    let found = list.split('.').try_fold(row, |at, key| at.get(key));
    let Some(found) = found.filter(|found| !absent(found)) else { return Vec::new() };
    let values = match found {
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    };
    let rest = rest.trim_start_matches('.');
    let inner = values.into_iter().map(|value: &Value| match rest {
        "" => value,
        key => &value[key],
    });
    inner.map(|value| printed(field, value)).collect()
}

/// What our rows say of a frame in a field of tshark.
fn expected(rows: &[&Value], field: &str) -> Vec<String> {
    let paths = FIELDS.iter().filter(|(name, _)| *name == field);
    rows.iter()
        .flat_map(|row| {
            let is_cutoffs = row["type"] == "CUTOFFS";
            let elsewhere = match field {
                "homa.cutoff_version" => is_cutoffs,
                "homa.cutoff.cutoff_version" => !is_cutoffs,
                _ => false,
            };
            let paths = paths.clone().filter(move |_| !elsewhere);
            paths.flat_map(|(_, path)| ours(row, field, path)).collect::<Vec<_>>()
        })
        .collect()
}

/// Compares every field and the info column of every frame; returns the packets compared.
fn compare(name: &str, file: &[u8], arguments: &[&str]) -> usize {
    let temporary = Temporary::new(name, file);
    let capture = decoded(file, &["--packets"]);
    let rows = capture["packets"].as_array().expect("rows");
    let mut fields: Vec<&str> = FIELDS.iter().map(|(field, _)| *field).collect();
    fields.dedup();
    fields.insert(0, "homa.summary");
    // This one must not occur.
    fields.push("_ws.lua.error");
    let shown = tshark(temporary.path(), &fields, arguments);
    for (number, frame) in (1_u64..).zip(&shown) {
        let here: Vec<&Value> = rows.iter().filter(|row| row["frame"] == number).collect();
        let homa: Vec<&Value> =
            here.into_iter().filter(|row| row["encapsulation"] != "icmp").collect();
        for (field, theirs) in fields.iter().zip(frame).skip(1) {
            // Wireshark shows the fields of what it calls malformed, too.
            if *field != "homa.malformed" && homa.iter().any(|row| row["id"].is_null()) {
                continue;
            }
            let mut expected = expected(&homa, field);
            if ["homa.sport", "homa.dport"].contains(field) {
                // Over UDP, the datagram's ports count.
                if homa.iter().any(|row| row["encapsulation"] == "udp") {
                    continue;
                }
                for port in &mut expected {
                    *port = port.rsplit(':').next().unwrap_or_default().to_owned();
                }
            }
            // A datagram's number stands for all its packets.
            if *field == "homa.udp.number" {
                expected.dedup();
            }
            assert_eq!(theirs, &expected, "{name}: frame {number}, {field}: {homa:?}");
        }
    }
    compare_lines(name, file, &shown);
    rows.len()
}

/// Compares the lines of all packets with the summaries, which are the first field.
fn compare_lines(name: &str, file: &[u8], shown: &[Vec<Vec<String>>]) {
    let said: Vec<&String> = shown.iter().flat_map(|frame| &frame[0]).collect();
    let lines = lines(file, &["--packets"]);
    let packets = lines.iter().take_while(|line| !line.is_empty());
    for (line, said) in packets.clone().zip(&said) {
        let (_, rest) = line.split_once(" > ").expect("addresses");
        let (_, rest) = rest.split_once(' ').expect("a packet");
        let rest = rest.trim_end_matches(" [duplicate]");
        let rest = rest.split(" [tcp]").next().unwrap_or(rest);
        assert_eq!(rest.split(" [udp").next(), Some(said.as_str()), "{name}");
    }
    assert_eq!(packets.count(), said.len(), "{name}");
}

/// A datagram of three requests with their extensions.
fn requests() -> Vec<u8> {
    use homa_proto::wire::datagram::{RequestExtensions, TraceContext, Writer};
    use homa_proto::{Packet, PeerId, RpcId};
    let mut buffer = [0; 1_000];
    let mut writer = Writer::new(&mut buffer, 7).expect("room");
    for n in 1..=3_u8 {
        let (peer, priority, id) = (PeerId(0), 0, RpcId(u64::from(n) << 33));
        let (local_port, remote_port, body) = (40_000, 4_000, data(0..5, 5, 5));
        let packet = Packet { peer, priority, local_port, remote_port, id, body };
        let trace = TraceContext::new(u128::from(n) << 100, 7, n);
        let left = Some(Duration(u64::from(n) * 1_000_000));
        let told = RequestExtensions { left, trace, idempotent: n == 2 };
        writer.push_request(&packet, &told).expect("room").fill(n);
    }
    let length = writer.len();
    udp(40_000, 4_000, &buffer[..length])
}

/// Packets that the captured ones lack: what only UDP can say, all types, several a datagram.
fn rare() -> Vec<Vec<u8>> {
    use homa_proto::wire::datagram::Writer;
    use homa_proto::{Packet, PeerId, RpcId};
    let limits = Some(Limits { max_message: 1 << 24, max_unscheduled: 60_000 });
    let cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200];
    let remembered = Some(Duration(2_500_000_000));
    let too_long = RefusalReason::ResponseTooLong { length: 20_000_000, max: 1 << 24 };
    let bodies = [
        Body::Cutoffs { cutoffs, version: 3, limits },
        Body::RpcUnknown { remembered, no_server: false, reason: None },
        Body::RpcUnknown { remembered, no_server: true, reason: None },
        Body::RpcUnknown { remembered, no_server: false, reason: Some(RefusalReason::Overloaded) },
        Body::RpcUnknown { remembered, no_server: false, reason: Some(too_long) },
        Body::Freeze,
        Body::Busy { come_back: None },
        Body::Busy { come_back: Some(Duration(20_000_000)) },
        acks(&[2, 4, 6, 8, 10]),
    ];
    let packet = |body| Packet {
        peer: PeerId(0),
        priority: 0,
        local_port: 4_000,
        remote_port: 40_000,
        id: RpcId(0x0123_4567_89ab_cdef),
        body,
    };
    let written = |bodies: &[Body]| {
        let mut buffer = [0; 1_000];
        let mut writer = Writer::new(&mut buffer, 1 << 60).expect("room");
        for body in bodies {
            writer.push(&packet(*body)).expect("room");
        }
        let length = writer.len();
        udp(4_000, 40_000, &buffer[..length])
    };
    let mut datagrams: Vec<Vec<u8>> = bodies.iter().map(|body| written(&[*body])).collect();
    // What its extensions say holds for every packet of a datagram that can carry it.
    let says_otherwise = |body: &Body| match body {
        Body::RpcUnknown { no_server, reason, .. } => *no_server || reason.is_some(),
        Body::Busy { come_back } => come_back.is_some(),
        _ => false,
    };
    let alike: Vec<Body> = bodies.into_iter().filter(|body| !says_otherwise(body)).collect();
    datagrams.push(written(&alike));
    datagrams.push(requests());
    let mut frames: Vec<Vec<u8>> =
        datagrams.iter().map(|udp| ETHERNET.frame(&ipv4(1, 17, 5, udp))).collect();
    // As other branches of the kernel module write them.
    let mut grant = encoded(1, 2, &Body::Grant { offset: 9, priority: 200 });
    grant.push(1);
    frames.push(ETHERNET.frame(&ipv4(1, 146, 7, &grant)));
    for port in [0, 2] {
        let mut nowhere = encoded(0, 2, &data(0..5, 5, 5));
        nowhere[port..port + 2].fill(0);
        frames.push(ETHERNET.frame(&ipv4(0, 146, 7, &nowhere)));
    }
    frames
}

#[test]
fn tshark_reads_what_we_read_field_by_field() {
    if !has_tshark() {
        return;
    }
    let vectors = kernel_packets();
    let packets: Vec<Vec<u8>> = vectors.iter().flat_map(carried).map(|(ip, _)| ip).collect();
    let mut compared = 0;
    for (index, link) in LINKS.iter().enumerate() {
        let frames = packets.iter().map(|ip| link.frame(ip));
        let file = PLAIN.file(link.number, &records(frames));
        compared += compare(&format!("links-{index}.pcap"), &file, &[]);
    }
    assert_eq!(compared, 9 * 6 * vectors.len());
    let several: Vec<&Vector> = vectors.iter().filter(|v| v.bytes.len() < 90).take(5).collect();
    let aggregate = ipv4(0, 17, 5, &udp(40_000, 4_000, &datagram_of(77, &several)));
    let frames = rare().into_iter().chain([ETHERNET.frame(&aggregate)]);
    assert_eq!(compare("rare.pcap", &PLAIN.file(1, &records(frames)), &[]), 25);
}

#[test]
fn tshark_reads_cut_packets_as_far_as_we_do() {
    if !has_tshark() {
        return;
    }
    let vectors = kernel_packets();
    let frames =
        vectors.iter().map(|vector| ETHERNET.frame(&ipv4(0, 146, vector.level(), &vector.bytes)));
    let mut records = records(frames);
    for (index, record) in records.iter_mut().enumerate() {
        record.bytes.truncate(34 + 56 + index % 3);
    }
    compare("cut.pcap", &PLAIN.file(1, &records), &[]);
}

#[test]
fn no_packet_makes_the_dissector_fail() {
    if !has_tshark() {
        return;
    }
    let file = PLAIN.file(1, &damaged(6_000));
    let temporary = Temporary::new("damaged.pcap", &file);
    for arguments in [&[][..], &["-o", "homa.ports:4000,32774-32790"]] {
        let fields = ["frame.number", "homa.summary", "_ws.lua.error"];
        let shown = tshark(temporary.path(), &fields, arguments);
        let homa = shown.iter().filter(|frame| !frame[1].is_empty());
        assert!(homa.count() > 1_500);
        assert_eq!(shown.len(), 6_000);
        for frame in shown {
            assert!(frame[2].is_empty(), "{frame:?}");
        }
    }
}

#[test]
fn what_the_simulator_writes_is_read_by_us_and_by_tshark() {
    for (framing, encapsulation) in [("ip146", "ip"), ("udp", "udp")] {
        let path =
            std::env::temp_dir().join(format!("homa-{}-sim-{framing}.pcapng", std::process::id()));
        let name = path.to_str().expect("UTF-8");
        let set = format!("options.framing={framing}");
        let arguments = ["sim", "--scheme", "homa", "--messages", "50", "--set", &set];
        let shape = ["--set", "fabric.shape={kind=\"single-switch\",hosts=4}"];
        let trace = ["--trace", name, "--format", "json"];
        let output = common::homa(&[&arguments[..], &shape, &trace].concat());
        assert_eq!(common::code(&output), 0, "{}", common::stderr(&output));
        let file = std::fs::read(&path).expect("a trace");
        std::fs::remove_file(&path).expect("removed");
        let capture = decoded(&file, &[]);
        let totals = &capture["totals"];
        assert_eq!(totals["frames"], totals["homa_frames"]);
        assert_eq!(totals["encapsulations"][encapsulation], totals["packets"]);
        assert_eq!(
            (&totals["cut"], totals["malformed"].as_object().unwrap().len()),
            (&Value::from(0), 0)
        );
        assert!(totals["types"]["DATA"].as_u64().is_some_and(|count| count >= 50));
        if has_tshark() {
            let rows = capture["packets"].as_array().expect("rows").len();
            assert_eq!(compare(&format!("sim-{framing}.pcapng"), &file, &[]), rows);
        }
    }
}

#[test]
fn tshark_divides_trains_as_we_do() {
    if !has_tshark() {
        return;
    }
    let mut frames = Vec::new();
    for (side, datagrams) in conversation() {
        for v4 in [true, false] {
            frames.push(ETHERNET.frame(&packet(v4, side, &datagrams.concat())));
        }
    }
    let mut records = records(frames);
    let whole = records.clone();
    assert_eq!(compare("trains.pcap", &PLAIN.file(1, &records), &[]), 2 * 55);
    // Cut in the middle of a train, in its first datagram, and inside a header.
    for (record, kept) in records.iter_mut().zip([3_200, 3_300, 90, 110, 120, 30_000, 1_530]) {
        record.bytes.truncate(kept);
    }
    compare("cut-trains.pcap", &PLAIN.file(1, &records), &[]);
    // Behind good ones, so that both know the sockets.
    let mut some = [whole, mutated(1_000, &LENGTHS[..1])].concat();
    // The same datagrams again and again, too far apart to be copies of each other.
    for (seconds, record) in (0..).zip(&mut some) {
        record.time = 1_700_000_000_000_000_000 + 2_000_000_000 * seconds;
    }
    let file = PLAIN.file(1, &some);
    let temporary = Temporary::new("some-trains.pcap", &file);
    let shown = tshark(temporary.path(), &["homa.summary"], &["-o", "homa.ports:4000"]);
    compare_lines("some-trains.pcap", &file, &shown);
    // A length that lies is Wireshark's to judge.
    let file = PLAIN.file(1, &mutated(2_000, &LENGTHS));
    let temporary = Temporary::new("mutated.pcap", &file);
    let fields = ["homa.summary", "homa.udp.train.datagrams", "_ws.lua.error"];
    let shown = tshark(temporary.path(), &fields, &[]);
    for frame in &shown {
        assert!(frame[2].is_empty(), "{frame:?}");
    }
    assert!(shown.iter().filter(|frame| !frame[1].is_empty()).count() > 500);
}
