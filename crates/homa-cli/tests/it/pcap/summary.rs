//! What the summary says of RPCs, and that nothing in a capture is lost.

use homa_proto::{Body, ResendLength};
use serde_json::{Value, json};

use super::conversation::{Talk, acking, acks, again, data, encoded, resend_all};
use super::formats::{PLAIN, carried, datagram_of};
use super::frames::{ETHERNET, Record, Vector, ipv4, ipv6, kernel_packets, records, udp};
use super::{common, decoded, lines, pcap};

fn rpcs(talk: &Talk) -> Vec<Value> {
    decoded(&talk.file(), &["--rpcs"])["rpcs"].as_array().expect("rows").clone()
}

/// A request of 2,800 bytes and a response of 4,200; one packet is lost and asked for.
fn eventful() -> Talk {
    let mut talk = Talk::default();
    talk.say(0, 0, 2, 5, data(0..1400, 2800, 1400));
    talk.say(10, 1, 2, 7, Body::Grant { offset: 2800, priority: 1 });
    talk.say(20, 0, 2, 1, data(1400..2800, 2800, 1400));
    talk.say(5_020, 0, 2, 7, resend_all());
    talk.say(5_030, 1, 2, 7, Body::Busy { come_back: None });
    talk.say(6_000, 1, 2, 4, data(0..1400, 4200, 2800));
    talk.say(6_005, 1, 2, 4, data(0..1400, 4200, 2800));
    talk.say(6_010, 0, 2, 7, Body::Grant { offset: 3000, priority: 0 });
    talk.say(6_020, 0, 2, 7, Body::Grant { offset: 4200, priority: 2 });
    talk.say(6_030, 1, 2, 2, data(2800..4200, 4200, 2800));
    let missing = ResendLength::Bytes(1400);
    talk.say(11_000, 0, 2, 7, Body::Resend { offset: 1400, length: missing, priority: 6 });
    talk.say(11_040, 1, 2, 6, again(1400..2800, 4200));
    talk.say(13_000, 1, 2, 7, Body::NeedAck);
    talk.say(13_010, 0, 2, 7, acks(&[]));
    talk
}

