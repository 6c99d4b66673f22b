//! Ethernet frames that carry a UDP datagram: written as a whole, and read with the checks that the
//! system's stack makes.
//!
//! Invariants: every frame that is written has correct lengths and checksums, and DF. A malformed
//! frame is read as [`None`], never a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::egress::hops::Mac;

/// Bytes of the headers before a datagram.
pub(super) const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL: u8 = libc::IPPROTO_UDP as u8;
/// Hop limit of packets: the system's default.
const HOPS: u8 = 64;

/// Adds the 16-bit words of the internet checksum (RFC 1071), four at a time. Their order does not
/// matter, so it is that of this machine.
fn sum(bytes: &[u8], start: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = u128::from(start);
    for word in words {
        sum += u128::from(u64::from_ne_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum += u128::from(u64::from_ne_bytes(last));
    let sum = (sum as u64 as u128) + (sum >> 64);
    (sum as u64).wrapping_add((sum >> 64) as u64)
}

/// Folds the sum to 16 bits.
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The words of a pseudo header: the addresses as they are in the packet, the protocol, and the
/// length.
fn pseudo(addresses: &[u8], length: usize) -> u64 {
    let protocol = u64::from(u16::from_ne_bytes([0, PROTOCOL]));
    let length = u64::from(u16::from_ne_bytes((length as u16).to_be_bytes()));
    sum(addresses, protocol + length)
}

/// The part that all frames to a destination share.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    bytes: [u8; ETHERNET + IPV6 + UDP],
    v4: bool,
}

impl FrameHeader {
    /// From an interface's Ethernet address to the next hop's, and from a local address to a
    /// destination; `None` if they are of different families.
    pub fn new((own, hop): (Mac, Mac), source: IpAddr, to: IpAddr) -> Option<Self> {
        let mut bytes = [0; ETHERNET + IPV6 + UDP];
        bytes[..6].copy_from_slice(&hop);
        bytes[6..12].copy_from_slice(&own);
        let v4 = match (source, to) {
            (IpAddr::V4(source), IpAddr::V4(to)) => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                // No identification is needed because DF is set (RFC 6864).
                bytes[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, HOPS, PROTOCOL]);
                bytes[26..30].copy_from_slice(&source.octets());
                bytes[30..34].copy_from_slice(&to.octets());
                true
            }
            (IpAddr::V6(source), IpAddr::V6(to)) => {
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                bytes[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, PROTOCOL, HOPS]);
                bytes[22..38].copy_from_slice(&source.octets());
                bytes[38..54].copy_from_slice(&to.octets());
                false
            }
            _ => return None,
        };
        Some(Self { bytes, v4 })
    }

    /// Bytes before the datagram.
    pub fn len(&self) -> usize {
        ETHERNET + if self.v4 { IPV4 + UDP } else { IPV6 + UDP }
    }

    /// Completes a frame whose datagram was written behind [`Self::len`] bytes, with these source
    /// and destination ports and this type of service.
    pub fn write(&self, frame: &mut [u8], (from, to): (u16, u16), tos: u8) {
        let len = self.len();
        frame[..len].copy_from_slice(&self.bytes[..len]);
        let udp = len - UDP;
        let datagram = frame.len() - udp;
        let addresses = match self.v4 {
            true => {
                frame[15] = tos;
                frame[16..18].copy_from_slice(&((IPV4 + datagram) as u16).to_be_bytes());
                let checksum = !fold(sum(&frame[14..34], 0));
                frame[24..26].copy_from_slice(&checksum.to_ne_bytes());
                26..34
            }
            false => {
                frame[14] |= tos >> 4;
                frame[15] |= tos << 4;
                frame[18..20].copy_from_slice(&(datagram as u16).to_be_bytes());
                22..54
            }
        };
        frame[udp..udp + 2].copy_from_slice(&from.to_be_bytes());
        frame[udp + 2..udp + 4].copy_from_slice(&to.to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&(datagram as u16).to_be_bytes());
        let start = pseudo(&frame[addresses], datagram);
        let checksum = match !fold(sum(&frame[udp..], start)) {
            // Zero means that there is no checksum (RFC 768).
            0 => 0xffff,
            checksum => checksum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_ne_bytes());
    }
}

