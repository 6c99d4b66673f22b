//! How much to grant to one active message (Homa §3.3): [`bytes_to_grant`].
//!
//! [`decide`] adds what the paper leaves open: grants that run ahead, a GRANT that waits until it
//! is worth its packet, and a bound over all messages. `active` calls it when DATA arrives. All
//! functions are pure.

use crate::config::Granting;

/// Homa §3.3: each DATA packet is answered by a GRANT, so that RTTbytes are always granted and not
/// received.
///
/// Example: RTTbytes are 10,000. If 12,000 bytes are received and 21,000 granted, 1,000 more are
/// granted (up to 22,000). [`decide`] may hold back a GRANT that is not worth its packet yet.
#[inline]
pub(super) fn bytes_to_grant(received: u32, granted: u32, rtt_bytes: u32) -> u32 {
    let offset = received.saturating_add(rtt_bytes);
    // None if RTTbytes are outstanding already.
    offset.saturating_sub(granted)
}

/// An active message, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageGrant {
    /// The bytes before this may be granted: all, unless a reader limits them.
    pub length: u32,
    /// All bytes before this were granted or unscheduled.
    pub granted: u32,
    /// Bytes that are here although they are beyond the grant, because their sender has grants that
    /// we do not know, for example from before a restart. A grant for them brings nothing.
    pub received_ahead: u32,
}

/// The window of a message, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantRoom {
    /// Bytes that may be outstanding: RTTbytes in the paper.
    pub size: u32,
    /// How many of them are not: [`bytes_to_grant`].
    pub free: u32,
    /// Message bytes in a DATA packet.
    pub packet: u32,
    /// A GRANT may be for less than a packet while more is to come.
    pub partial: bool,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The window is full, or the GRANT is not worth its packet yet.
    Wait,
    /// Grant `bytes` more (perhaps 0); `starved`: the bound allows less than the window.
    Grant { bytes: u32, starved: bool },
}

/// Decides how much to grant; `bound` returns the bytes that the bound over all messages leaves to
/// this one.
#[inline]
pub(super) fn decide(
    message: &MessageGrant,
    window: &GrantRoom,
    granting: Granting,
    bound: impl FnOnce() -> u64,
) -> Decision {
    let (ahead, least) = match granting {
        // The transport Basic of Homa Figure 8 grants some packets beyond the window.
        Granting::Ahead { packets } => (u32::from(packets) * window.packet, 0),
        // The paper sends a GRANT for each DATA packet, and profile `default` one for several.
        Granting::PerMessage { least_packets } => (0, u32::from(least_packets) * window.packet),
        // Only the message over budget comes here, because timers grant the others.
        Granting::PerSender => (0, 0),
    };
    let wanted = wanted(message, window, ahead);
    if wanted == 0 || can_wait(message, window, least, wanted) {
        return Decision::Wait;
    }
    within_bound(message, window, wanted, bound())
}

/// The bytes that the window allows and `ahead` more, up to the end of the message.
#[inline]
fn wanted(message: &MessageGrant, window: &GrantRoom, ahead: u32) -> u32 {
    // If the window is full, not even the packets ahead of it are granted.
    match window.free {
        0 => 0,
        free => free.saturating_add(ahead).min(message.length - message.granted),
    }
}

/// True if a GRANT for `wanted` bytes, fewer than `least`, is not worth its packet yet.
#[inline]
fn can_wait(message: &MessageGrant, window: &GrantRoom, least: u32, wanted: u32) -> bool {
    // The last bytes of a message do not wait for more.
    let is_small = wanted < least.min(message.length - message.granted);
    // More than half of the window is outstanding, so the sender has enough to do.
    is_small && window.free < window.size - window.size / 2
}

