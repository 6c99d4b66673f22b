//! From an IP packet to the Homa packets in it: protocol 146, disguised as TCP, or in UDP; and ICMP
//! messages that refuse one, for good or because of its size.
//!
//! * TCP is Homa when its flags are exactly SYN and RST and its urgent pointer is `b97d`, as the
//!   kernel module decides.
//! * UDP is Homa on the ports that the user names. On others a datagram is when it begins as our
//!   version 1 does (plaintext, no unknown flag) and the Homa header in it carries the module's
//!   marks: some seventy bits that agree. Once two sockets spoke so, what they exchange and cannot
//!   be read counts as malformed Homa.
//! * What the capture has as one UDP packet may be a [`train`] of datagrams, which is divided.
//! * A packet of which the capture kept only the beginning is read with zeros in place of what is
//!   missing. What depends on the missing bytes is never reported.
//!
//! * With a log of secrets, encrypted datagrams are read as if they had been sent in plaintext. The
//!   log names sessions by their handshakes, so the capture has to contain these.
//! * What a [`tunnel`] carries is read like what stands in the frame itself; a datagram that was
//!   captured before is one of [`Copies`].
//!
//! Memory: the sockets remembered are at most [`MAX_SOCKETS`].

use std::collections::BTreeSet;
use std::net::SocketAddr;

use homa::RecordedSessions;
use homa_proto::wire::datagram::RequestExtensions;
use homa_proto::wire::{self, datagram, kind};
use homa_proto::{DropReason, Packet, PeerId, RpcId};

use super::copies::Copies;
use super::finding::{Encapsulation, Finding, Homa, Icmp, IcmpRefusal, Known};
use super::frame::{self, Content, IpPacket, Payload, Unreadable};
use super::plain::Opened;
use super::train::{self, Split};
use super::tunnel;

/// UDP sockets remembered for having spoken Homa.
const MAX_SOCKETS: usize = 65_536;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const HOMA: u8 = 146;
/// The packet type of a handshake.
const HANDSHAKE: u8 = 0x1f;
/// SYN and RST, and the urgent pointer that goes with them.
const MARKS: (u8, [u8; 2]) = (0x06, [0xb9, 0x7d]);

/// Finds Homa packets.
#[derive(Debug, Default)]
pub struct Dissector {
    /// UDP ports that the user named.
    ports: Vec<u16>,
    sockets: BTreeSet<SocketAddr>,
    scratch: Vec<u8>,
    copies: Copies,
    /// Opens encrypted datagrams, if there is a log of secrets.
    recorded: Option<RecordedSessions>,
    /// The last packet in plaintext, if it was encrypted.
    pub opened: Option<Opened>,
    /// Findings in UDP.
    pub datagrams: Datagrams,
}

/// A datagram's ends, priority level, and when it was captured.
#[derive(Clone, Copy)]
struct Envelope {
    source: SocketAddr,
    destination: SocketAddr,
    priority: u8,
    time: Option<i64>,
}

/// Counts of datagrams; a frame may hold a train of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Datagrams {
    /// Datagrams, each as the network sees it.
    pub all: u64,
    /// Frames with several of them.
    pub trains: u64,
    /// Frames with too little of a long packet to count its datagrams.
    pub unclear: u64,
}

impl Envelope {
    /// A packet of the datagram of that number.
    fn finding(self, number: Option<u64>, known: Known) -> Finding {
        let Self { source, destination, priority, .. } = self;
        let encapsulation = Encapsulation::Udp;
        Finding::Homa(Homa { encapsulation, source, destination, priority, number, known })
    }
}

impl Dissector {
    /// For captures in which datagrams from and to `ports` are Homa, whatever they look like.
    /// `recorded` opens encrypted ones.
    pub fn new(ports: Vec<u16>, recorded: Option<RecordedSessions>) -> Self {
        Self { ports, recorded, ..Self::default() }
    }

    /// Reports everything in an IP packet that was captured at a time, in nanoseconds.
    pub fn dissect(
        &mut self,
        ip: &IpPacket<'_>,
        time: Option<i64>,
        report: &mut dyn FnMut(Finding),
    ) {
        self.opened(ip, (time, tunnel::DEEPEST), report);
    }

