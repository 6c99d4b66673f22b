//! Captures as files: pcap and pcapng; Ethernet, Linux "any" and raw IP; IPv4 and IPv6; Homa as
//! protocol 146 and disguised as TCP; ICMP errors.

use super::conversation::{CapturedFrame, Conversation, FrameContent};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::{DataLink, TsResolution};
use std::fs::File;
use std::path::Path;

const HOMA: u8 = 146;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// One frame: nanoseconds, link type, captured bytes.
type Raw = (u128, DataLink, Vec<u8>);

/// Every capture in a folder, by name.
pub fn read_folder(folder: &Path) -> Vec<Conversation> {
    let entries = std::fs::read_dir(folder).expect("a folder of captures");
    let mut paths: Vec<_> = entries.map(|e| e.expect("a readable folder").path()).collect();
    paths.sort();
    let is_capture = |p: &&std::path::PathBuf| {
        p.extension().is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap")
    };
    paths.iter().filter(is_capture).map(|path| read(path)).collect()
}

fn read(path: &Path) -> Conversation {
    let open = || File::open(path).expect("a readable capture");
    let raw = match PcapReader::new(open()) {
        Ok(reader) => classic(reader),
        Err(_) => next_generation(open()),
    };
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let first = raw.first().map_or(0, |r| r.0);
    let mut hosts = Vec::new();
    let mut frames = Vec::new();
    for (time, link, bytes) in raw {
        if let Some(mut frame) = network(link, &bytes).and_then(|ip| internet(ip, &mut hosts)) {
            frame.time = (time.saturating_sub(first) / 1000) as u64;
            frames.push(frame);
        }
    }
    let mut conversation = Conversation { name, payload: 0, frames };
    conversation.payload = payload(&conversation, hosts.iter().any(|h| h.len() == 16));
    conversation
}

fn classic(mut reader: PcapReader<File>) -> Vec<Raw> {
    let header = reader.header();
    let unit = if header.ts_resolution == TsResolution::MicroSecond { 1_000 } else { 1 };
    let mut raw = Vec::new();
    // Raw, because the reader refuses frames that were longer than the capture kept.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a whole capture");
        let time = u128::from(packet.ts_sec) * 1_000_000_000 + u128::from(packet.ts_frac) * unit;
        raw.push((time, header.datalink, packet.data.into_owned()));
    }
    raw
}

fn next_generation(file: File) -> Vec<Raw> {
    let mut reader = PcapNgReader::new(file).expect("pcap or pcapng");
    let mut found = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Some(packet) = block.expect("a whole capture").into_enhanced_packet() {
            let units = packet.timestamp.as_nanos();
            found.push((packet.interface_id, units, packet.data.into_owned()));
        }
    }
    let at = |interface: u32| {
        let interface = &reader.interfaces()[interface as usize];
        let exponent = interface.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(exponent) => Some(u32::from(*exponent)),
            _ => None,
        });
        (10u128.pow(9 - exponent.unwrap_or(6).min(9)), interface.linktype)
    };
    let absolute = |(interface, units, data)| {
        let (nanoseconds, link) = at(interface);
        (units * nanoseconds, link, data)
    };
    found.into_iter().map(absolute).collect()
}

/// The IP packet in a frame.
fn network(link: DataLink, bytes: &[u8]) -> Option<&[u8]> {
    let (kind, rest) = match link {
        DataLink::ETHERNET => (12, 14),
        DataLink::LINUX_SLL => (14, 16),
        DataLink::LINUX_SLL2 => (0, 20),
        _ => return Some(bytes),
    };
    match bytes.get(kind..kind + 2)? {
        [0x81, 0x00] => bytes.get(rest + 4..),
        [0x08, 0x00] | [0x86, 0xdd] => bytes.get(rest..),
        _ => None,
    }
}

fn internet(ip: &[u8], hosts: &mut Vec<Vec<u8>>) -> Option<CapturedFrame> {
    let be16 = |at: usize| Some(usize::from(*ip.get(at)?) << 8 | usize::from(*ip.get(at + 1)?));
    let (header, total, class, protocol, addresses) = match ip.first()? >> 4 {
        4 => (usize::from(ip[0] & 15) * 4, be16(2)?, *ip.get(1)?, *ip.get(9)?, (12, 4)),
        6 => (40, be16(4)? + 40, (be16(0)? >> 4) as u8, *ip.get(6)?, (8, 16)),
        _ => return None,
    };
    let length = total.checked_sub(header)?;
    let body = ip.get(header..total.min(ip.len()))?;
    let what = match protocol {
        ICMP | ICMP_V6 => unreachable(body, protocol == ICMP)?,
        TCP if body.get(13) != Some(&6) || body.get(18..20) != Some(&[0xb9, 0x7d]) => return None,
        HOMA | TCP => FrameContent::Homa { level: class >> 5, length, bytes: body.to_vec() },
        _ => return None,
    };
    let mut host = |at: usize| {
        let address = ip.get(at..at + addresses.1)?.to_vec();
        Some(hosts.iter().position(|h| *h == address).unwrap_or_else(|| {
            hosts.push(address);
            hosts.len() - 1
        }))
    };
    let (from, to) = (host(addresses.0)?, host(addresses.0 + addresses.1)?);
    Some(CapturedFrame { time: 0, from, to, what })
}

/// An ICMP error about a Homa packet.
fn unreachable(icmp: &[u8], v4: bool) -> Option<FrameContent> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let about = icmp.get(8..)?;
    let (protocol, header) = match v4 {
        true => (*about.get(9)?, usize::from(about[0] & 15) * 4),
        false => (*about.get(6)?, 40),
    };
    if protocol != HOMA || kind != if v4 { 3 } else { 1 } {
        return None;
    }
    let port = about.get(header + 2..header + 4).map(|p| u16::from_be_bytes([p[0], p[1]]));
    Some(FrameContent::Unreachable(port.filter(|_| code == if v4 { 3 } else { 4 })))
}

/// Message bytes in a full packet: the largest of a message that fills more than one, else what
/// fits in 1500 bytes.
fn payload(conversation: &Conversation, v6: bool) -> u32 {
    use super::packet::PacketKind;
    let partial = conversation.frames.iter().filter_map(|f| match f.packet()?.kind {
        PacketKind::Data(d) if d.end - d.start < d.length => Some(d.end - d.start),
        _ => None,
    });
    partial.max().unwrap_or(if v6 { 1404 } else { 1424 })
}
