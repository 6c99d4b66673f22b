//! Overcommitment (Homa §3.5), the rules: how many messages are granted at a time ([`degree`]), of
//! which hosts ([`may_be_active`]), and which come first ([`fewest_left_first`]).
//!
//! All functions are pure. `scheduler` applies them.

use crate::config::Overcommitment;
use crate::event::RpcHandle;
use core::cmp::Ordering;

/// Homa §3.5: a receiver grants to as many messages at a time as there are levels for scheduled
/// bytes.
///
/// Example: if 4 of 8 levels carry scheduled bytes, 4 messages are active.
pub(crate) fn degree(rule: Overcommitment, scheduled_levels: u8) -> usize {
    match rule {
        Overcommitment::ScheduledLevels => usize::from(scheduled_levels),
        // Linux: a constant.
        Overcommitment::Fixed(k) => usize::from(k),
        // The transport Basic of Homa Figure 8: all messages.
        Overcommitment::Unlimited => UNLIMITED,
    }
}

/// Homa §3.5: a receiver grants to several *senders*, because one may not respond. So a host with
/// an active message gets no second one.
///
/// Example: hosts A and B send two messages each. One of A and one of B are active.
#[inline]
pub(super) const fn may_be_active(active_of_host: u32, one_per_host: bool) -> bool {
    // Linux §2.4: a host may have several.
    active_of_host == 0 || !one_per_host
}

/// Homa §3.5: if there are too many messages, those of the highest priority are active: the ones
/// with the fewest bytes left (they are `Less`).
///
/// Example: a message with 3,000 bytes left goes before an older one with 50,000.
#[inline]
fn fewest_left_first(a: &SrptKey, b: &SrptKey) -> Ordering {
    let fewest_bytes = a.remaining.cmp(&b.remaining);
    // Of two that have equally many, the shorter, and then the older.
    let shortest = a.length.cmp(&b.length);
    fewest_bytes.then(shortest).then(a.age.cmp(&b.age)).then(a.handle.cmp(&b.handle))
}

/// The degree at which every message is active.
pub(super) const UNLIMITED: usize = usize::MAX;

/// The place of a message among all that need grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SrptKey {
    pub(super) remaining: u32,
    pub(super) length: u32,
    pub(super) age: u64,
    pub(super) handle: RpcHandle,
}

impl Ord for SrptKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        fewest_left_first(self, other)
    }
}

impl PartialOrd for SrptKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_messages_are_active_as_there_are_scheduled_levels() {
        for levels in 1..=7 {
            assert_eq!(degree(Overcommitment::ScheduledLevels, levels), usize::from(levels));
        }
        assert_eq!(degree(Overcommitment::Fixed(7), 4), 7);
        assert_eq!(degree(Overcommitment::Unlimited, 4), UNLIMITED);
    }

    #[test]
    fn a_host_has_at_most_one_active_message() {
        for (active, one_per_host, want) in
            [(0, true, true), (1, true, false), (0, false, true), (1, false, true)]
        {
            assert_eq!(may_be_active(active, one_per_host), want, "{active} {one_per_host}");
        }
    }

    #[test]
    fn the_message_with_the_fewest_bytes_left_goes_first() {
        let message = |remaining, length, age| {
            let handle = RpcHandle { index: 0, generation: 0 };
            SrptKey { remaining, length, age, handle }
        };
        for (first, second) in [
            // Fewest bytes left, whichever is shorter or older.
            (message(3_000, 90_000, 2), message(50_000, 50_000, 1)),
            // Then the shorter, then the older.
            (message(3_000, 50_000, 2), message(3_000, 90_000, 1)),
            (message(3_000, 50_000, 1), message(3_000, 50_000, 2)),
        ] {
            assert_eq!(fewest_left_first(&first, &second), Ordering::Less, "{first:?} {second:?}");
        }
    }
}
