//! The same packets in every container mean the same.

use homa_proto::wire::datagram;
use pcap_file::{Endianness, TsResolution};

use super::frames::{
    ETHERNET, FORMATS, Format, LINKS, Record, Vector, ipv4, ipv4_with, ipv6, kernel_packets,
    records, udp,
};
use super::{common, decoded, lines, pcap};

pub const PLAIN: Format = Format::Pcap(Endianness::Little, TsResolution::MicroSecond);

/// The host that sends a packet: 1 for the server.
pub fn side(vector: &Vector) -> u8 {
    u8::from(vector.ports().0 < 0x8000)
}

/// A datagram in our format with packets as the kernel module writes them.
pub fn datagram_of(number: u64, packets: &[&Vector]) -> Vec<u8> {
    let flags = if packets.len() > 1 { datagram::AGGREGATE } else { 0 };
    let mut bytes = vec![datagram::VERSION, flags, 0, 0, 0, 0, 0, 0];
    bytes.extend(number.to_be_bytes());
    for packet in packets {
        if packets.len() > 1 {
            bytes.extend(u16::try_from(packet.bytes.len()).expect("fits").to_be_bytes());
        }
        bytes.extend(&packet.bytes);
    }
    bytes
}

/// A packet in every encapsulation, with the end of its line.
pub fn carried(vector: &Vector) -> [(Vec<u8>, &'static str); 6] {
    let (bytes, level, side) = (&vector.bytes, vector.level(), side(vector));
    let (source, destination) = vector.ports();
    let datagram = udp(source, destination, &datagram_of(9, &[vector]));
    [
        (ipv4(side, 146, level, bytes), ""),
        (ipv4_with(side, (146, level), &[7, 7, 4, 0, 0, 0, 0, 0], bytes), ""),
        (ipv6(side, (146, level), &[], bytes), ""),
        (ipv6(side, (146, level), &[0, 43, 60], bytes), ""),
        (ipv4(side, 6, level, bytes), " [tcp]"),
        (ipv6(side, (17, level), &[60], &datagram), " [udp 9]"),
    ]
}

fn expected(vector: &Vector, ip: &[u8], suffix: &str) -> String {
    let (source, destination) = vector.ports();
    let (me, you) = (11 + side(vector), 12 - side(vector));
    let said = vector.said();
    if ip[0] >> 4 == 4 {
        format!("10.99.0.{me}:{source} > 10.99.0.{you}:{destination} {said}{suffix}")
    } else {
        format!("[fd99::{me}]:{source} > [fd99::{you}]:{destination} {said}{suffix}")
    }
}

/// The line without time; without "duplicate", which the same packet six times has to be.
fn untimed(line: &str) -> String {
    let rest = line.trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    rest.trim_end_matches(" [duplicate]").to_owned()
}

#[test]
fn kernel_packets_read_the_same_in_every_format() {
    let vectors = kernel_packets();
    assert!(vectors.len() >= 30, "all vectors are read");
    let packets: Vec<(Vec<u8>, String)> = vectors
        .iter()
        .flat_map(|vector| {
            carried(vector).map(|(ip, suffix)| {
                let line = expected(vector, &ip, suffix);
                (ip, line)
            })
        })
        .collect();
    for format in FORMATS {
        for link in LINKS {
            let frames = packets.iter().map(|(ip, _)| link.frame(ip));
            let file = format.file(link.number, &records(frames));
            let shown = lines(&file, &["--packets"]);
            for ((index, line), (_, expected)) in shown.iter().enumerate().zip(&packets) {
                assert_eq!(&untimed(line), expected, "packet {index}, {format:?}, {link:?}");
            }
            assert!(shown.len() > packets.len(), "{format:?}, {link:?}");
        }
    }
}

#[test]
fn an_unknown_link_layer_fails_with_those_that_are_decoded() {
    let frames = records(kernel_packets().into_iter().map(|vector| vector.bytes));
    for format in [PLAIN, Format::PcapNg(Endianness::Big, 9)] {
        let output = pcap(&format.file(147, &frames), &["--format", "json"]);
        assert_eq!(common::code(&output), 2);
        let unreadable = &common::document(&output)["captures"][0]["totals"]["unreadable"];
        assert_eq!(unreadable["link type 147"], frames.len());
        let text = common::stderr(&output);
        assert!(text.contains("link type 147") && text.contains("113 and 276"), "{text}");
    }
}

#[test]
fn times_are_those_of_the_file_in_every_resolution() {
    let one = &kernel_packets()[0];
    let ip = ipv4(0, 146, 6, &one.bytes);
    let frame = ETHERNET.frame(&ip);
    let original = frame.len() as u32;
    let at = |time| Record { time, bytes: frame.clone(), original };
    let start = 1_700_000_000_999_999_000;
    let records = [at(start), at(start + 1_234_000), at(start + 3_600_000_001_000)];
    for format in FORMATS {
        let capture = decoded(&format.file(1, &records), &[]);
        assert_eq!(capture["start_unix_ns"], start.to_string(), "{format:?}");
        let times: Vec<_> =
            (0..3).map(|i| capture["packets"][i]["time_ns"].as_i64().unwrap()).collect();
        assert_eq!(times, [0, 1_234_000, 3_600_000_001_000], "{format:?}");
        assert_eq!(capture["duration_ns"], 3_600_000_001_000_i64);
    }
}

#[test]
fn a_cut_packet_is_decoded_as_far_as_it_was_kept() {
    for vector in kernel_packets() {
        for (ip, suffix) in carried(&vector) {
            let frame = ETHERNET.frame(&ip);
            let length = frame.len();
            let header = ip.len() - vector.bytes.len() + 14;
            let needed = match vector.bytes[11] {
                0x10 => 56,
                _ => vector.bytes.len(),
            };
            let kept = |homa: usize| Record {
                time: 0,
                bytes: frame[..(header + homa).min(length)].to_vec(),
                original: length as u32,
            };
            let name = vector.said().split(' ').nth(2).expect("a type");
            let file = PLAIN.file(1, &[kept(needed)]);
            if suffix.contains("udp") && vector.bytes.len() > 1456 {
                // May be a train.
                let shown = untimed(&lines(&file, &["--packets"])[0]);
                assert!(shown.contains("DATA (cut by the capture)"), "{shown}");
                continue;
            }
            let shown = untimed(&lines(&file, &["--packets"])[0]);
            assert_eq!(shown, expected(&vector, &ip, suffix));
            if needed > 28 {
                // One byte less: what depends on it is not made up.
                let shown = untimed(&lines(&PLAIN.file(1, &[kept(needed - 1)]), &["--packets"])[0]);
                assert!(shown.contains(&format!("{name} (cut by the capture)")), "{shown}");
            }
        }
    }
}

#[test]
fn packets_of_an_aggregate_are_divided_and_none_is_invented() {
    let vectors = kernel_packets();
    let short: Vec<&Vector> = vectors.iter().filter(|v| v.bytes.len() < 90).take(4).collect();
    let ip = ipv4(0, 17, 5, &udp(40_000, 4_000, &datagram_of(77, &short)));
    let frame = ETHERNET.frame(&ip);
    let capture = decoded(&PLAIN.file(1, &records([frame.clone()])), &["--packets"]);
    let rows = capture["packets"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for (row, vector) in rows.iter().zip(&short) {
        assert_eq!(row["datagram"], 77);
        assert_eq!(row["source"], "10.99.0.11:40000", "UDP ports count");
        assert_eq!(row["id"], vector.said().split(' ').nth(1).expect("an id"));
    }
    assert_eq!(capture["totals"]["homa_frames"], 1);
    assert_eq!(capture["totals"]["packets"], 4);
    let ends_in_second = frame.len() - short[3].bytes.len() - short[2].bytes.len() - 10;
    let bytes = frame[..ends_in_second].to_vec();
    let record = Record { time: 0, bytes, original: frame.len() as u32 };
    let capture = decoded(&PLAIN.file(1, &[record]), &["--packets"]);
    assert_eq!(capture["packets"].as_array().expect("rows").len(), 2);
    assert_eq!(capture["packets"][1]["cut"], true);
    assert_eq!(capture["totals"]["malformed"], serde_json::json!({}));
}
