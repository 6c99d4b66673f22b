//! Packets that a network card holds while priority flow control pauses their levels: a queue per
//! level, as the cards of lossless fabrics have.
//!
//! If a transport supports pauses ([`Transport::pause`](crate::transport::Transport::pause)), it is
//! not asked for packets of paused levels, and the card stays empty. Other transports do not
//! announce the level of their next packet. Packets of a paused level therefore wait here, so that
//! they block neither other levels nor control packets. They leave in the order in which such a
//! transport would have sent them, by the bytes that their message has left (Homa §3.2), together
//! with packets that became ready meanwhile.
//!
//! Invariants: a level's control packets keep their order and go first; the card never holds two
//! copies of the same bytes, however often a waiting receiver asks for them. Left out: a limit on
//! memory, because windows and grants bound the packets that a transport sends.

use std::collections::BTreeMap;

use crate::transport::{DataContent, Label, PacketContent};
use homa_proto::LEVELS;

/// Bytes that the message has left, then receiver and message, first byte, and order of arrival.
type Place = (u32, u64, u32, u64);

/// The held packets, by level.
#[derive(Debug)]
pub struct Card<P> {
    held: [BTreeMap<Place, (P, Label)>; LEVELS],
    /// Bit `n` is set if level `n` holds a packet.
    occupied: u8,
    arrived: u64,
}

impl<P> Default for Card<P> {
    fn default() -> Self {
        let held = std::array::from_fn(|_| BTreeMap::new());
        Self { held, occupied: 0, arrived: 0 }
    }
}

impl<P> Card<P> {
    /// The levels that hold packets, as bits.
    #[inline]
    pub fn levels(&self) -> u8 {
        self.occupied
    }

    /// Holds a packet, unless it is a retransmission of one that is already held.
    pub fn hold(&mut self, packet: P, label: Label, content: PacketContent) {
        self.arrived += 1;
        let held = &mut self.held[usize::from(label.priority) % LEVELS];
        let place = match content {
            PacketContent::Data(DataContent { message, offset, total, resent, .. }) => {
                let left = total.saturating_sub(offset).max(1);
                let whose = u64::from(label.to.0) << 32 | u64::from(message);
                let same = (left, whose, offset, 0)..=(left, whose, offset, u64::MAX);
                if resent && held.range(same).next().is_some() {
                    return;
                }
                (left, whose, offset, self.arrived)
            }
            PacketContent::Permit { .. } | PacketContent::Other => (0, 0, 0, self.arrived),
        };
        held.insert(place, (packet, label));
        self.occupied |= 1 << (label.priority & 7);
    }

    /// Takes the packet whose message has the fewest bytes left, of the levels given as bits.
    pub fn take(&mut self, levels: u8) -> Option<(P, Label)> {
        let open = self.occupied & levels;
        let first = |level: &usize| self.held[*level].first_key_value().map(|(place, _)| *place);
        let level = (0..LEVELS).rev().filter(|level| open >> level & 1 != 0).min_by_key(first)?;
        let (_, packet) = self.held[level].pop_first()?;
        if self.held[level].is_empty() {
            self.occupied &= !(1 << level);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::HostId;

    fn data(message: u32, offset: u32, resent: bool) -> PacketContent {
        let (len, total, permitted) = (1_000, 10_000, 10_000);
        PacketContent::Data(DataContent { message, offset, len, total, permitted, resent })
    }

    #[test]
    fn open_levels_leave_by_bytes_left_and_control_before_data() {
        let mut card = Card::default();
        let mut hold = |name, priority, content| {
            card.hold(name, Label { priority, ..Label::new(HostId(1), 1_000) }, content);
        };
        hold("long", 3, data(1, 0, false));
        hold("its end", 3, data(1, 9_000, false));
        hold("middle", 5, data(2, 5_000, false));
        hold("grant", 3, PacketContent::Other);
        hold("second grant", 3, PacketContent::Other);
        hold("middle again", 5, data(2, 5_000, true));
        assert_eq!(card.levels(), 1 << 3 | 1 << 5);
        let mut take = |levels| card.take(levels).map(|(name, _)| name);
        assert_eq!(take(1 << 7), None, "only level 7 is open");
        let order = [!0; 4].map(&mut take);
        assert_eq!(order, ["grant", "second grant", "its end", "middle"].map(Some));
        assert_eq!((take(!(1 << 3)), take(1 << 3), take(!0)), (None, Some("long"), None));
        assert_eq!(card.levels(), 0);
    }
}