/// A datagram in a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDatagram<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The local address that it was sent to.
    pub to: SocketAddr,
    /// The payload.
    pub bytes: &'a [u8],
}

/// Reads a frame; `None` if it is malformed or its source address is not valid. `interface` is the
/// scope of link-local addresses.
pub fn read(frame: &[u8], interface: u32) -> Option<UdpDatagram<'_>> {
    let packet = frame.get(ETHERNET..)?;
    let (source, to, addresses, udp) = match frame.get(12..14)? {
        [0x08, 0x00] => {
            let header: &[u8; IPV4] = packet.first_chunk()?;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let sound = header[0] == 0x45
                && header[9] == PROTOCOL
                && u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0
                && fold(sum(header, 0)) == 0xffff;
            let [a, b, c, d, e, f, g, h] = *header[12..].first_chunk()?;
            let (source, to) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            let udp = packet.get(IPV4..total).filter(|_| sound)?;
            (IpAddr::V4(source), IpAddr::V4(to), &header[12..20], udp)
        }
        [0x86, 0xdd] => {
            let header: &[u8; IPV6] = packet.first_chunk()?;
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let sound = header[0] >> 4 == 6 && header[6] == PROTOCOL;
            let address = |at: usize| -> Option<Ipv6Addr> {
                Some(Ipv6Addr::from(*header[at..].first_chunk::<16>()?))
            };
            let udp = packet.get(IPV6..IPV6 + length).filter(|_| sound)?;
            (IpAddr::V6(address(8)?), IpAddr::V6(address(24)?), &header[8..40], udp)
        }
        _ => return None,
    };
    let &[a, b, c, d, e, f, g, h] = udp.first_chunk::<UDP>()?;
    let datagram = udp.get(..usize::from(u16::from_be_bytes([e, f])))?;
    let bytes = datagram.get(UDP..)?;
    let plausible = is_someone(source) && source != to;
    if !plausible || !is_intact(datagram, addresses, u16::from_ne_bytes([g, h]), to.is_ipv4()) {
        return None;
    }
    let from = with_port(source, u16::from_be_bytes([a, b]), interface);
    let to = SocketAddr::new(to, u16::from_be_bytes([c, d]));
    Some(UdpDatagram { from, to, bytes })
}

/// True if the checksum is right, or missing, which only IPv4 allows.
fn is_intact(datagram: &[u8], addresses: &[u8], checksum: u16, v4: bool) -> bool {
    match checksum {
        0 => v4,
        _ => fold(sum(datagram, pseudo(addresses, datagram.len()))) == 0xffff,
    }
}

