//! An Ethernet frame inside the switch: what it costs on the wire, and its priority.

use std::sync::Arc;

use homa_sim::switch::Frame;

use crate::link::{FRAME_OVERHEAD, SHORTEST_FRAME};

/// Priority of frames that are not IP: above everything, because they are rare and keep links
/// alive.
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

impl Frame for WireFrame {
    fn bytes(&self) -> u32 {
        wire_bytes(self.bytes.len())
    }

    fn priority(&self) -> u8 {
        priority(&self.bytes)
    }
}

/// What a frame of `length` bytes (header included, checksum not) occupies on the wire.
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

    #[test]
    fn short_frames_are_padded_and_full_ones_cost_1538() {
        assert_eq!(wire_bytes(1514), 1538);
        assert_eq!(wire_bytes(60), 84);
        assert_eq!(wire_bytes(14), 84);
    }
}
