//! Trains of datagrams in one captured packet (GSO, GRO) say what the same datagrams say when each
//! was captured by itself, however the lengths around them are written.

use homa_proto::Body;
use homa_workload::rng::Rng;
use serde_json::{Value, json};

use super::conversation::{Talk, acking, acks, data, encoded};
use super::formats::PLAIN;
use super::frames::{ETHERNET, FORMATS, LINKS, Record, ipv4, ipv6, records, udp};
use super::{decoded, lines};

/// Payload of a full datagram.
const FULL: u32 = 1400;

/// A datagram with one packet of a side.
pub fn datagram(number: u64, side: u8, id: u64, body: Body) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(number.to_be_bytes());
    bytes.extend(encoded(side, id, &body));
    bytes
}

/// A message as datagrams, numbered from `number` on, `apart`.
pub fn message(number: u64, apart: u64, side: u8, id: u64, length: u32) -> Vec<Vec<u8>> {
    (0..length.div_ceil(FULL))
        .map(|index| {
            let start = FULL * index;
            let body = data(start..length.min(start + FULL), length, length);
            datagram(number + apart * u64::from(index), side, id, body)
        })
        .collect()
}

/// In IPv4 or IPv6.
pub fn packet(v4: bool, side: u8, payload: &[u8]) -> Vec<u8> {
    let [client, server] = super::conversation::PORTS;
    let (from, to) = if side == 0 { (client, server) } else { (server, client) };
    let udp = udp(from, to, payload);
    if v4 { ipv4(side, 17, 5, &udp) } else { ipv6(side, (17, 5), &[], &udp) }
}

/// Length fields as captures have them in front of a train: right, left for the card to fill in,
/// of the first datagram only.
pub const LENGTHS: [&str; 4] = ["right", "udp 0", "all 0", "the first's"];