/// True if packets may come from this address (RFC 1122 §3.2.1.3, RFC 4291 §2).
fn is_someone(source: IpAddr) -> bool {
    let anywhere = source.is_unspecified() || source.is_loopback() || source.is_multicast();
    let mapped = matches!(source, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    !anywhere && !mapped && source != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Adds the scope to a link-local address.
fn with_port(ip: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, interface).into()
        }
        ip => SocketAddr::new(ip, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const HOP: Mac = [2, 0, 0, 0, 0, 2];

    fn ends(v4: bool) -> (IpAddr, IpAddr) {
        let [from, to] = if v4 { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fe80::2"] };
        (from.parse().unwrap(), to.parse().unwrap())
    }

    fn frame(v4: bool, payload: &[u8]) -> Vec<u8> {
        let (from, to) = ends(v4);
        let header = FrameHeader::new((OWN, HOP), from, to).unwrap();
        let mut frame = vec![0xee; header.len()];
        frame.extend(payload);
        header.write(&mut frame, (40_000, 4000), 0xa8);
        frame
    }

    /// The checksum, computed in the simple way.
    fn plain(bytes: &[u8]) -> u16 {
        let words = bytes
            .chunks(2)
            .map(|two| u32::from(two[0]) << 8 | two.get(1).map_or(0, |&low| u32::from(low)));
        let sum = words.sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    #[test]
    fn the_checksum_is_that_of_the_plain_way() {
        let bytes: Vec<u8> = (0..1500).map(|n: u32| (n * n + 255) as u8).collect();
        for length in (0..64).chain([1399, 1400, 1500]) {
            assert_eq!(fold(sum(&bytes[..length], 0)).to_be(), plain(&bytes[..length]), "{length}");
        }
        assert_eq!(fold(sum(&[0xff; 1500], 0)), 0xffff);
    }

    #[test]
    fn a_written_frame_is_read_back_and_conforms() {
        for v4 in [true, false] {
            for length in [1, 2, 100, 1399] {
                let payload: Vec<u8> = (0..length).map(|n| n as u8).collect();
                let frame = frame(v4, &payload);
                let read = read(&frame, 7).unwrap();
                let (from, to) = ends(v4);
                assert_eq!(read.from, SocketAddr::new(from, 40_000));
                assert_eq!(read.to, SocketAddr::new(to, 4000));
                assert_eq!(read.bytes, &payload[..]);
                let class = if v4 { frame[15] } else { frame[14] << 4 | frame[15] >> 4 };
                assert_eq!(class, 0xa8);
                assert_eq!(frame[..12], [HOP, OWN].concat());
                let (start, addresses) = if v4 { (34, 26..34) } else { (54, 22..54) };
                if v4 {
                    assert_eq!(plain(&frame[14..34]), 0xffff);
                    assert_eq!(frame[20], 0x40, "DF");
                }
                let udp = &frame[start..];
                let length = (udp.len() as u16).to_be_bytes();
                let pseudo = [&frame[addresses], &[0, 17], &length, udp].concat();
                assert_eq!(plain(&pseudo), 0xffff);
            }
        }
    }

    #[test]
    fn a_frame_with_any_byte_changed_or_cut_off_is_refused() {
        for v4 in [true, false] {
            let whole = frame(v4, b"a payload with an odd number of bytes");
            for end in 0..whole.len() {
                assert_eq!(read(&whole[..end], 7), None, "{end} bytes");
            }
            // Behind the Ethernet addresses. With IPv6, the flow label and the hop limit are not
            // protected.
            let free: &[usize] = if v4 { &[] } else { &[14, 15, 16, 17, 21] };
            for at in (12..whole.len()).filter(|at| !free.contains(at)) {
                let mut other = whole.clone();
                other[at] ^= 0x10;
                assert_eq!(read(&other, 7), None, "byte {at}, IPv4 {v4}");
            }
            let mut padded = whole.clone();
            padded.extend([0; 9]);
            assert_eq!(read(&padded, 7), read(&whole, 7), "Ethernet pads short frames");
        }
    }

    #[test]
    fn frames_from_invalid_addresses_or_ourselves_are_refused() {
        let frame = |source: &str, to: &str| {
            let header = FrameHeader::new((OWN, HOP), source.parse().unwrap(), to.parse().unwrap());
            let header = header.unwrap();
            let mut frame = vec![1; header.len() + 20];
            header.write(&mut frame, (40_000, 4000), 0);
            frame
        };
        for source in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.0.0.2"] {
            assert_eq!(read(&frame(source, "10.0.0.2"), 7), None, "{source}");
        }
        for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.1", "fd00::2"] {
            assert_eq!(read(&frame(source, "fd00::2"), 7), None, "{source}");
        }
        let link = read(&frame("fe80::9", "fd00::2"), 7).map(|datagram| datagram.from);
        assert_eq!(link, Some(SocketAddrV6::new("fe80::9".parse().unwrap(), 40_000, 0, 7).into()));
    }

    #[test]
    fn a_datagram_without_a_checksum_passes_with_ipv4_only() {
        for v4 in [true, false] {
            let mut frame = frame(v4, b"payload");
            let at = if v4 { 40 } else { 60 };
            frame[at..at + 2].fill(0);
            assert_eq!(read(&frame, 7).is_some(), v4);
        }
    }
}