/// As much of `wanted` as the bound over all messages leaves.
#[inline]
fn within_bound(message: &MessageGrant, window: &GrantRoom, wanted: u32, bound: u64) -> Decision {
    // The sender would answer a GRANT for less with a short packet.
    let worthwhile = if window.partial { 1 } else { wanted.min(window.packet) };
    let allowed = match bound < u64::from(worthwhile) {
        true => 0,
        // Bytes that are here already take nothing of the bound.
        false => bound.saturating_add(message.received_ahead.into()).min(wanted.into()),
    };
    Decision::Grant { bytes: allowed as u32, starved: allowed < u64::from(wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Decision::{Grant, Wait};

    const PACKET: u32 = 1_000;
    const EVERY_PACKET: Granting = Granting::PerMessage { least_packets: 1 };
    const EVERY_TWO: Granting = Granting::PerMessage { least_packets: 2 };

    /// A message of 100 packets with a window of 10, if `free` bytes of it are free.
    fn with_free(free: u32, granting: Granting, bound: u64) -> Decision {
        let message =
            MessageGrant { length: 100 * PACKET, granted: 20 * PACKET, received_ahead: 0 };
        let window = GrantRoom { size: 10 * PACKET, free, packet: PACKET, partial: false };
        decide(&message, &window, granting, || bound)
    }

    fn all(bytes: u32) -> Decision {
        Grant { bytes, starved: false }
    }

    #[test]
    fn a_grant_keeps_rtt_bytes_granted_and_not_received() {
        for (received, granted, want) in [
            // Of 10,000 bytes, 9,000 are outstanding.
            (12_000, 21_000, 1_000),
            (12_000, 22_000, 0),
            // The window became smaller, or more bytes are here than were granted.
            (12_000, 30_000, 0),
            (12_000, 10_000, 12_000),
        ] {
            assert_eq!(bytes_to_grant(received, granted, 10_000), want, "{received} {granted}");
        }
    }

    #[test]
    fn each_data_packet_is_answered_by_a_grant_for_as_much() {
        assert_eq!(with_free(0, EVERY_PACKET, u64::MAX), Wait);
        assert_eq!(with_free(PACKET, EVERY_PACKET, u64::MAX), all(PACKET));
        assert_eq!(with_free(10 * PACKET, EVERY_PACKET, u64::MAX), all(10 * PACKET));
    }

    #[test]
    fn a_grant_for_little_waits_while_much_is_outstanding() {
        assert_eq!(with_free(PACKET, EVERY_TWO, u64::MAX), Wait);
        assert_eq!(with_free(2 * PACKET, EVERY_TWO, u64::MAX), all(2 * PACKET));
        // The last packet of a message does not wait for a second one.
        let last = MessageGrant { length: 21 * PACKET, granted: 20 * PACKET, received_ahead: 0 };
        let window = GrantRoom { size: 10 * PACKET, free: PACKET, packet: PACKET, partial: false };
        assert_eq!(decide(&last, &window, EVERY_TWO, || u64::MAX), all(PACKET));
        // Nor does a grant if half of a small window is free.
        let small = GrantRoom { size: 2 * PACKET, ..window };
        let message = MessageGrant { length: 100 * PACKET, ..last };
        assert_eq!(decide(&message, &small, EVERY_TWO, || u64::MAX), all(PACKET));
    }

    #[test]
    fn grants_may_run_ahead_of_the_window() {
        let ahead = Granting::Ahead { packets: 5 };
        assert_eq!(with_free(0, ahead, u64::MAX), Wait);
        assert_eq!(with_free(1, ahead, u64::MAX), all(1 + 5 * PACKET));
    }

    #[test]
    fn the_bound_over_all_messages_limits_a_grant() {
        let starved = |bytes| Grant { bytes, starved: true };
        assert_eq!(with_free(4 * PACKET, EVERY_PACKET, 2_500), starved(2_500));
        assert_eq!(with_free(4 * PACKET, EVERY_PACKET, 999), starved(0), "less than a packet");
        let message = MessageGrant { length: 100 * PACKET, granted: 0, received_ahead: 1_500 };
        let window = GrantRoom { size: 10 * PACKET, free: 4_000, packet: PACKET, partial: true };
        assert_eq!(decide(&message, &window, EVERY_PACKET, || 0), starved(0));
        assert_eq!(decide(&message, &window, EVERY_PACKET, || 1), starved(1_501));
    }
}