    fn opened(
        &mut self,
        ip: &IpPacket<'_>,
        (time, deeper): (Option<i64>, u8),
        report: &mut dyn FnMut(Finding),
    ) {
        let payload = Payload { bytes: ip.payload, length: ip.length };
        if ip.fragment {
            return report(match ip.protocol {
                HOMA => Finding::Unreadable(Unreadable::Fragment),
                other => Finding::Protocol(other),
            });
        }
        match ip.protocol {
            HOMA => self.native(ip, Encapsulation::Ip, payload, report),
            TCP if disguised(ip.payload) => self.native(ip, Encapsulation::Tcp, payload, report),
            UDP => self.udp(ip, (time, deeper), report),
            ICMP | ICMPV6 => report(match self.icmp(ip) {
                Some(icmp) => Finding::Icmp(icmp),
                None => Finding::Protocol(ip.protocol),
            }),
            other => match tunnel::in_ip(ip).filter(|_| deeper > 0) {
                Some(inner) => self.inner(inner, (time, deeper), report),
                None => report(Finding::Protocol(other)),
            },
        }
    }

    /// What a tunnel carries.
    fn inner(
        &mut self,
        inner: Result<Content<'_>, Unreadable>,
        (time, deeper): (Option<i64>, u8),
        report: &mut dyn FnMut(Finding),
    ) {
        match inner {
            Ok(Content::Ip(ip)) => self.opened(&ip, (time, deeper - 1), report),
            Ok(Content::EtherType(number)) => report(Finding::EtherType(number)),
            Err(reason) => report(Finding::Unreadable(reason)),
        }
    }

    /// One packet in IP.
    fn native(
        &mut self,
        ip: &IpPacket<'_>,
        encapsulation: Encapsulation,
        payload: Payload<'_>,
        report: &mut dyn FnMut(Finding),
    ) {
        let priority = ip.class >> 5;
        let whole = whole(&mut self.scratch, payload);
        let decoded = wire::decode(whole, PeerId(0), priority);
        let known = known(
            decoded.map(|decoded| (decoded.packet, RequestExtensions::NONE)),
            payload.bytes,
            whole.len(),
        );
        let port = |at: usize| be16(payload.bytes, at).unwrap_or(0);
        report(Finding::Homa(Homa {
            encapsulation,
            source: SocketAddr::new(ip.source, port(0)),
            destination: SocketAddr::new(ip.destination, port(2)),
            priority,
            number: None,
            known,
        }));
    }

