//! Captures that are compressed, and archives that are hostile.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::formats::{PLAIN, carried};
use super::frames::{ETHERNET, FORMATS, kernel_packets, records};
use super::{common, decoded, lines, pcap};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// A frame of zstd that has no content, of a few bytes.
const SKIPPED: [u8; 11] = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];

#[test]
fn a_packed_capture_says_what_the_plain_one_says() {
    let frames = kernel_packets()
        .into_iter()
        .flat_map(|vector| carried(&vector).map(|(ip, _)| ETHERNET.frame(&ip)));
    let frames = records(frames);
    for format in FORMATS {
        let plain = format.file(1, &frames);
        let expected = lines(&plain, &[]);
        let (first, second) = plain.split_at(plain.len() / 3);
        let packed = [
            gzip(&plain),
            zstd(&plain),
            // As programs that append to a file leave it.
            [gzip(first), gzip(second)].concat(),
            [&SKIPPED[..], &zstd(first), &SKIPPED, &zstd(second), &SKIPPED].concat(),
        ];
        for (way, file) in packed.iter().enumerate() {
            assert_eq!(lines(file, &[]), expected, "{format:?}, way {way}");
        }
    }
}

#[test]
fn a_damaged_archive_is_read_up_to_there() {
    let frames = (0..4_000).map(|_| ETHERNET.frame(&carried(&kernel_packets()[0])[0].0));
    let plain = PLAIN.file(1, &records(frames));
    // Of a frame of zstd that breaks off, what its window holds is lost.
    let (first, second) = plain.split_at(plain.len() / 2);
    let frames = [zstd(first), zstd(second)].concat();
    for (name, packed) in [("gzip", gzip(&plain)), ("zstd", frames)] {
        let output = pcap(&packed[..packed.len() - 9], &["--format", "json"]);
        assert_eq!(common::code(&output), 1, "{name}: {}", common::stderr(&output));
        let capture = common::document(&output)["captures"][0].take();
        assert!(capture["damage"].is_string(), "{name}");
        assert!(capture["totals"]["packets"].as_u64().is_some_and(|packets| packets > 100));
        for file in [&packed[..6], &[&packed[..4], &[0xff; 40][..]].concat()] {
            let output = pcap(file, &[]);
            assert_eq!(common::code(&output), 2, "{name}: {}", common::stderr(&output));
            assert!(common::stderr(&output).contains("hint: "));
        }
    }
}

#[test]
fn other_archives_are_named_and_layers_are_not_peeled_twice() {
    let plain = PLAIN.file(1, &records([]));
    let xz = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 0];
    for (file, said) in [
        (gzip(&gzip(&plain)), "a gzip file, no capture"),
        (xz.to_vec(), "a xz file, no capture"),
        (b"BZh91AY&SY".to_vec(), "a bzip2 file, no capture"),
        (gzip(b"text"), "neither pcap nor pcapng"),
    ] {
        let output = pcap(&file, &[]);
        assert_eq!(common::code(&output), 2);
        assert!(common::stderr(&output).contains(said), "{}", common::stderr(&output));
    }
}

/// Memory is that of a window, whatever a file unpacks to.
#[test]
fn a_bomb_takes_no_memory() {
    // Records of no bytes, a million of them, in some 20 kB.
    let bomb = [PLAIN.file(1, &records([])), vec![0; 16_000_000]].concat();
    for packed in [gzip(&bomb), zstd(&bomb)] {
        assert!(packed.len() < 100_000, "{}", packed.len());
        let totals = decoded(&packed, &["--rpcs"])["totals"].take();
        assert_eq!(totals["frames"], 1_000_000);
    }
    // A window of 2^41 bytes, which would have to be remembered.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 31 << 3, 1, 0, 0];
    let output = pcap(&window, &[]);
    assert_eq!(common::code(&output), 2);
    assert!(common::stderr(&output).contains("damaged zstd: "), "{}", common::stderr(&output));
}
