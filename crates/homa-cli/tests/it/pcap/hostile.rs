//! Damaged and hostile captures: the program says something sensible about each and never fails
//! otherwise.

use homa_workload::rng::Rng;
use pcap_file::Endianness;

use super::formats::{PLAIN, carried};
use super::frames::{ETHERNET, Format, Record, kernel_packets};
use super::{common, decoded, pcap};

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.uniform_below(bound as u32) as usize
}

/// Frames of the kernel's packets in every encapsulation with a few bytes changed, some shortened.
pub fn damaged(count: usize) -> Vec<Record> {
    let mut rng = Rng::stream(7, "captures");
    let vectors = kernel_packets();
    let frames: Vec<Vec<u8>> =
        vectors.iter().flat_map(carried).map(|(ip, _)| ETHERNET.frame(&ip)).collect();
    (0..count)
        .map(|index| {
            let mut bytes = frames[below(&mut rng, frames.len())].clone();
            // Faults in headers matter most.
            let headers = bytes.len().min(150);
            for _ in 0..below(&mut rng, 4) {
                let at = below(&mut rng, headers);
                bytes[at] = below(&mut rng, 256) as u8;
            }
            let original = bytes.len() as u32;
            if below(&mut rng, 3) == 0 {
                bytes.truncate(below(&mut rng, headers));
            }
            Record { time: 1_000 * index as u64, bytes, original }
        })
        .collect()
}

#[test]
fn damaged_frames_are_counted_and_nothing_else_happens() {
    let records = damaged(20_000);
    let capture = decoded(&PLAIN.file(1, &records), &["--rpcs", "--max-rpcs", "500"]);
    let totals = &capture["totals"];
    let sum = |key: &str| -> u64 {
        totals[key].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
    };
    let homa = totals["homa_frames"].as_u64().unwrap();
    assert!(homa > 5_000 && sum("malformed") > 100, "{totals}");
    assert_eq!(homa + sum("icmp") + sum("unreadable") + sum("other"), 20_000);
    let (types, cut) = (sum("types"), totals["cut"].as_u64().unwrap());
    let packets = totals["packets"].as_u64().unwrap();
    assert!(types + cut + sum("malformed") >= packets && types + sum("malformed") <= packets);
}

/// A block of a little-endian pcapng section.
pub fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

/// The section header and the capture's only packet, around other blocks.
fn section(blocks: &[u8], interface: u32) -> Vec<u8> {
    let head = block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255]);
    let ip = carried(&kernel_packets()[0])[0].0.clone();
    let mut frame = ETHERNET.frame(&ip);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let fields = [interface, 0, 7_000, frame.len() as u32, frame.len() as u32];
    let fields = fields.map(u32::to_le_bytes).concat();
    [&head[..], blocks, &block(6, &[&fields[..], &frame].concat())].concat()
}

#[test]
fn an_interface_with_a_cut_option_keeps_its_number() {
    // Ethernet; its last option announces eight bytes that are not there.
    let cut = block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 14, 0, 8, 0]);
    let other = block(1, &[99, 0, 0, 0, 0, 0, 0, 0]);
    let capture = decoded(&section(&[&other[..], &cut, &other].concat(), 1), &[]);
    assert_eq!(capture["totals"]["homa_frames"], 1, "{capture}");
    assert_eq!(capture["start_unix_ns"], "7000000");
}

#[test]
fn more_interfaces_than_anybody_has_are_damage() {
    let one = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    let capture = decoded(&section(&one.repeat(65_536), 65_535), &[]);
    assert_eq!(capture["totals"]["homa_frames"], 1);
    for blocks in [one.repeat(65_537), block(1, &[1, 0, 0, 0])] {
        let output = pcap(&section(&blocks, 0), &["--format", "json"]);
        assert_eq!(common::code(&output), 1);
        let damage = common::document(&output)["captures"][0]["damage"].take();
        assert!(damage.as_str().is_some_and(|text| text.contains("interface")), "{damage}");
    }
}

#[test]
fn damaged_files_end_with_a_verdict_and_a_hint() {
    let mut rng = Rng::stream(8, "files");
    let records = damaged(30);
    for round in 0..60 {
        let format = [PLAIN, Format::PcapNg(Endianness::Big, 9)][round % 2];
        let mut file = format.file(1, &records);
        for _ in 0..=below(&mut rng, 3) {
            let at = below(&mut rng, file.len().min(400));
            file[at] = below(&mut rng, 256) as u8;
        }
        file.truncate(below(&mut rng, file.len() + 1));
        let output = pcap(&file, &["--format", "json"]);
        let code = common::code(&output);
        assert!((0..=2).contains(&code), "round {round}: {}", common::stderr(&output));
        if code < 2 {
            common::document(&output);
        }
        let last = common::stderr(&output).trim_end().lines().last().map(str::to_owned);
        assert!(code == 0 || last.is_some_and(|line| line.starts_with("hint: ")));
    }
}