#[test]
fn an_rpc_has_its_latency_grants_priorities_and_repairs() {
    let rows = rpcs(&eventful());
    assert_eq!(rows.len(), 1);
    let rpc = &rows[0];
    for (key, expected) in [
        ("id", json!("0x2")),
        ("client", json!("10.99.0.11:32769")),
        ("server", json!("10.99.0.12:4000")),
        ("first_byte_ns", json!(6_000_000)),
        ("latency_ns", json!(11_040_000)),
        ("packets", json!(14)),
        ("retransmitted", json!(1)),
        ("resends", json!(2)),
        ("busys", json!(1)),
        ("grants", json!(3)),
        ("need_acks", json!(1)),
        ("acks", json!(1)),
        ("ending", json!("acked")),
    ] {
        assert_eq!(rpc[key], expected, "{key}");
    }
    let (request, response) = (&rpc["request"], &rpc["response"]);
    assert_eq!(request["length"], 2800);
    assert_eq!(request["unscheduled_levels"], json!([0, 0, 0, 0, 0, 1, 0, 0]));
    assert_eq!(request["scheduled_levels"], json!([0, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(request["granted_bytes"], 1400);
    assert_eq!(response["granted_bytes"], 1400);
    assert_eq!(response["granted_offset"], 4200);
    assert_eq!(response["latest_grant"], json!({ "offset": 4200, "priority": 2 }));
    assert_eq!(response["duplicates"], 1);
    assert_eq!(response["captured_bytes"], 4200);
    let shown = lines(&eventful().file(), &["--rpcs"]);
    let cells: Vec<&str> = shown[1].split_whitespace().collect();
    assert_eq!(
        cells[4..],
        [
            "2800",
            "4200",
            "6000.0",
            "11040.0",
            "14",
            "0+1",
            "0+2",
            "0+1",
            "1+2",
            "1400+1400",
            "45/126",
            "acked"
        ]
    );
}

#[test]
fn the_document_has_the_keys_that_scripts_rely_on() {
    let capture = decoded(&eventful().file(), &[]);
    assert_eq!(
        common::keys(&capture),
        ["damage", "duration_ns", "file", "format", "packets", "rpcs", "start_unix_ns", "totals"]
    );
    let documented = include_str!("../../../../../docs/captures.md");
    let rpc = &capture["rpcs"][0];
    for value in [&capture["totals"], rpc, &rpc["response"], &capture["packets"][0]] {
        for key in common::keys(value) {
            assert!(documented.contains(&format!("\"{key}\"")), "{key} is not documented");
        }
    }
}

#[test]
fn the_order_in_which_frames_were_captured_changes_no_sum() {
    let mut talk = eventful();
    let forwards = rpcs(&talk).remove(0);
    // But for NEED_ACK and ACK, which begin no RPC: they may be about one before the capture.
    talk.records[..12].reverse();
    let capture = decoded(&talk.file(), &["--rpcs"]);
    assert_eq!(capture["totals"]["backward_steps"], 11);
    let backwards = &capture["rpcs"][0];
    for key in ["packets", "retransmitted", "resends", "busys", "grants", "acks", "first_byte_ns"] {
        assert_eq!(backwards[key], forwards[key], "{key}");
    }
    assert_eq!(backwards["response"]["captured_bytes"], 4200);
    assert_eq!(backwards["ending"], "acked");
}

#[test]
fn questions_about_no_rpc_begin_none() {
    let mut talk = eventful();
    // Probes of the path's MTU, and of who calls, name RPCs that do not exist.
    for n in 0..3 {
        talk.say(14_000 + 20 * n, 1, 0x9999 + 0x100 * n, 7, Body::NeedAck);
        talk.say(14_010 + 20 * n, 0, 0x9998 + 0x100 * n, 7, acks(&[]));
    }
    assert_eq!(rpcs(&talk).len(), 1);
}

#[test]
fn endings_are_named_for_what_the_capture_shows() {
    let mut talk = Talk::default();
    let (request, response) = (data(0..100, 100, 100), data(0..100, 100, 100));
    for id in [2, 4, 6, 8, 10, 12, 14] {
        talk.say(id, 0, id, 6, request);
    }
    for id in [2, 4] {
        talk.say(100 + id, 1, id, 6, response);
    }
    // 2 is acknowledged on the request of 16, 6 by a list, before any response.
    talk.say(200, 0, 16, 6, acking(request, 2));
    talk.say(210, 0, 4, 7, acks(&[4, 6]));
    talk.say(220, 0, 99_998, 7, acks(&[99_996]));
    // 8: no host answers.
    let quoted = ipv4(0, 146, 6, &encoded(0, 8, &request));
    let icmp = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted[..64]].concat();
    talk.frame(230, &ipv4(1, 1, 0, &icmp));
    talk.say(5_000, 0, 10, 7, resend_all());
    talk.say(
        5_010,
        1,
        10,
        7,
        Body::RpcUnknown { remembered: None, no_server: false, reason: None },
    );
    for at in [5_000, 10_000, 15_000] {
        talk.say(at, 0, 12, 7, resend_all());
    }
    talk.say(200_000, 1, 16, 7, Body::Busy { come_back: None });
    let rows = rpcs(&talk);
    let of = |key: &str, row: &Value| row[key].as_str().unwrap_or_default().to_owned();
    let endings: Vec<_> = rows.iter().map(|row| (of("id", row), of("ending", row))).collect();
    let endings: Vec<_> = endings.iter().map(|(id, end)| (id.as_str(), end.as_str())).collect();
    assert_eq!(
        endings,
        [
            ("0x2", "acked"),
            ("0x4", "acked"),
            ("0x6", "acked_unseen"),
            ("0x8", "unreachable"),
            ("0xa", "unknown"),
            ("0xc", "unanswered"),
            ("0xe", "silent"),
            ("0x10", "open"),
        ]
    );
    assert_eq!(rows[3]["refusal"], "port unreachable");
    assert_eq!(rows[5]["ending_text"], "server silent: 3 RESENDs unanswered");
    let totals = &decoded(&talk.file(), &[])["totals"];
    assert_eq!(totals["stray_acks"], 2);
    assert_eq!(totals["icmp"]["port unreachable"], 1);
}

#[test]
fn refusals_find_their_rpc_in_every_encapsulation() {
    let vector = &kernel_packets()[0];
    for (ip, suffix) in carried(vector) {
        let v4 = ip[0] >> 4 == 4;
        let quoted = &ip[..ip.len().min(150)];
        for (kind, code, expected) in [
            (if v4 { 3 } else { 1 }, if v4 { 3 } else { 4 }, "port unreachable"),
            (if v4 { 3 } else { 4 }, if v4 { 2 } else { 1 }, "protocol unreachable"),
            (if v4 { 3 } else { 1 }, 1, "destination unreachable, code 1"),
        ] {
            let icmp = [&[kind, code, 0, 0, 0, 0, 0, 0][..], quoted].concat();
            let answer = if v4 { ipv4(1, 1, 0, &icmp) } else { ipv6(1, (58, 0), &[], &icmp) };
            let frames = [ETHERNET.frame(&ip), ETHERNET.frame(&answer)];
            let capture = decoded(&PLAIN.file(1, &records(frames)), &[]);
            assert_eq!(capture["rpcs"][0]["ending"], "unreachable", "{suffix}");
            assert_eq!(capture["rpcs"][0]["refusal"], expected);
            assert_eq!(capture["packets"][1]["refusal"], expected);
            assert_eq!(capture["packets"][1]["id"], "0x2");
        }
    }
}

#[test]
fn a_packet_that_was_too_big_is_told_and_ends_no_rpc() {
    let vector = &kernel_packets()[0];
    for (ip, suffix) in carried(vector) {
        let v4 = ip[0] >> 4 == 4;
        let quoted = &ip[..ip.len().min(150)];
        let [kind, code] = if v4 { [3, 4] } else { [2, 0] };
        let icmp = [&[kind, code, 0, 0, 0, 0, 0x05, 0x14][..], quoted].concat();
        let answer = if v4 { ipv4(1, 1, 0, &icmp) } else { ipv6(1, (58, 0), &[], &icmp) };
        let frames = [ETHERNET.frame(&ip), ETHERNET.frame(&answer)];
        let capture = decoded(&PLAIN.file(1, &records(frames)), &[]);
        assert_eq!(capture["packets"][1]["refusal"], "packet too big, MTU 1300", "{suffix}");
        assert_eq!(capture["totals"]["icmp"]["packet too big, MTU 1300"], 1);
        assert_eq!(capture["rpcs"][0]["ending"], "open");
        assert_eq!(capture["rpcs"][0]["refusal"], Value::Null);
    }
}

#[test]
fn an_id_used_again_after_a_restart_is_another_rpc() {
    let mut talk = Talk::default();
    for start in [0, 1_000_000] {
        talk.say(start, 0, 2, 6, data(0..100, 100, 100));
        talk.say(start + 50, 1, 2, 6, data(0..300, 300, 300));
    }
    let rows = rpcs(&talk);
    let latencies: Vec<_> = rows.iter().map(|rpc| rpc["latency_ns"].as_u64().unwrap()).collect();
    assert_eq!(latencies, [50_000, 50_000]);
}

#[test]
fn more_rpcs_than_are_kept_are_all_told_once() {
    let mut talk = Talk::default();
    for id in 1..=100 {
        talk.say(1_000 * id, 0, 2 * id, 6, data(0..100, 100, 100));
        talk.say(1_000 * id + 50, 1, 2 * id, 6, data(0..300, 300, 300));
    }
    for selection in [&["--max-rpcs", "3"][..], &["--rpcs", "--max-rpcs", "3"]] {
        let capture = decoded(&talk.file(), selection);
        let rows = capture["rpcs"].as_array().expect("rows");
        let mut ids: Vec<&str> = rows.iter().map(|rpc| rpc["id"].as_str().unwrap()).collect();
        assert!(rows.iter().all(|rpc| rpc["latency_ns"] == 50_000 && rpc["packets"] == 2));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), rows.len()), (100, 100));
        assert_eq!(capture["totals"]["endings"], json!({ "complete": 100 }));
    }
    let shown = lines(&talk.file(), &["--max-rpcs", "3"]);
    let head = shown.iter().position(|line| line.starts_with("id ")).expect("a head");
    assert_eq!(head, 201, "packets come first");
    assert!(shown[head + 1..head + 101].iter().all(|line| line.starts_with("0x")));
}

