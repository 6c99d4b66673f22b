//! Trains: several of our datagrams in one captured UDP packet, as the sending kernel has them
//! before segmentation (GSO) and the receiving one after coalescing (GRO).
//!
//! All datagrams of a train have one length, but the last may be shorter. No field says which, so
//! it is found in the content (`docs/udp-encapsulation.md`): the datagram header repeats at equal
//! distances, with packet numbers that count up, in front of packets between the same ports. The
//! first datagram proposes its end where its own fields know it (lengths in an aggregate, the type
//! of a control packet); behind DATA, whose length stands nowhere, every distance is tried. Of all
//! distances the one counts that finds the most headers, as long as it finds them at half of its
//! places at least: a payload that holds Homa traffic does not split a datagram unless it repeats
//! the ports, with numbers near the datagram's own.
//!
//! Numbers need not be neighbours: what a sender told other peers in between is missing.
//!
//! Cost: at most one pass per distance over the places that it names, `n ln n` header checks for
//! `n` bytes.

use std::cmp::Reverse;
use std::num::NonZero;

use homa_proto::RpcId;
use homa_proto::wire::datagram::{self, DATAGRAM_MAX};
use homa_proto::wire::{self, kind};

use super::dissect::{be16, disguised, header_len, marked};
use super::finding::Known;

/// Longest packet that is taken for a single datagram when the capture kept too little of it to
/// show whether it is a train, bytes: what one frame of ordinary Ethernet takes.
const SINGLE_MAX: usize = 1500 - 20 - 8;
/// How far the numbers of a train's datagrams may be from the first one's.
const NEAR: u64 = 1 << 16;
/// Bytes at the end of a cut capture that may be too few for a header and its marks.
const STUB: usize = 64;
/// Bytes of the shortest datagram with a packet.
const SHORTEST: usize = datagram::HEADER_LEN + wire::HEADER_LEN;

/// How the bytes of a captured UDP packet are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// One datagram, or nothing that is recognised.
    Single,
    /// Datagrams of this many bytes; the last may be shorter.
    Train(NonZero<usize>),
    /// The capture kept too little to tell.
    Unclear,
}

/// The fields that all datagrams of a train share, and its first number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    number: u64,
    ports: [u16; 2],
}

impl Head {
    /// Of the datagram that begins here, if it can be nothing else.
    fn read(bytes: &[u8]) -> Option<Self> {
        if !marked(bytes) {
            return None;
        }
        let number = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        let packet = first_packet(bytes)?;
        Some(Self { number, ports: [be16(bytes, packet)?, be16(bytes, packet + 2)?] })
    }

    /// Whether a datagram of the same train begins with these bytes.
    fn continues(&self, bytes: &[u8]) -> Option<u64> {
        // The first byte decides for most.
        if bytes.first() != Some(&datagram::VERSION) {
            return None;
        }
        let other = Self::read(bytes)?;
        let apart = other.number.wrapping_sub(self.number);
        let near = apart != 0 && apart.min(apart.wrapping_neg()) <= NEAR;
        (near && other.ports == self.ports).then_some(apart)
    }
}

/// Divides a UDP payload of `length` bytes; `bytes` of them were captured.
pub fn split(bytes: &[u8], length: usize) -> Split {
    let Some(head) = Head::read(bytes) else { return Split::Single };
    match proposed(&head, bytes, length) {
        Proposal::Boundary(at) => return NonZero::new(at).map_or(Split::Single, Split::Train),
        Proposal::End => return Split::Single,
        Proposal::Open => {}
    }
    let last = bytes.len().saturating_sub(SHORTEST).min(DATAGRAM_MAX);
    let place = |at: usize| bytes.get(at..).and_then(|rest| head.continues(rest)).is_some();
    let best = (SHORTEST..=last)
        // One header that is damaged hides no train.
        .filter(|&size| place(size) || place(2 * size))
        .filter_map(|size| Some((score(&head, bytes, length, size)?, Reverse(size))))
        .max();
    match best.and_then(|(_, Reverse(size))| NonZero::new(size)) {
        Some(size) => Split::Train(size),
        None if bytes.len() < length && length > SINGLE_MAX => Split::Unclear,
        None => Split::Single,
    }
}

