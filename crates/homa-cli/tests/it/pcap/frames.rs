//! Frames and capture files built from vectors: every link layer, IP version, encapsulation and
//! file format around the same Homa packets. Files are written by another implementation than the
//! one under test (the crate `pcap-file`).

use std::path::PathBuf;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, TsResolution};

/// A Homa packet with its meaning, as the protocol's own tests have it.
#[derive(Clone, Debug)]
pub struct Vector {
    /// `32774 > 4000 P6 0x2 DATA …`
    pub means: String,
    /// The packet, payload included (zeros).
    pub bytes: Vec<u8>,
}

impl Vector {
    /// The level in its meaning.
    pub fn level(&self) -> u8 {
        let (_, rest) = self.means.split_once(" P").expect("a level");
        rest[..1].parse().expect("a level")
    }

    /// What it says without ports: level, id and body.
    pub fn said(&self) -> &str {
        &self.means[self.means.find(" P").expect("a level") + 1..]
    }

    /// Source and destination port.
    pub fn ports(&self) -> (u16, u16) {
        let (ports, _) = self.means.split_once(" P").expect("a level");
        let (source, destination) = ports.split_once(" > ").expect("two ports");
        (source.parse().expect("a port"), destination.parse().expect("a port"))
    }
}

/// Packets captured from the Linux kernel module.
pub fn kernel_packets() -> Vec<Vector> {
    let text = include_str!("../../../../homa-proto/tests/vectors/captured.txt");
    let entries = text.split("\n\n").filter(|entry| entry.contains("means: "));
    entries.map(vector).collect()
}

fn vector(entry: &str) -> Vector {
    let (mut means, mut payload, mut hex) = (String::new(), 0, String::new());
    for line in entry.lines() {
        match line.split_once(": ") {
            Some(("means", rest)) => means = rest.to_owned(),
            Some(("payload", rest)) => payload = rest.parse().expect("a number"),
            Some(("bytes", rest)) => hex = rest.to_owned(),
            Some(_) => {}
            None => hex.push_str(line),
        }
    }
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |d: u8| (d as char).to_digit(16).expect("a digit") as u8;
    let mut bytes: Vec<u8> = digits.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect();
    bytes.resize(bytes.len() + payload, 0);
    Vector { means, bytes }
}

/// What the client (side 0) or the server (side 1) sends, in IPv4: 10.99.0.11 and 10.99.0.12.
pub fn ipv4(side: u8, protocol: u8, level: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(side, (protocol, level), &[], payload)
}

/// As [`ipv4`], with options (a multiple of 4 bytes).
pub fn ipv4_with(side: u8, (protocol, level): (u8, u8), options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = u16::try_from(header + payload.len()).expect("fits");
    let mut packet = vec![0x40 | (header / 4) as u8, level << 5];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend([10, 99, 0, 11 + side, 10, 99, 0, 12 - side]);
    packet.extend(options);
    packet.extend(payload);
    packet
}

/// In IPv6, fd99::11 and fd99::12, behind extension headers of 8 bytes each: their numbers.
pub fn ipv6(side: u8, (protocol, level): (u8, u8), extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 * extensions.len() + payload.len()).expect("fits");
    let mut packet = vec![0x60 | level << 1, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([extensions.first().copied().unwrap_or(protocol), 64]);
    for host in [0x11 + side, 0x12 - side] {
        packet.extend([0xfd, 0x99]);
        packet.extend([0; 13]);
        packet.push(host);
    }
    for at in 0..extensions.len() {
        packet.push(extensions.get(at + 1).copied().unwrap_or(protocol));
        packet.extend([0; 7]);
    }
    packet.extend(payload);
    packet
}

/// UDP between two ports, without a checksum.
pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("fits");
    let mut datagram = Vec::new();
    for field in [source, destination, length, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(payload);
    datagram
}

/// A link layer around IP packets.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its number in capture files.
    pub number: u32,
    /// Bytes in front of an IPv4 and of an IPv6 packet.
    header: [&'static [u8]; 2],
}

/// All that are understood.
pub const LINKS: [Link; 9] = [
    ETHERNET,
    Link { number: 1, header: [&tagged([0x08, 0x00]), &tagged([0x86, 0xdd])] },
    Link { number: 113, header: [&cooked([0x08, 0x00]), &cooked([0x86, 0xdd])] },
    Link { number: 276, header: [&cooked_2([0x08, 0x00]), &cooked_2([0x86, 0xdd])] },
    Link { number: 101, header: [&[], &[]] },
    Link { number: 12, header: [&[], &[]] },
    Link { number: 0, header: [&[2, 0, 0, 0], &[30, 0, 0, 0]] },
    Link { number: 0, header: [&[0, 0, 0, 2], &[0, 0, 0, 24]] },
    Link { number: 108, header: [&[0, 0, 0, 2], &[0, 0, 0, 28]] },
];

