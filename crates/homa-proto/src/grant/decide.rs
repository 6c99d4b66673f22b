//! How much to grant to one active message (Homa §3.3): enough to keep a window of bytes
//! outstanding, so that its sender never waits for a grant.
//!
//! The paper sends a GRANT for each DATA packet, which keeps RTTbytes outstanding. Two rules of
//! profile `default` are added: a GRANT waits until it is worth its packet, and a bound over all
//! messages limits what the window would allow. `active` calls it when DATA arrives. The function
//! is pure.

use crate::config::Granting;

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
    /// How many of them are not.
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
    // The paper (`PerMessage` with 1 packet) grants as far as the window allows. The transport
    // Basic of Homa Figure 8 grants some packets further, and profile `default` several packets at
    // a time.
    let (ahead, least) = match granting {
        Granting::Ahead { packets } => (u32::from(packets) * window.packet, 0),
        Granting::PerMessage { least_packets } => (0, u32::from(least_packets) * window.packet),
        // Only the message over budget comes here, because timers grant the others.
        Granting::PerSender => (0, 0),
    };
    // Homa §3.3: extend the grant until a whole window is outstanding, or the message is granted.
    let left = message.length - message.granted;
    // If the window is full, not even the packets ahead of it are granted.
    let wanted = if window.free == 0 { 0 } else { window.free.saturating_add(ahead).min(left) };
    // More than half of the window is outstanding, so the sender has enough to do.
    let can_wait = wanted < left.min(least) && window.free < window.size - window.size / 2;
    if wanted == 0 || can_wait {
        return Decision::Wait;
    }
    // The sender would answer a GRANT for less with a short packet.
    let worthwhile = if window.partial { 1 } else { wanted.min(window.packet) };
    let bound = bound();
    let allowed = match bound < u64::from(worthwhile) {
        true => 0,
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
