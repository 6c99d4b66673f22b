//! `--decrypted`: a capture of what a log of secrets has opened, for programs that do not decrypt,
//! such as Wireshark with our dissector.
//!
//! Each opened UDP payload becomes a raw IP packet with a new header: the link layer, tunnels, IP
//! options and the tags of encryption are left out, and so is everything that was not opened.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The magic number of pcap with nanoseconds, its version 2.4, and the link type of raw IP.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const RAW_IP: u32 = 101;
/// Longest packet of a capture, bytes.
const LONGEST: u32 = 262_144;
const UDP: u8 = 17;
/// Length of the UDP header.
const UDP_HEADER: usize = 8;

/// A UDP payload in plaintext, and where it went.
#[derive(Debug)]
pub struct Opened {
    /// Its sender.
    pub source: SocketAddr,
    /// Its receiver.
    pub destination: SocketAddr,
    /// The traffic class of its IP header.
    pub class: u8,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// The capture.
pub struct PlainCapture(BufWriter<File>);

impl PlainCapture {
    /// Creates or replaces a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(&MAGIC.to_be_bytes())?;
        out.write_all(&VERSION.map(u16::to_be_bytes).concat())?;
        out.write_all(&[0, 0, LONGEST, RAW_IP].map(u32::to_be_bytes).concat())?;
        Ok(Self(out))
    }

    /// Adds a packet that was captured at a time, in nanoseconds since 1970.
    pub fn write(&mut self, opened: &Opened, time: Option<i64>) -> io::Result<()> {
        let packet = opened.packet();
        let length = packet.len().min(LONGEST as usize);
        let time = time.and_then(|time| u64::try_from(time).ok()).unwrap_or(0);
        let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
        let fields = [seconds as u32, nanoseconds as u32, length as u32, packet.len() as u32];
        self.0.write_all(&fields.map(u32::to_be_bytes).concat())?;
        self.0.write_all(&packet[..length])
    }

    /// Writes what is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Opened {
    /// The IP packet.
    fn packet(&self) -> Vec<u8> {
        let length = UDP_HEADER + self.bytes.len();
        // A train may be longer than the field can say; then 0 stands for what was captured.
        let field = |length: usize| u16::try_from(length).unwrap_or(0).to_be_bytes();
        let ports = [self.source.port(), self.destination.port()].map(u16::to_be_bytes);
        let mut udp = [ports.as_flattened(), &field(length), &[0, 0], &self.bytes].concat();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = vec![0x45, self.class];
                ip.extend(field(20 + length));
                ip.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
                ip.extend([source.octets(), destination.octets()].as_flattened());
                let sum = checksum(&ip).to_be_bytes();
                ip[10..12].copy_from_slice(&sum);
                [ip, udp].concat()
            }
            (source, destination) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                let addresses = [octets(source), octets(destination)];
                let pseudo = [&(length as u32).to_be_bytes()[..], &[0, 0, 0, UDP]].concat();
                let sum = checksum(&[addresses.as_flattened(), &pseudo, &udp].concat());
                // 0 would mean that there is none.
                let sum = if sum == 0 { u16::MAX } else { sum };
                udp[6..8].copy_from_slice(&sum.to_be_bytes());
                let mut ip = vec![0x60 | self.class >> 4, self.class << 4, 0, 0];
                ip.extend(field(length));
                ip.extend([UDP, 64]);
                ip.extend(addresses.as_flattened());
                [ip, udp].concat()
            }
        }
    }
}

/// The checksum of the Internet protocols (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from);
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
