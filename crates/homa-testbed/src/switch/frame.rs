//! An Ethernet frame inside the switch: its wire bytes, priority, congestion marks and flow.

use std::sync::Arc;

use homa_sim::fabric::Marks;
use homa_sim::software_switch::SwitchFrame;

use crate::link::{FRAME_OVERHEAD, SHORTEST_FRAME};

/// Priority of frames that are not IP: the highest, because they are rare and keep links alive.
const NOT_IP: u8 = 7;

/// A frame as a host sent it. Cloning (a duplicated frame) shares the bytes.
#[derive(Clone, Debug)]
pub(crate) struct WireFrame {
    bytes: Arc<[u8]>,
}

impl WireFrame {
    /// Copies a frame from its Ethernet header to its last byte, checksum excluded.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// The frame from its Ethernet header on.
    pub(crate) fn contents(&self) -> &[u8] {
        &self.bytes
    }
}

impl SwitchFrame for WireFrame {
    fn bytes(&self) -> u32 {
        wire_bytes(self.bytes.len())
    }

    fn priority(&self) -> u8 {
        priority(&self.bytes)
    }

    fn marks(&self) -> Marks {
        let ecn = ecn(&self.bytes);
        Marks::NONE.with(Marks::ECT, ecn != NOT_ECT).with(Marks::CE, ecn == CE)
    }

    fn mark(&mut self, marks: Marks) {
        if marks.has(Marks::CE) && !self.marks().has(Marks::CE) {
            set_ce(Arc::make_mut(&mut self.bytes));
        }
    }
}

/// The two bits of RFC 3168 §5.
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Which IP a frame carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

/// `None`: neither, or cut short before the bits that matter.
fn ip(frame: &[u8]) -> Option<Ip> {
    match frame.get(12..14)? {
        [0x08, 0x00] if frame.len() >= 34 => Some(Ip::V4),
        [0x86, 0xdd] if frame.len() >= 54 => Some(Ip::V6),
        _ => None,
    }
}

fn ecn(frame: &[u8]) -> u8 {
    match ip(frame) {
        Some(Ip::V4) => frame[15] & CE,
        Some(Ip::V6) => frame[15] >> 4 & CE,
        None => NOT_ECT,
    }
}

/// Marks a packet (RFC 3168 §5) and updates the checksum of an IPv4 header (RFC 1624 §3); IPv6 has
/// none.
fn set_ce(frame: &mut [u8]) {
    match ip(frame) {
        Some(Ip::V4) => {
            let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let (before, sum) = (word(frame, 14), word(frame, 24));
            frame[15] |= CE;
            let mut new = u32::from(!sum) + u32::from(!before) + u32::from(word(frame, 14));
            new = (new & 0xffff) + (new >> 16);
            new = (new & 0xffff) + (new >> 16);
            frame[24..26].copy_from_slice(&(!(new as u16)).to_be_bytes());
        }
        Some(Ip::V6) => frame[15] |= CE << 4,
        None => {}
    }
}

/// A label that is equal for the packets of one flow between two hosts: protocol and ports, if they
/// are visible.
pub(crate) fn flow(frame: &[u8]) -> u32 {
    let (protocol, ports) = match ip(frame) {
        // Only the first fragment has ports.
        Some(Ip::V4) if (frame[20] & 0x3f) | frame[21] == 0 => {
            (frame[23], 14 + usize::from(frame[14] & 0x0f) * 4)
        }
        Some(Ip::V4) => return u32::from(frame[23]),
        Some(Ip::V6) => (frame[20], 54),
        None => return 0,
    };
    let ports = frame.get(ports..).and_then(|rest| rest.first_chunk::<4>());
    u32::from_be_bytes(*ports.unwrap_or(&[0; 4])) ^ u32::from(protocol)
}

/// Bytes on the wire of a frame of `length` bytes (header included, checksum not).
pub(crate) fn wire_bytes(length: usize) -> u32 {
    (length as u32 + FRAME_OVERHEAD).max(SHORTEST_FRAME)
}