#[test]
fn filters_show_less_and_count_the_same() {
    let mut talk = eventful();
    talk.say(20_000, 0, 4, 6, data(0..100, 100, 100));
    let file = talk.file();
    let all = decoded(&file, &[]);
    for (filter, packets, rpcs) in [
        (["--rpc", "0x4"], 1, 1),
        (["--rpc", "3"], 14, 1),
        (["--host", "10.99.0.11"], 15, 2),
        (["--host", "10.99.0.9"], 0, 0),
    ] {
        let some = decoded(&file, &filter);
        let rows = |key: &str| some[key].as_array().expect("rows").len();
        assert_eq!((rows("packets"), rows("rpcs")), (packets, rpcs), "{filter:?}");
        assert_eq!(some["totals"], all["totals"]);
    }
}

/// Frames that hold something else, or Homa that breaks the format.
fn odd_frames(good: &Vector) -> Vec<Vec<u8>> {
    let homa = |bytes: &[u8]| ETHERNET.frame(&ipv4(0, 146, 0, bytes));
    let ours = datagram_of(1, &[good]);
    let changed = |at: usize, to: u8| {
        let mut datagram = ours.clone();
        datagram[at] = to;
        ETHERNET.frame(&ipv4(0, 17, 0, &udp(40_000, 4_000, &datagram)))
    };
    let mut unknown = good.bytes.clone();
    unknown[11] = 0x77;
    let mut beyond = good.bytes.clone();
    beyond[28..32].copy_from_slice(&[0, 0, 0, 1]);
    let mut fragment = ipv4(0, 146, 0, &good.bytes);
    fragment[6] = 0x20;
    let mut short_header = ipv4(0, 146, 0, &good.bytes);
    short_header[0] = 0x44;
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let plain_tcp = [&[0; 12][..], &[0x50, 0x12, 0, 0, 0, 0, 0, 0]].concat();
    vec![
        ETHERNET.frame(&ipv4(0, 17, 0, &udp(40_000, 4_000, &ours))),
        changed(0, 2),
        changed(7, 9),
        changed(3, 200),
        homa(&good.bytes[..27]),
        homa(&good.bytes[..40]),
        homa(&good.bytes[..56]),
        homa(&unknown),
        homa(&beyond),
        ETHERNET.frame(&fragment),
        ETHERNET.frame(&short_header),
        ETHERNET.frame(&ipv4(0, 17, 0, &udp(53, 5_353, &ours[..20]))),
        ETHERNET.frame(&ipv4(0, 6, 0, &plain_tcp)),
        ETHERNET.frame(&ipv4(0, 253, 0, &good.bytes)),
        arp,
        vec![1, 2, 3],
    ]
}