/// Whether `bytes` begin with a datagram of the train that `first` begins.
pub fn continues(first: &[u8], bytes: &[u8]) -> bool {
    Head::read(first).is_some_and(|head| head.continues(bytes).is_some())
}

/// Whether `bytes` begin with an encrypted datagram of the train that `first` begins: it has the
/// same key id, and its number is one of the next.
pub fn continues_sealed(first: &[u8], bytes: &[u8]) -> bool {
    let head = |bytes: &[u8]| {
        let (key, number) = bytes.get(4..16)?.split_first_chunk::<4>()?;
        let number = u64::from_be_bytes(*number.first_chunk()?);
        (bytes[0] == datagram::VERSION && *key != [0; 4]).then_some((*key, number))
    };
    head(first).zip(head(bytes)).is_some_and(|(first, other)| {
        first.0 == other.0 && (1..=64).contains(&other.1.wrapping_sub(first.1))
    })
}

/// Number and common header of a datagram that begins with DATA, which is alone in it.
pub fn head_of_data(bytes: &[u8]) -> Option<(u64, Known)> {
    let head = Head::read(bytes)?;
    let packet = bytes.get(first_packet(bytes)?..)?;
    let id = RpcId(u64::from_be_bytes(*packet.get(20..)?.first_chunk()?));
    let alone = bytes[1] & datagram::AGGREGATE == 0 && packet[11] == kind::DATA;
    alone.then_some((head.number, Known::Header { kind: kind::DATA, id }))
}

/// The end of the first datagram according to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proposal {
    /// Offset of the next one.
    Boundary(usize),
    /// At the end of all.
    End,
    /// It does not say, or not so that it can be believed.
    Open,
}

fn proposed(head: &Head, bytes: &[u8], length: usize) -> Proposal {
    let Some(mut at) = first_packet(bytes) else { return Proposal::Open };
    if bytes[1] & datagram::AGGREGATE == 0 {
        return match bytes.get(at + 11) {
            Some(&kind::DATA) => Proposal::Open,
            kind => boundary(head, bytes, length, at + header_len(kind.copied())),
        };
    }
    // As long as there are Homa packets between the lengths.
    while bytes.get(at..).is_some_and(disguised) {
        at += usize::from(be16(bytes, at - 2).unwrap_or(0));
        let end = boundary(head, bytes, length, at);
        at += 2;
        match end {
            Proposal::Open => {}
            found => return found,
        }
    }
    Proposal::Open
}

/// The end of a packet.
fn boundary(head: &Head, bytes: &[u8], length: usize, at: usize) -> Proposal {
    if at == length {
        return Proposal::End;
    }
    match bytes.get(at..).and_then(|rest| head.continues(rest)) {
        Some(_) => Proposal::Boundary(at),
        None => Proposal::Open,
    }
}

/// How well datagrams of `size` bytes explain the packet, the better the greater: headers found,
/// places without one, headers that count up one by one. `None`: they do not.
fn score(
    head: &Head,
    bytes: &[u8],
    length: usize,
    size: usize,
) -> Option<(u64, Reverse<u64>, u64)> {
    let (mut places, mut found, mut in_order) = (0_u64, 0_u64, 0_u64);
    for rest in (size..bytes.len()).step_by(size).map(|at| &bytes[at..]) {
        let apart = head.continues(rest);
        // What the capture lacks speaks neither for nor against it.
        if apart.is_none() && bytes.len() < length && rest.len() < STUB {
            break;
        }
        places += 1;
        found += u64::from(apart.is_some());
        in_order += u64::from(apart == Some(places));
    }
    let missed = places - found;
    (found > 0 && found >= missed).then_some((found, Reverse(missed), in_order))
}

/// Offset of the first packet of a datagram.
fn first_packet(bytes: &[u8]) -> Option<usize> {
    let &[_, flags, high, low] = bytes.first_chunk()?;
    let extensions = usize::from(u16::from_be_bytes([high, low]));
    Some(datagram::HEADER_LEN + extensions + 2 * usize::from(flags & datagram::AGGREGATE))
}