/// The top three bits of the IPv4 type of service or the IPv6 traffic class.
fn priority(frame: &[u8]) -> u8 {
    match (frame.get(12..14), frame.get(14), frame.get(15)) {
        (Some([0x08, 0x00]), _, Some(tos)) => tos >> 5,
        // The traffic class straddles the second half of byte 0 and the first half of byte 1.
        (Some([0x86, 0xdd]), Some(first), Some(_)) => (first & 0x0f) >> 1,
        _ => NOT_IP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(kind: u16, first: u8, second: u8) -> WireFrame {
        let mut bytes = vec![0; 60];
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        bytes[14] = first;
        bytes[15] = second;
        WireFrame::new(&bytes)
    }

    #[test]
    fn priority_is_the_class_selector_of_either_ip() {
        assert_eq!(ethernet(0x0800, 0x45, 0b1110_0000).priority(), 7);
        assert_eq!(ethernet(0x0800, 0x45, 0b0011_1111).priority(), 1);
        assert_eq!(ethernet(0x86dd, 0b0110_1010, 0b0000_0000).priority(), 5);
        assert_eq!(ethernet(0x86dd, 0b0110_0001, 0b1111_0000).priority(), 0);
        assert_eq!(ethernet(0x0806, 0, 0).priority(), NOT_IP);
        assert_eq!(WireFrame::new(&[1, 2, 3]).priority(), NOT_IP);
    }

    /// The sum of an IPv4 header's words; 0xffff when its checksum is right.
    fn header_sum(frame: &[u8]) -> u16 {
        let words = frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// A UDP packet over IPv4 with a right checksum.
    fn packet(tos: u8, length: u16, ports: [u16; 2]) -> Vec<u8> {
        let mut bytes = ethernet(0x0800, 0x45, tos).contents().to_vec();
        bytes[16..18].copy_from_slice(&length.to_be_bytes());
        (bytes[22], bytes[23]) = (64, 17);
        bytes[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        bytes[34..36].copy_from_slice(&ports[0].to_be_bytes());
        bytes[36..38].copy_from_slice(&ports[1].to_be_bytes());
        let sum = !header_sum(&bytes);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_marked_packet_has_a_right_checksum_and_no_other_change() {
        for (length, tos) in (28..1_500).zip((0..=0xff).cycle()) {
            let before = packet(tos, length, [1, 2]);
            assert_eq!(header_sum(&before), 0xffff);
            let mut frame = WireFrame::new(&before);
            let copy = frame.clone();
            frame.mark(frame.marks().with(Marks::CE, true));
            let after = frame.contents();
            assert_eq!((after[15], header_sum(after)), (tos | 3, 0xffff), "{length} {tos}");
            assert!(frame.marks().has(Marks::CE) && frame.marks().has(Marks::ECT));
            let same = |at: &usize| ![15, 24, 25].contains(at);
            assert!((0..60).filter(same).all(|at| after[at] == before[at]));
            // The other copy of a duplicated frame is another packet.
            assert_eq!(copy.contents(), before);
        }
    }

    #[test]
    fn the_two_bits_of_either_ip_are_read_and_set() {
        let marks =
            |frame: &WireFrame| (frame.marks().has(Marks::ECT), frame.marks().has(Marks::CE));
        for (bits, expected) in [(0, (false, false)), (1, (true, false)), (2, (true, false))] {
            assert_eq!(marks(&WireFrame::new(&packet(0xb8 | bits, 100, [1, 2]))), expected);
            let mut six = ethernet(0x86dd, 0x6a, 0x05 | bits << 4);
            assert_eq!(marks(&six), expected);
            six.mark(Marks::ECT.with(Marks::CE, true));
            // Traffic class and flow label around them stay.
            assert_eq!(six.contents()[14..16], [0x6a, 0x35]);
        }
        let mut arp = ethernet(0x0806, 3, 3);
        assert_eq!(marks(&arp), (false, false));
        arp.mark(Marks::CE);
        assert_eq!(arp.contents()[14..16], [3, 3]);
    }

    #[test]
    fn a_flow_is_told_by_its_ports_and_fragments_by_none() {
        let of = |ports| flow(&packet(0, 100, ports));
        assert_eq!(of([1, 2]), of([1, 2]));
        assert!(of([1, 2]) != of([1, 3]) && of([1, 2]) != of([2, 1]));
        let mut fragment = packet(0, 100, [1, 2]);
        fragment[20] = 0x20;
        let first = flow(&fragment);
        (fragment[20], fragment[21], fragment[35]) = (0, 9, 77);
        assert_eq!(flow(&fragment), first);
        assert_eq!(flow(&[1, 2, 3]), 0);
    }

    #[test]
    fn short_frames_are_padded_and_full_ones_cost_1538() {
        assert_eq!(wire_bytes(1514), 1538);
        assert_eq!(wire_bytes(60), 84);
        assert_eq!(wire_bytes(14), 84);
    }
}