#[test]
fn every_frame_is_counted_once_and_what_is_wrong_has_a_reason() {
    let vectors = kernel_packets();
    let frames = odd_frames(&vectors[0]);
    let capture = decoded(&PLAIN.file(1, &records(frames.clone())), &[]);
    let totals = &capture["totals"];
    assert_eq!(
        totals["malformed"],
        json!({
            "DATA without bytes": 1,
            "bytes beyond the message's end": 1,
            "truncated": 3,
            "unknown datagram version": 1,
            "unknown key": 1,
            "unknown type": 1,
        })
    );
    let unreadable =
        json!({ "IP fragment": 1, "cut inside the headers": 1, "invalid IP header": 1 });
    assert_eq!(totals["unreadable"], unreadable);
    let sum = |key: &str| -> u64 {
        totals[key].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
    };
    assert_eq!(sum("other"), 4, "{}", totals["other"]);
    let homa = totals["homa_frames"].as_u64().unwrap();
    assert_eq!(homa + sum("icmp") + sum("unreadable") + sum("other"), frames.len() as u64);
}

#[test]
fn a_datagram_without_a_packet_is_counted() {
    let good = &kernel_packets()[5];
    let bytes = datagram_of(1, &[good, good]);
    let whole = ETHERNET.frame(&ipv4(0, 17, 0, &udp(1, 777, &bytes)));
    let header = whole.len() - bytes.len() + 16;
    let empty = ETHERNET.frame(&ipv4(0, 17, 0, &udp(1, 777, &bytes[..16])));
    // Cut behind the datagram's header, and inside the first length.
    let cut = |kept: usize| Record {
        bytes: whole[..kept].to_vec(),
        ..records([whole.clone()])[0].clone()
    };
    let file = PLAIN.file(1, &[cut(header), cut(header + 1), records([empty])[0].clone()]);
    let totals = decoded(&file, &["--udp-port", "777"])["totals"].take();
    assert_eq!(totals["homa_frames"], 3, "{totals}");
    assert_eq!((&totals["cut"], &totals["malformed"]), (&json!(2), &json!({ "truncated": 1 })));
}

