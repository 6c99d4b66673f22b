//! Writes the packets of a run to a capture file that Wireshark opens. Each host is an interface,
//! and each packet is recorded when its sender's NIC starts to send it.
//!
//! The headers are real: Ethernet, IPv4 with the priority as DSCP class selector, then Homa, either
//! exactly as the Linux kernel module encodes it (protocol 146) or in UDP datagrams. A simulator
//! has no payload bytes, so each record holds only the headers and states the original length of
//! the frame (its simulated size without preamble, checksum and gap). The authors' framing has
//! shorter headers than real Homa: if a simulated frame is shorter than the real headers, the
//! record states the length of those headers.
//!
//! One-way messages (Homa §5.2) do not exist on the wire of real Homa, which only has RPCs. Their
//! packets therefore carry the comment [`ONE_WAY`], which Wireshark shows and `homa pcap` reads.
//!
//! Format: the pcapng draft of the IETF (section header, interface description and enhanced packet
//! blocks; time stamps in nanoseconds).

use std::io::{self, Write};

use homa_proto::{Body, Packet, wire};

use crate::engine::Probe;
use crate::headers::Headers;
use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::{Label, Transport};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Homa's UDP port. It also stands for the port of one-way messages, which have none, because the
/// wire format reserves 0.
const PORT: u16 = 4000;
/// The comment of a packet of a one-way message: no response follows, and no acknowledgement.
pub const ONE_WAY: &str = "one-way message";
/// Preamble, frame check sequence and gap: they take time on the wire but no capture holds them.
const NOT_CAPTURED: u32 = 8 + 4 + 12;

/// A probe that writes packets as they are transmitted. After the first error it writes nothing
/// more, and [`Capture::finish`] returns that error.
#[derive(Debug)]
pub struct Capture<W> {
    out: W,
    framing: Headers,
    packets: u64,
    limit: u64,
    error: Option<io::Error>,
}

impl<W: Write> Capture<W> {
    /// Starts a capture of at most `limit` packets between `hosts` hosts.
    pub fn new(mut out: W, hosts: u32, framing: Headers, limit: u64) -> io::Result<Self> {
        let mut section = Vec::new();
        section.extend(0x1A2B_3C4D_u32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend(u64::MAX.to_le_bytes());
        write_block(&mut out, 0x0A0D_0D0A, &section)?;
        for host in 0..hosts {
            // Link type Ethernet, captured length not limited.
            let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
            option(&mut interface, 2, format!("host{host}").as_bytes());
            // Time stamps are in nanoseconds.
            option(&mut interface, 9, &[9]);
            interface.extend([0; 4]);
            write_block(&mut out, 1, &interface)?;
        }
        Ok(Self { out, framing, packets: 0, limit, error: None })
    }

    /// Packets written.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Ends the capture and returns the writer, or the first error.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, now: SimTime, host: HostId, (packet, label): (&Packet, &Label)) {
        if self.error.is_some() || self.packets >= self.limit {
            return;
        }
        let frame = headers(host.0, packet, label, (self.framing, self.packets));
        let captured = frame.len() as u32;
        let original = label.wire_bytes.saturating_sub(NOT_CAPTURED).max(captured);
        let nanos = now.0 / 1_000;
        let mut block = Vec::with_capacity(frame.len() + 48);
        block.extend(host.0.to_le_bytes());
        block.extend(((nanos >> 32) as u32).to_le_bytes());
        block.extend((nanos as u32).to_le_bytes());
        block.extend(captured.to_le_bytes());
        block.extend(original.to_le_bytes());
        block.extend(frame);
        block.resize(block.len().next_multiple_of(4), 0);
        if is_one_way(packet) {
            option(&mut block, 1, ONE_WAY.as_bytes());
            block.extend([0; 4]);
        }
        self.packets += 1;
        self.error = write_block(&mut self.out, 6, &block).err();
    }
}

impl<T: Transport<Packet = Packet>, W: Write> Probe<T> for Capture<W> {
    fn transmitted(&mut self, now: SimTime, host: HostId, _: u32, packet: &Packet, label: &Label) {
        self.write(now, host, (packet, label));
    }
}

fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&length)
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
    block.resize(block.len().next_multiple_of(4), 0);
}

/// Whether a packet is about a one-way message: those have no ports. Cutoffs belong to hosts.
fn is_one_way(packet: &Packet) -> bool {
    let of_message = !matches!(packet.body, Body::Cutoffs { .. } | Body::Freeze);
    of_message && (packet.local_port, packet.remote_port) == (0, 0)
}

/// The headers of a frame from host `from`.
fn headers(
    from: u32,
    packet: &Packet,
    label: &Label,
    (framing, number): (Headers, u64),
) -> Vec<u8> {
    let mut homa = [0; 256];
    let port = |port: u16| if port == 0 { PORT } else { port };
    let (local_port, remote_port) = (port(packet.local_port), port(packet.remote_port));
    let packet = &Packet { local_port, remote_port, ..*packet };
    let encoded = match framing {
        // Sealed datagrams are written as a reader with their keys sees them.
        Headers::Udp | Headers::UdpSealed => wire::datagram::encode(packet, number, &mut homa),
        Headers::Ip146 | Headers::Authors => wire::encode(packet, &mut homa),
    };
    // The buffer of 256 bytes is larger than any header, so encoding does not fail.
    let homa = &homa[..encoded.unwrap_or(0)];
    let udp = if matches!(framing, Headers::Udp | Headers::UdpSealed) { UDP } else { 0 };
    let least = IPV4 + udp + homa.len();
    let payload = if let Body::Data(data) = packet.body { data.span.len } else { 0 };
    let total = (least + payload as usize) as u16;
    let mut frame = Vec::with_capacity(ETHERNET + least);
    frame.extend(mac(label.to.0));
    frame.extend(mac(from));
    frame.extend([0x08, 0x00]);
    frame.extend(ipv4(from, label, (total, udp > 0)));
    if udp > 0 {
        frame.extend(PORT.to_be_bytes());
        frame.extend(PORT.to_be_bytes());
        frame.extend((total - IPV4 as u16).to_be_bytes());
        // No checksum because there is no payload to sum.
        frame.extend([0, 0]);
    }
    frame.extend(homa);
    frame
}

/// A locally administered MAC address.
fn mac(host: u32) -> [u8; 6] {
    let [a, b, c, d] = host.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// Hosts are numbered from 10.0.0.1, the address of host 0.
fn address(host: u32) -> [u8; 4] {
    (0x0A00_0001 + host).to_be_bytes()
}

fn ipv4(from: u32, label: &Label, (total, udp): (u16, bool)) -> [u8; IPV4] {
    let mut header = [0; IPV4];
    header[0] = 0x45;
    header[1] = label.priority << 5;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8] = 64;
    header[9] = if udp { 17 } else { 146 };
    header[12..16].copy_from_slice(&address(from));
    header[16..20].copy_from_slice(&address(label.to.0));
    let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
