//! Damaged and hostile captures: the program says something sensible about each and never fails
//! otherwise.

use homa_workload::rng::Rng;
use pcap_file::Endianness;

use crate::formats::{PLAIN, carried};
use crate::frames::{ETHERNET, Format, Record, kernel_packets};
use crate::{common, decoded, pcap};

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
            // Headers are where it hurts.
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