    fn udp(
        &mut self,
        ip: &IpPacket<'_>,
        (time, deeper): (Option<i64>, u8),
        report: &mut dyn FnMut(Finding),
    ) {
        let Some((header, bytes)) = ip.payload.split_first_chunk::<8>() else {
            return report(Finding::Protocol(UDP));
        };
        let announced = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
            // Longer than the field can say, or filled in by the card.
            0 => ip.length,
            _ if ip.length > usize::from(u16::MAX) => ip.length,
            length => length.min(ip.length),
        };
        let length = announced.saturating_sub(header.len());
        let mut payload = Payload { bytes: &bytes[..bytes.len().min(length)], length };
        // A length field may be that of a train's first datagram.
        let behind = ip.frame.bytes.get(announced..).unwrap_or_default();
        if train::continues(payload.bytes, behind) || train::continues_sealed(payload.bytes, behind)
        {
            let length = ip.frame.length - header.len();
            payload = Payload { bytes: &ip.frame.bytes[header.len()..], length };
        }
        let source = SocketAddr::new(ip.source, u16::from_be_bytes([header[0], header[1]]));
        let destination =
            SocketAddr::new(ip.destination, u16::from_be_bytes([header[2], header[3]]));
        let whole = payload.bytes.len() == payload.length;
        let recorded = self.recorded.as_mut().filter(|_| whole);
        let opened = recorded.and_then(|log| log.open(source, destination, payload.bytes));
        if is_handshake(payload.bytes) {
            return report(Finding::Protocol(UDP));
        }
        if let Some(opened) = &opened {
            payload = Payload { bytes: opened, length: opened.len() };
        }
        let marked = marked(payload.bytes);
        let tunnel = tunnel::in_udp(destination.port(), payload);
        if let Some(inner) = tunnel.filter(|_| deeper > 0 && !marked) {
            return self.inner(inner, (time, deeper), report);
        }
        if marked && self.sockets.len() + 2 <= MAX_SOCKETS {
            self.sockets.extend([source, destination]);
        }
        let named = [source, destination].iter().any(|socket| self.ports.contains(&socket.port()));
        let spoke = self.sockets.contains(&source) && self.sockets.contains(&destination);
        if !(marked || named || spoke) {
            return report(Finding::Protocol(UDP));
        }
        let envelope = Envelope { source, destination, priority: ip.class >> 5, time };
        self.train(payload, envelope, report);
        let class = ip.class;
        self.opened = opened.map(|bytes| Opened { source, destination, class, bytes });
    }

    /// The packets of the datagrams that were captured as one.
    fn train(&mut self, payload: Payload<'_>, envelope: Envelope, report: &mut dyn FnMut(Finding)) {
        let split = train::split(payload.bytes, payload.length);
        let size = match split {
            Split::Train(size) => size.get(),
            Split::Single | Split::Unclear => payload.length.max(1),
        };
        self.datagrams.trains += u64::from(size < payload.length);
        if split == Split::Unclear {
            self.datagrams.unclear += 1;
            // How many bytes DATA carries is not known, then.
            if let Some((number, known)) = train::head_of_data(payload.bytes) {
                if self.is_copy(envelope, payload.bytes) {
                    return report(Finding::Copy);
                }
                self.datagrams.all += 1;
                return report(envelope.finding(Some(number), known));
            }
        }
        for start in (0..payload.length.max(1)).step_by(size) {
            let bytes = payload.bytes.get(start..).unwrap_or_default();
            let length = size.min(payload.length - start);
            let one = Payload { bytes: &bytes[..bytes.len().min(length)], length };
            if self.is_copy(envelope, one.bytes) {
                report(Finding::Copy);
                continue;
            }
            self.datagrams.all += 1;
            self.datagram(one, envelope.priority, &mut |number, known| {
                report(envelope.finding(number, known));
            });
        }
    }

    /// Whether a datagram was captured before.
    fn is_copy(&mut self, envelope: Envelope, bytes: &[u8]) -> bool {
        let Envelope { source, destination, time, .. } = envelope;
        let number = bytes.get(8..).and_then(|rest| rest.first_chunk()).filter(|_| marked(bytes));
        number.is_some_and(|number| {
            let number = u64::from_be_bytes(*number);
            self.copies.seen((source, destination), (number, bytes), time)
        })
    }

    /// The packets of a datagram, with its number.
    fn datagram(
        &mut self,
        payload: Payload<'_>,
        priority: u8,
        report: &mut dyn FnMut(Option<u64>, Known),
    ) {
        let whole = whole(&mut self.scratch, payload);
        let visible = payload.bytes.len();
        let extensions = usize::from(be16(payload.bytes, 2).unwrap_or(0));
        if visible < whole.len() && visible < datagram::HEADER_LEN + extensions {
            return report(None, Known::Nothing);
        }
        let datagram = match datagram::decode(whole) {
            Ok(datagram) => datagram,
            Err(reason) => return report(None, Known::Malformed(reason)),
        };
        let number = Some(datagram.number);
        let mut packets = datagram.packets(PeerId(0), priority);
        let framing = if payload.bytes[1] & datagram::AGGREGATE == 0 { 0 } else { 2 };
        let cut = visible < whole.len();
        let mut empty = true;
        loop {
            let start = whole.len() - packets.unread() + framing;
            if cut && start > visible {
                break;
            }
            let Some(decoded) = packets.next() else { break };
            empty = false;
            let end = whole.len() - packets.unread();
            let seen = payload.bytes.get(start..end.min(visible)).unwrap_or(&[]);
            let length = end.saturating_sub(start);
            report(
                number,
                known(
                    decoded.map(|decoded| (decoded.packet, packets.request_extensions())),
                    seen,
                    length,
                ),
            );
        }
        if empty {
            let nothing = Known::Malformed(DropReason::Truncated);
            report(number, if cut { Known::Nothing } else { nothing });
        }
    }

    /// The refusal of a Homa packet.
    fn icmp(&self, ip: &IpPacket<'_>) -> Option<Icmp> {
        let &[kind, code] = ip.payload.first_chunk()?;
        let quoted = ip.payload.get(8..)?;
        let (refusal, inner) = match (ip.protocol, kind) {
            (ICMP, 3) => {
                let refusal = match code {
                    2 => IcmpRefusal::Protocol,
                    3 => IcmpRefusal::Port,
                    4 => IcmpRefusal::TooBig(be16(ip.payload, 6)?.into()),
                    other => IcmpRefusal::Other(other),
                };
                (refusal, frame::ipv4(quoted, 0).ok()?)
            }
            (ICMPV6, 1) => {
                let refusal = if code == 4 { IcmpRefusal::Port } else { IcmpRefusal::Other(code) };
                (refusal, frame::ipv6(quoted, 0).ok()?)
            }
            (ICMPV6, 2) => {
                let mtu = u32::from_be_bytes(*ip.payload.get(4..)?.first_chunk()?);
                (IcmpRefusal::TooBig(mtu), frame::ipv6(quoted, 0).ok()?)
            }
            // Parameter problem: unrecognised next header.
            (ICMPV6, 4) if code == 1 => (IcmpRefusal::Protocol, frame::ipv6(quoted, 0).ok()?),
            _ => return None,
        };
        let source = SocketAddr::new(inner.source, be16(inner.payload, 0)?);
        let destination = SocketAddr::new(inner.destination, be16(inner.payload, 2)?);
        let id = |at: usize| {
            let bytes = inner.payload.get(at + 20..)?.first_chunk()?;
            Some(RpcId(u64::from_be_bytes(*bytes)))
        };
        let id = match inner.protocol {
            HOMA => id(0),
            TCP if disguised(inner.payload) => id(0),
            UDP => {
                let datagram = &inner.payload[inner.payload.len().min(8)..];
                let known = self.sockets.contains(&destination) || marked(datagram);
                if !known && !self.ports.contains(&destination.port()) {
                    return None;
                }
                let extensions = be16(datagram, 2).map(usize::from);
                extensions.filter(|_| marked(datagram)).and_then(|length| {
                    id(8 + datagram::HEADER_LEN + length + 2 * usize::from(datagram[1] & 1))
                })
            }
            _ => return None,
        };
        Some(Icmp { from: ip.source, refusal, source, destination, id })
    }
}