/// Writes the length fields of a packet whose first datagram has `first` bytes.
fn relabel(ip: &mut [u8], lengths: &str, first: usize) {
    let (v4, header) = if ip[0] >> 4 == 4 { (true, 20) } else { (false, 40) };
    let (udp, total) = match lengths {
        "udp 0" => (Some(0), None),
        "all 0" => (Some(0), Some(0)),
        "the first's" => (Some(8 + first), Some(8 + first + if v4 { 20 } else { 0 })),
        _ => (None, None),
    };
    let mut write = |at: usize, value: Option<usize>| {
        if let Some(value) = value {
            ip[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        }
    };
    write(header + 4, udp);
    write(if v4 { 2 } else { 4 }, total);
}

/// Rows without their places, and totals but for frames and trains.
fn told(capture: &Value) -> (Vec<Value>, Value, Value) {
    let strip = |rows: &Value| -> Vec<Value> {
        let mut rows = rows.as_array().expect("rows").clone();
        for row in &mut rows {
            for key in ["frame", "time_ns", "first_frame", "start_ns"] {
                row.as_object_mut().expect("a row").remove(key);
            }
            for key in ["first_byte_ns", "latency_ns"] {
                row.as_object_mut().expect("a row").remove(key);
            }
        }
        rows
    };
    let mut totals = capture["totals"].clone();
    for key in ["frames", "homa_frames", "trains"] {
        totals.as_object_mut().expect("totals").remove(key);
    }
    (strip(&capture["packets"]), json!(strip(&capture["rpcs"])), totals)
}

/// A request of 10 kB, its grants and its response of 60 kB, acknowledged by the next request.
pub fn conversation() -> Vec<(u8, Vec<Vec<u8>>)> {
    let short = |number, side, id, body| datagram(number, side, id, body);
    let again = acking(data(0..100, 100, 100), 2);
    vec![
        (0, message(1, 1, 0, 2, 10_000)),
        // Control packets of one size; numbers of what went to others are missing.
        (1, (0..3).map(|i| short(5 + 7 * i, 1, 2, grant(2_000 + 10 * i as u32))).collect()),
        (1, message(100, 3, 1, 2, 56_000)),
        (0, vec![short(9, 0, 4, again)]),
        (1, vec![short(400, 1, 4, data(0..100, 100, 100))]),
        (0, vec![short(u64::MAX, 0, 4, acks(&[])), short(0, 0, 4, acks(&[]))]),
    ]
}

fn grant(offset: u32) -> Body {
    Body::Grant { offset, priority: 1 }
}

#[test]
fn a_train_says_what_its_datagrams_say() {
    let talk = conversation();
    for v4 in [true, false] {
        let single = talk.iter().flat_map(|(side, datagrams)| {
            datagrams.iter().map(|bytes| ETHERNET.frame(&packet(v4, *side, bytes)))
        });
        let expected = told(&decoded(&PLAIN.file(1, &records(single)), &[]));
        assert_eq!(expected.1[0]["ending"], "acked", "{}", expected.1);
        for lengths in LENGTHS {
            for link in [ETHERNET, LINKS[1], LINKS[2], LINKS[4]] {
                let trains = talk.iter().map(|(side, datagrams)| {
                    let mut ip = packet(v4, *side, &datagrams.concat());
                    relabel(&mut ip, lengths, datagrams[0].len());
                    link.frame(&ip)
                });
                let capture = decoded(&PLAIN.file(link.number, &records(trains)), &[]);
                assert_eq!(told(&capture), expected, "{lengths}, {link:?}");
                assert_eq!(capture["totals"]["frames"], talk.len());
                assert_eq!(capture["totals"]["trains"], 4);
                assert_eq!(capture["totals"]["datagrams"], 8 + 3 + 40 + 1 + 1 + 2);
                assert_eq!(capture["totals"]["data_bytes"], 10_000 + 56_000 + 200);
            }
        }
    }
}

#[test]
fn a_train_longer_than_length_fields_can_say_is_divided() {
    let datagrams = message(1, 1, 0, 2, 70_000);
    for v4 in [true, false] {
        // The headers of its first datagram; then the lower halves of the true lengths, or 0.
        let mut ip = packet(v4, 0, &datagrams[0]);
        let header = ip.len() - datagrams[0].len();
        ip.truncate(header);
        ip.extend(datagrams.concat());
        let total = ip.len();
        relabel(&mut ip, "all 0", 0);
        let mut wrapped = ip.clone();
        let (at, value) = if v4 { (2, total) } else { (4, total - 40) };
        wrapped[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        for ip in [ip, wrapped] {
            let file = FORMATS[4].file(1, &records([ETHERNET.frame(&ip)]));
            let capture = decoded(&file, &[]);
            assert_eq!(capture["totals"]["datagrams"], 50);
            assert_eq!(capture["rpcs"][0]["request"]["captured_bytes"], 70_000);
        }
    }
}

/// A datagram with several packets, a length in front of each.
fn aggregate(number: u64, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(number.to_be_bytes());
    for packet in packets {
        bytes.extend((packet.len() as u16).to_be_bytes());
        bytes.extend(packet);
    }
    bytes
}

#[test]
fn aggregates_of_a_train_end_where_their_lengths_say() {
    let several = |number: u64, bytes: [u32; 3]| {
        let packets: Vec<Vec<u8>> = (0_u64..)
            .zip(bytes)
            .map(|(i, length)| encoded(0, 100 * number + 2 * i, &data(0..length, length, length)))
            .collect();
        aggregate(number, &packets)
    };
    let train = [several(1, [300, 200, 100]), several(3, [100, 200, 300]), several(4, [1, 2, 3])];
    assert_eq!(train[0].len(), train[1].len());
    let file = PLAIN.file(1, &records([ETHERNET.frame(&packet(true, 0, &train.concat()))]));
    let capture = decoded(&file, &[]);
    let totals = &capture["totals"];
    assert_eq!((&totals["datagrams"], &totals["packets"]), (&json!(3), &json!(9)));
    assert_eq!(totals["data_bytes"], 1206);
    assert_eq!(totals["malformed"], json!({}));
}

#[test]
fn a_payload_that_holds_homa_traffic_divides_nothing() {
    // A payload that is itself a capture: packets of other ports, and of these ports with distant
    // numbers.
    let mut elsewhere = message(2, 1, 0, 2, 9_000).concat();
    for at in (0..elsewhere.len()).step_by(1472) {
        elsewhere[at + 17] ^= 1;
    }
    let far = message(1 << 40, 1, 0, 2, 9_000).concat();
    for payload in [elsewhere, far] {
        let length = payload.len() as u32;
        let mut one = datagram(1, 0, 2, data(0..length, length, length));
        one.truncate(72);
        one.extend(payload);
        let file = PLAIN.file(1, &records([ETHERNET.frame(&packet(true, 0, &one))]));
        let capture = decoded(&file, &[]);
        assert_eq!(capture["totals"]["trains"], 0, "{}", capture["totals"]);
        assert_eq!(capture["packets"][0]["bytes"], length);
    }
}

#[test]
fn one_broken_datagram_costs_the_train_no_other() {
    let mut train = message(1, 1, 0, 2, 14_000);
    for broken in 1..10 {
        let kept = std::mem::replace(&mut train[broken], vec![7; 1472]);
        let file = PLAIN.file(1, &records([ETHERNET.frame(&packet(true, 0, &train.concat()))]));
        train[broken] = kept;
        let capture = decoded(&file, &[]);
        assert_eq!(capture["totals"]["malformed"], json!({ "unknown datagram version": 1 }));
        assert_eq!(capture["rpcs"][0]["request"]["captured_bytes"], 14_000 - 1400);
    }
}

/// Of every frame, its first bytes.
fn snapped(frames: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let mut records = records(frames.iter().cloned());
    for record in &mut records {
        record.bytes.truncate(snap);
    }
    PLAIN.file(1, &records)
}

#[test]
fn of_a_cut_train_what_is_there_is_divided_and_the_rest_counted() {
    let train = packet(true, 0, &message(1, 1, 0, 2, 14_000).concat());
    let mut unlabelled = train.clone();
    relabel(&mut unlabelled, "all 0", 0);
    for ip in [train, unlabelled] {
        let frame = [ETHERNET.frame(&ip)];
        let headers = 14 + 20 + 8;
        // Three datagrams with their headers, of the third the payload is cut; seven are missing.
        let capture = decoded(&snapped(&frame, headers + 2 * 1472 + 72), &[]);
        let totals = &capture["totals"];
        assert_eq!((&totals["datagrams"], &totals["cut"]), (&json!(10), &json!(7)), "{totals}");
        assert_eq!(capture["rpcs"][0]["request"]["captured_bytes"], 3 * 1400);
        assert_eq!(totals["unclear_trains"], 0);
        // The second header is missing, so the length of the first datagram is unknown.
        let file = snapped(&frame, headers + 1472 + 20);
        let capture = decoded(&file, &[]);
        let totals = &capture["totals"];
        assert_eq!((&totals["unclear_trains"], &totals["cut"]), (&json!(1), &json!(1)));
        assert_eq!(capture["rpcs"][0]["request"]["captured_bytes"], 0);
        let said = lines(&file, &[]).join("\n");
        assert!(said.contains("1 frames cut too short to tell whether they are trains"), "{said}");
    }
    // A datagram that fits into a frame is none, however little is there of it.
    let single = [ETHERNET.frame(&packet(true, 0, &message(1, 1, 0, 2, 1400)[0]))];
    let capture = decoded(&snapped(&single, 120), &[]);
    assert_eq!(capture["totals"]["unclear_trains"], 0);
    assert_eq!(capture["rpcs"][0]["request"]["captured_bytes"], 1400);
}

/// Trains with a few bytes changed, some cut, some with lengths that lie.
pub fn mutated(count: usize, lengths: &[&str]) -> Vec<Record> {
    let mut rng = Rng::stream(11, "trains");
    let mut below = |bound: usize| rng.uniform_below(bound as u32) as usize;
    let talk = conversation();
    (0..count)
        .map(|index| {
            let (side, datagrams) = &talk[below(talk.len())];
            let size = datagrams[0].len();
            let mut bytes = datagrams.concat();
            for _ in 0..below(6) {
                // At a header, or anywhere.
                let near = size * below(datagrams.len()) + below(72);
                let at = if below(3) == 0 { below(bytes.len()) } else { near % bytes.len() };
                bytes[at] = [below(256) as u8, 0, 1, 255][below(4)];
            }
            let mut ip = packet(below(2) == 0, *side, &bytes);
            relabel(&mut ip, lengths[below(lengths.len())], below(3 * size));
            let mut bytes = ETHERNET.frame(&ip);
            let mut original = bytes.len() as u32;
            if below(3) == 0 {
                bytes.truncate(below(bytes.len()));
                original = [original, u32::MAX][below(2)];
            }
            Record { time: 1_000 * index as u64, bytes, original }
        })
        .collect()
}

#[test]
fn mutated_trains_are_counted_and_nothing_else_happens() {
    let count = 3_000;
    let capture =
        decoded(&PLAIN.file(1, &mutated(count, &LENGTHS)), &["--rpcs", "--max-rpcs", "500"]);
    let totals = &capture["totals"];
    let number = |key: &str| totals[key].as_u64().expect("a number");
    let sum = |key: &str| -> u64 {
        totals[key].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
    };
    let frames = number("homa_frames") + sum("icmp") + sum("unreadable") + sum("other");
    assert_eq!(frames, count as u64);
    assert!(number("trains") > 1_000 && sum("malformed") > 200, "{totals}");
    // No frame is believed to be longer than a kernel makes them.
    assert!(number("datagrams") < count as u64 * (256 << 10) / 44);
    assert!(number("packets") >= number("datagrams"), "{totals}");
}

#[test]
fn a_capture_says_what_began_before_it_and_what_it_lacks() {
    let response = |range: std::ops::Range<u32>| data(range, 4_200, 4_200);
    let mut talk = Talk::default();
    // Under way when the capture began.
    talk.say(0, 1, 2, 5, response(2_800..4_200));
    talk.say(10, 0, 2, 7, acks(&[]));
    // All there but a packet in the middle.
    talk.say(20, 0, 4, 5, data(0..100, 100, 100));
    talk.say(30, 1, 4, 5, response(0..1_400));
    talk.say(40, 1, 4, 5, response(2_800..4_200));
    talk.say(50, 0, 4, 7, acks(&[]));
    // An answer to a message that was not captured whole.
    talk.say(60, 0, 6, 5, data(0..1_400, 2_800, 2_800));
    talk.say(70, 1, 6, 5, response(0..1_400));
    talk.say(80, 0, 6, 7, acks(&[]));
    // Given up.
    talk.say(90, 0, 8, 5, data(0..100, 100, 100));
    talk.say(100, 0, 8, 7, acks(&[]));
    // Under way when it ended.
    talk.say(110, 0, 10, 5, data(0..100, 100, 100));
    let capture = decoded(&talk.file(), &[]);
    let rows = capture["rpcs"].as_array().expect("rows");
    let endings: Vec<_> = rows.iter().map(|row| row["ending"].as_str().unwrap()).collect();
    assert_eq!(endings, ["acked_before", "acked_gaps", "acked_gaps", "acked_unseen", "open"]);
    let before: Vec<_> = rows.iter().map(|row| row["began_before"] == true).collect();
    assert_eq!(before, [true, false, false, false, false]);
    assert_eq!(capture["totals"]["under_way"], json!({ "at_start": 1, "at_end": 1 }));
    let said = lines(&talk.file(), &[]).join("\n");
    assert!(said.contains("1 RPCs without their beginning") && said.contains("\n1 RPCs under way"));
    assert_eq!(said.matches("cancelled?").count(), 1, "{said}");
}

#[test]
fn frames_that_the_capturing_host_lost_are_told() {
    let frame = ETHERNET.frame(&packet(true, 0, &message(1, 1, 0, 2, 100)[0]));
    let mut file = FORMATS[4].file(1, &records([frame]));
    // Interface statistics, twice: the latter counts. Received 9, dropped 3 and 4.
    for lost in [1_u64, 3] {
        let mut body = vec![0; 12];
        for (code, count) in [(4_u16, 9_u64), (5, lost), (7, 4)] {
            body.extend([code.to_le_bytes(), 8_u16.to_le_bytes()].concat());
            body.extend(count.to_le_bytes());
        }
        file.extend(super::hostile::block(5, &body));
    }
    assert_eq!(decoded(&file, &[])["totals"]["dropped"], 7);
    assert!(lines(&file, &[]).contains(&"7 frames lost while the capture was made".to_owned()));
}
