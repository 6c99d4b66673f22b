//! Tunnels: what a packet carries that belongs to another network.
//!
//! VXLAN (RFC 7348; also at Linux's first port, 8472), Geneve (RFC 8926), GRE (RFC 2784, 2890), and
//! IP in IP (RFC 2003, 2473, 4213). Left out: encrypted tunnels, and fragments of any.

use super::dissect::be16;
use super::frame::{self, Content, IpPacket, Payload, Unreadable};

/// Tunnels within tunnels that are opened.
pub const DEEPEST: u8 = 4;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// UDP ports of VXLAN: the registered one, and the one that Linux uses by default.
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;
/// EtherType of an Ethernet frame in a tunnel.
const ETHERNET: u16 = 0x6558;
/// The link type of Ethernet.
const ETHERNET_LINK: u16 = 1;

/// What a protocol right behind IP carries; `None` if it is no tunnel.
pub fn in_ip<'a>(ip: &IpPacket<'a>) -> Option<Result<Content<'a>, Unreadable>> {
    let payload = Payload { bytes: ip.payload, length: ip.length };
    match ip.protocol {
        IPV4_IN_IP => Some(ip_packet(4, payload)),
        IPV6_IN_IP => Some(ip_packet(6, payload)),
        GRE => gre(payload),
        _ => None,
    }
}

/// What a UDP datagram to a port carries; `None` if it is no tunnel.
pub fn in_udp(port: u16, payload: Payload<'_>) -> Option<Result<Content<'_>, Unreadable>> {
    if VXLAN.contains(&port) {
        // A network's number is there, and nothing else in the reserved fields.
        let &[8, 0, 0, 0, _, _, _, 0] = payload.bytes.first_chunk()? else { return None };
        Some(carried(ETHERNET, behind(payload, 8)))
    } else if port == GENEVE {
        let &[first, _, high, low, ..] = payload.bytes.first_chunk::<8>()?;
        let options = 4 * usize::from(first & 0x3f);
        let kind = u16::from_be_bytes([high, low]);
        (first >> 6 == 0).then(|| carried(kind, behind(payload, 8 + options)))
    } else {
        None
    }
}

fn gre(payload: Payload<'_>) -> Option<Result<Content<'_>, Unreadable>> {
    let (flags, kind) = (be16(payload.bytes, 0)?, be16(payload.bytes, 2)?);
    // Version 0, without source routes.
    if flags & 0x4007 != 0 {
        return None;
    }
    let fields = [0x8000, 0x2000, 0x1000].into_iter().filter(|bit| flags & bit != 0).count();
    Some(carried(kind, behind(payload, 4 + 4 * fields)))
}

/// What an EtherType announces.
fn carried(kind: u16, payload: Option<Payload<'_>>) -> Result<Content<'_>, Unreadable> {
    let payload = payload.ok_or(Unreadable::Cut)?;
    match kind {
        0x0800 => ip_packet(4, payload),
        0x86dd => ip_packet(6, payload),
        ETHERNET => {
            let length = u32::try_from(payload.length).unwrap_or(u32::MAX);
            frame::decode(ETHERNET_LINK, payload.bytes, length)
        }
        other => Ok(Content::EtherType(other)),
    }
}

fn ip_packet(version: u8, payload: Payload<'_>) -> Result<Content<'_>, Unreadable> {
    let missing = payload.length.saturating_sub(payload.bytes.len());
    match version {
        4 => frame::ipv4(payload.bytes, missing).map(Content::Ip),
        _ => frame::ipv6(payload.bytes, missing).map(Content::Ip),
    }
}

fn behind(payload: Payload<'_>, header: usize) -> Option<Payload<'_>> {
    let bytes = payload.bytes.get(header..)?;
    Some(Payload { bytes, length: payload.length.saturating_sub(header) })
}
