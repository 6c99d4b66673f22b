//! When a receiver may send a credit, and what a sender may send without one (authors' simulator:
//! `send_credit_policy_common`, `send_data`).
//!
//! The simulator lets a sender exceed its bucket by less than a packet. Here a credit must fit,
//! unless the sender holds less than a packet (`CreditedSender::account`).
//! All bytes are wire bytes of data packets, preamble and gap included, so that credit counts what
//! the receiver's link carries.

use crate::transport::parts::WireFormat;

/// Credit that is out, and the limit on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CreditBudget {
    /// Bytes granted or taken that have not arrived yet. It is negative for a while if a message
    /// uses credit that another one took without asking and has not announced yet.
    pub out: i64,
    /// Bytes that may be out.
    pub limit: u32,
}

impl CreditBudget {
    /// Whether `need` more bytes fit.
    pub fn has_room(self, need: u32) -> bool {
        self.out + i64::from(need) <= i64::from(self.limit)
    }
}

/// Whether a receiver may send a credit of `need` bytes: it must fit the budget of all senders (B)
/// and the sender's own, the smaller one of its two buckets.
pub(super) fn may_grant(need: u32, all: CreditBudget, sender: CreditBudget) -> bool {
    all.has_room(need) && sender.has_room(need)
}

/// Wire bytes of a message.
pub(super) fn wire_bytes(wire: &WireFormat, length: u32) -> u64 {
    wire_of(wire, length, 0)
}

/// Wire bytes of a message's packets from number `from` on.
pub(super) fn wire_of(wire: &WireFormat, length: u32, from: u32) -> u64 {
    let last = wire.packets(length).saturating_sub(1);
    if from > last {
        return 0;
    }
    u64::from(last - from) * u64::from(wire.full())
        + u64::from(wire.data(wire.span(last, length).1))
}

/// The number of packets for which a message takes credit without asking: 0 if it has more wire
/// bytes than `threshold` (UnschT); otherwise as many as keep the host's credit for the receiver
/// within `bdp`, and at least one.
pub(super) fn unsolicited(
    wire: &WireFormat,
    length: u32,
    (threshold, bdp): (u64, u32),
    held: u64,
) -> u32 {
    let whole = wire_bytes(wire, length);
    if whole > threshold {
        return 0;
    }
    let room = u64::from(bdp).saturating_sub(held);
    if whole <= room {
        return wire.packets(length);
    }
    ((room / u64::from(wire.full())) as u32).clamp(1, wire.packets(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: WireFormat = WireFormat::ethernet(1_500, 42, 46);

    #[test]
    fn a_credit_must_fit_both_budgets() {
        let account = |out, limit| CreditBudget { out, limit };
        for (need, all, sender, may) in [
            (1_538, (0, 150_000), (0, 100_000), true),
            (1_538, (148_462, 150_000), (0, 100_000), true),
            (1_538, (148_463, 150_000), (0, 100_000), false),
            (84, (148_463, 150_000), (0, 100_000), true),
            (1_538, (98_462, 150_000), (98_462, 100_000), true),
            (1_538, (98_463, 150_000), (98_463, 100_000), false),
            // The smaller bucket counts, and unsolicited messages may exceed both.
            (1_538, (50_000, 150_000), (9_000, 10_000), false),
            (84, (200_000, 150_000), (0, 100_000), false),
            (1_538, (-5_000, 1_538), (-5_000, 1_538), true),
        ] {
            let case = (need, all, sender);
            let found = may_grant(need, account(all.0, all.1), account(sender.0, sender.1));
            assert_eq!(found, may, "{case:?}");
        }
    }

    #[test]
    fn credit_counts_wire_bytes() {
        assert_eq!((WIRE.payload, WIRE.full(), WIRE.control), (1_458, 1_538, 84));
        for (length, bytes) in [(1, 84), (4, 84), (5, 85), (1_458, 1_538), (1_459, 1_622)] {
            assert_eq!(wire_bytes(&WIRE, length), bytes, "{length}");
        }
        assert_eq!(wire_of(&WIRE, 1_458 * 3, 2), 1_538);
        assert_eq!(wire_of(&WIRE, 1_458 * 3, 3), 0);
    }

    #[test]
    fn short_messages_take_credit_and_long_ones_ask() {
        let full = 1_458;
        for (packets, threshold, held, taken) in [
            (1, 100_000, 0, 1),
            (65, 100_000, 0, 65),
            // 66 packets have 101,508 wire bytes.
            (66, 100_000, 0, 0),
            (66, 200_000, 0, 65),
            (1_000, u64::MAX, 0, 65),
            // What the host holds for the receiver counts, but one packet always goes.
            (65, 100_000, 50_000, 32),
            (10, 100_000, 99_000, 1),
            (10, 100_000, 500_000, 1),
            (1, 1_400, 0, 0),
        ] {
            let case = (packets, threshold, held);
            let found = unsolicited(&WIRE, packets * full, (threshold, 100_000), held);
            assert_eq!(found, taken, "{case:?}");
        }
    }
}
