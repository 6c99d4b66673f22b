//! The cost of DATA on the wire, as far as the protocol counts wire bytes: a full packet, scheduled
//! or unscheduled, is a full Ethernet frame.

use crate::config::FULL_FRAME;

/// Fewest bytes that a frame occupies on the wire, preamble and gap included.
pub(crate) const MIN_FRAME: u32 = 84;

/// Wire bytes of a packet with `bytes` of payload, of a kind that holds `payload`.
pub(crate) const fn wire_bytes(bytes: u32, payload: u32) -> u32 {
    let frame = bytes.saturating_add(FULL_FRAME.saturating_sub(payload));
    if frame < MIN_FRAME { MIN_FRAME } else { frame }
}

/// Wire bytes of `bytes` in as few packets as possible.
pub(crate) const fn wire_bytes_of_all(bytes: u32, payload: u32) -> u32 {
    let (full, rest) = (bytes / payload, bytes % payload);
    let last = if rest > 0 { wire_bytes(rest, payload) } else { 0 };
    full.saturating_mul(wire_bytes(payload, payload)).saturating_add(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_unscheduled_bytes_are_ten_thousand_on_the_wire() {
        assert_eq!(wire_bytes_of_all(9_328, 1_442), 10_000);
        assert_eq!((wire_bytes(1, 1_456), wire_bytes(1, 1_442)), (84, 97));
        assert_eq!(wire_bytes_of_all(0, 1_456), 0);
    }
}