#[test]
fn a_message_in_too_many_pieces_is_not_called_duplicated() {
    let mut talk = Talk::default();
    for piece in 0..300 {
        let start = 200 * piece;
        talk.say(u64::from(piece), 0, 2, 0, data(start..start + 100, 100_000, 100_000));
    }
    // Seen before, and kept.
    talk.say(400, 0, 2, 0, data(0..100, 100_000, 100_000));
    let capture = decoded(&talk.file(), &[]);
    let request = &capture["rpcs"][0]["request"];
    assert_eq!((&request["packets"], &request["duplicates"]), (&json!(301), &json!(1)));
    assert_eq!(request["captured_bytes"], 25_600);
    assert_eq!(capture["totals"]["duplicates"], 1);
}

#[test]
fn a_port_that_the_user_names_is_homa_however_it_looks() {
    let good = &kernel_packets()[5];
    let mut bytes = datagram_of(1, &[good]);
    bytes[1] |= 0x40;
    let file = PLAIN.file(1, &records([ETHERNET.frame(&ipv4(0, 17, 0, &udp(1, 777, &bytes)))]));
    assert_eq!(decoded(&file, &[])["totals"]["other"]["udp"], 1);
    assert_eq!(decoded(&file, &["--udp-port", "777"])["totals"]["types"]["NEED_ACK"], 1);
}

#[test]
fn a_capture_that_breaks_off_is_shown_up_to_there() {
    let file = eventful().file();
    let output = pcap(&file[..file.len() - 5], &["--format", "json"]);
    assert_eq!(common::code(&output), 1);
    assert!(common::stderr(&output).trim_end().lines().last().unwrap().starts_with("hint: "));
    let capture = common::document(&output)["captures"][0].take();
    assert_eq!(capture["totals"]["packets"], 13);
    assert!(capture["damage"].as_str().unwrap().contains("ends inside this record"));
    for (other, hint) in [(&b"no capture"[..], "give a pcap"), (&[4, 0x22, 0x4d, 0x18], "unpack")] {
        let output = pcap(other, &[]);
        assert_eq!(common::code(&output), 2);
        assert!(output.stdout.is_empty());
        assert!(common::stderr(&output).contains(&format!("hint: {hint}")));
    }
}