/// Plain Ethernet.
pub const ETHERNET: Link =
    Link { number: 1, header: [&ethernet([0x08, 0x00]), &ethernet([0x86, 0xdd])] };

const fn ethernet([high, low]: [u8; 2]) -> [u8; 14] {
    [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, high, low]
}

/// Two tags: the provider's and the customer's.
const fn tagged([high, low]: [u8; 2]) -> [u8; 22] {
    [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 9, high, low]
}

const fn cooked([high, low]: [u8; 2]) -> [u8; 16] {
    [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, high, low]
}

const fn cooked_2([high, low]: [u8; 2]) -> [u8; 20] {
    [high, low, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]
}

impl Link {
    /// A frame around an IP packet, padded as Ethernet pads short ones.
    pub fn frame(&self, ip: &[u8]) -> Vec<u8> {
        let header = self.header[usize::from(ip[0] >> 4 == 6)];
        let mut frame = [header, ip].concat();
        if self.number == 1 && frame.len() < 60 {
            frame.resize(60, 0x55);
        }
        frame
    }
}

/// A frame of a file.
#[derive(Clone, Debug)]
pub struct Record {
    /// Nanoseconds.
    pub time: u64,
    /// The frame as captured.
    pub bytes: Vec<u8>,
    /// How long it was.
    pub original: u32,
}

/// Whole frames, a microsecond apart.
pub fn records(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Record> {
    let second = 1_700_000_000_000_000_000;
    (0..)
        .zip(frames)
        .map(|(index, bytes): (u64, Vec<u8>)| Record {
            time: second + 1_000 * index,
            original: bytes.len() as u32,
            bytes,
        })
        .collect()
}

/// A file format.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// Classic.
    Pcap(Endianness, TsResolution),
    /// With the interface's resolution option.
    PcapNg(Endianness, u8),
}

/// All that are understood.
pub const FORMATS: [Format; 7] = [
    Format::Pcap(Endianness::Little, TsResolution::MicroSecond),
    Format::Pcap(Endianness::Big, TsResolution::MicroSecond),
    Format::Pcap(Endianness::Little, TsResolution::NanoSecond),
    Format::Pcap(Endianness::Big, TsResolution::NanoSecond),
    Format::PcapNg(Endianness::Little, 9),
    Format::PcapNg(Endianness::Big, 9),
    Format::PcapNg(Endianness::Little, 6),
];

impl Format {
    /// The file's bytes.
    pub fn file(self, link: u32, records: &[Record]) -> Vec<u8> {
        match self {
            Self::Pcap(endianness, ts_resolution) => {
                let datalink = DataLink::from(link);
                let header =
                    PcapHeader { endianness, ts_resolution, datalink, ..PcapHeader::default() };
                let mut writer =
                    PcapWriter::with_header(Vec::new(), header).expect("a valid header");
                for record in records {
                    let time = Duration::from_nanos(record.time);
                    let packet = PcapPacket::new(time, record.original, &record.bytes);
                    writer.write_packet(&packet).expect("a valid packet");
                }
                writer.into_writer()
            }
            Self::PcapNg(endianness, resolution) => {
                let mut writer =
                    PcapNgWriter::with_endianness(Vec::new(), endianness).expect("a valid section");
                let mut interface = InterfaceDescriptionBlock::new(DataLink::from(link), 0xffff);
                interface.options.push(InterfaceDescriptionOption::IfTsResol(resolution));
                writer.write_pcapng_block(interface).expect("a valid interface");
                for record in records {
                    let ticks = record.time / 10_u64.pow(9 - u32::from(resolution));
                    let block = EnhancedPacketBlock {
                        interface_id: 0,
                        // The writer takes nanoseconds for ticks.
                        timestamp: Duration::from_nanos(ticks),
                        original_len: record.original,
                        data: record.bytes.as_slice().into(),
                        options: Vec::new(),
                    };
                    writer.write_pcapng_block(block).expect("a valid packet");
                }
                writer.into_inner()
            }
        }
    }
}

/// A file that goes away.
#[derive(Debug)]
pub struct Temporary(pub PathBuf);

impl Temporary {
    /// With these bytes; `name` is unique to the test.
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("homa-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("written");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