/// The payload at its true length; zeros stand for what the capture did not keep.
fn whole<'a>(scratch: &'a mut Vec<u8>, payload: Payload<'a>) -> &'a [u8] {
    if payload.bytes.len() >= payload.length {
        return payload.bytes;
    }
    scratch.clear();
    scratch.extend_from_slice(payload.bytes);
    scratch.resize(payload.length, 0);
    scratch
}

/// Findings in a decoded packet; `seen` of its `length` bytes were captured.
fn known(
    decoded: Result<(Packet, RequestExtensions), DropReason>,
    seen: &[u8],
    length: usize,
) -> Known {
    let kind = seen.get(11).copied();
    let complete = seen.len() >= length || seen.len() >= header_len(kind);
    match decoded {
        Ok((packet, told)) if complete => Known::All(packet, told),
        Err(reason) if complete => Known::Malformed(reason),
        _ => match (kind, seen.get(20..).and_then(|rest| rest.first_chunk())) {
            (Some(kind), Some(id)) => Known::Header { kind, id: RpcId(u64::from_be_bytes(*id)) },
            _ => Known::Nothing,
        },
    }
}

/// Bytes of a packet of a type that decide what it says.
pub fn header_len(kind: Option<u8>) -> usize {
    match kind {
        Some(kind::DATA) => wire::DATA_LEN,
        Some(kind::GRANT) => wire::GRANT_LEN,
        Some(kind::RESEND) => wire::RESEND_LEN,
        Some(kind::CUTOFFS) => wire::CUTOFFS_LEN,
        Some(kind::ACK) => wire::ACK_LEN,
        _ => wire::HEADER_LEN,
    }
}

/// True for TCP that is Homa.
pub fn disguised(tcp: &[u8]) -> bool {
    tcp.get(13) == Some(&MARKS.0) && tcp.get(18..20) == Some(&MARKS.1)
}

/// True for a datagram that can be nothing else than ours.
pub fn marked(datagram: &[u8]) -> bool {
    let Some(&[version, flags, high, low, 0, 0, 0, 0]) = datagram.first_chunk() else {
        return false;
    };
    let extensions = usize::from(u16::from_be_bytes([high, low]));
    let framing = 2 * usize::from(flags & datagram::AGGREGATE);
    let packet = datagram.get(datagram::HEADER_LEN + extensions + framing..);
    version == datagram::VERSION
        && flags <= datagram::AGGREGATE
        && packet.is_some_and(|packet| {
            disguised(packet) && (kind::DATA..=kind::ACK).contains(&packet[11])
        })
}

/// True for a datagram of a handshake, which has no packets of an RPC.
fn is_handshake(datagram: &[u8]) -> bool {
    let packet = datagram.get(datagram::HEADER_LEN..);
    matches!(datagram.first_chunk(), Some([datagram::VERSION, 4, 0, 0, 0, 0, 0, 0]))
        && packet.is_some_and(|packet| disguised(packet) && packet[11] == HANDSHAKE)
}

/// The field at an offset.
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}
