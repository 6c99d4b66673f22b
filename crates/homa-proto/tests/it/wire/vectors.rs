//! Written and captured packets: each decodes to its stated meaning and is encoded to the same
//! bytes again, except for the fields in which we deliberately differ from a kernel sender.

use super::PEER;
use super::generator::mirrored;
use homa_proto::wire;

/// One entry of a file of vectors.
struct Vector {
    name: String,
    means: String,
    bytes: Vec<u8>,
    /// Payload bytes that the file left out.
    payload: usize,
}

fn read(file: &str) -> Vec<Vector> {
    let text: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    let entries = text.split(|line| line.is_empty()).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let field = |name: &str| entry.iter().find_map(|line| line.strip_prefix(name));
            let hex = entry.join(" ");
            let (_, hex) = hex.split_once("bytes: ").expect("every vector has bytes");
            Vector {
                name: field("name: ").expect("every vector has a name").into(),
                means: field("means: ").expect("every vector has a meaning").into(),
                bytes: unhex(hex),
                payload: field("payload: ").map_or(0, |n| n.parse().expect("a number")),
            }
        })
        .collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The priority level in "32768 > 4000 P6 …".
fn level(means: &str) -> u8 {
    let (_, rest) = means.split_once(" P").expect("a level");
    rest[..1].parse().expect("a level")
}

/// The bytes that we would write, if a kernel sender writes others.
fn as_we_would(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[16..18].fill(0); // We leave the checksum, which no receiver reads, at zero.
    if bytes[11] == wire::kind::DATA {
        // A train that the kernel segments says 0xd0: the card repeats its header without the
        // offset.
        bytes[12] = 0xe0;
        if bytes[52..56] == [0xff; 4] {
            bytes.copy_within(4..8, 52);
        } else {
            bytes.copy_within(52..56, 4);
        }
    }
    bytes
}

fn check(file: &str) -> usize {
    let vectors = read(file);
    for vector in &vectors {
        let mut bytes = vector.bytes.clone();
        bytes.resize(bytes.len() + vector.payload, 0);
        let decoded = wire::decode(&bytes, PEER, level(&vector.means))
            .unwrap_or_else(|reason| panic!("{}: {reason:?}", vector.name));
        let line = wire::pretty::received(&decoded.packet).to_string();
        assert_eq!(line, vector.means, "{}", vector.name);

        let mut header = [0xee; 100];
        let sent = mirrored(&decoded.packet);
        let length = wire::encode(&sent, &mut header).expect("room for every header");
        assert_eq!(length + decoded.payload.len(), bytes.len(), "{}", vector.name);
        let expected = as_we_would(bytes);
        assert_eq!(header[..length], expected[..length], "{}", vector.name);
    }
    vectors.len()
}

#[test]
fn the_documented_layout_is_read_and_written() {
    assert_eq!(check(include_str!("../../vectors/layout.txt")), 12);
}

#[test]
fn captured_kernel_packets_are_read_and_written() {
    assert_eq!(check(include_str!("../../vectors/captured.txt")), 30);
}
