//! Network cards under flow control: a host sends only levels that are not paused.

use crate::engine::net::Net;
use crate::engine::world::{PacketOf, World};
use crate::nic::card::Card;
use crate::topology::HostId;
use crate::transport::{Label, Transport};

impl<W: World> Net<W> {
    /// The next packet of a host that may leave: one of a level that is not paused. If the
    /// transport sends packets of paused levels, they wait in the card (`nic/card.rs`), and leave
    /// later in their order among the transport's packets.
    #[inline]
    pub(in crate::engine) fn pull_unpaused(&mut self, id: u32) -> Option<(PacketOf<W>, Label)> {
        let open = !self.pauses.paused(id);
        let card = &mut self.pauses.cards[id as usize];
        let transport = &mut self.transports[id as usize];
        loop {
            let Some(packet) = transport.transmit(self.now.protocol()) else {
                return card.take(open);
            };
            let label = transport.label(&packet);
            let may_leave = open >> (label.priority & 7) & 1 != 0;
            if may_leave && card.levels() & open == 0 {
                return Some((packet, label));
            }
            card.hold(packet, label, W::Host::content(&packet));
            if may_leave {
                return card.take(open);
            }
        }
    }

    /// True if a host's network card holds packets that may leave.
    #[inline]
    pub(in crate::engine) fn holds_unpaused(&self, id: u32) -> bool {
        self.levels_of_card(id) & !self.pauses.paused(id) != 0
    }

    /// The levels of the packets that the card of a port holds; none if it is no host's.
    pub(super) fn levels_of_card(&self, port: u32) -> u8 {
        self.pauses.cards.get(port as usize).map_or(0, Card::levels)
    }

    /// A host that restarts is informed of the levels that its card may not send.
    pub(in crate::engine) fn inform_paused(&mut self, id: HostId) {
        if let Some(state) = self.pauses.links.get(id.0 as usize) {
            self.transports[id.0 as usize].pause(self.now.protocol(), state.paused);
        }
    }

    /// A host that crashes loses the packets in its network card.
    pub(in crate::engine) fn clear_card(&mut self, id: HostId) {
        if let Some(card) = self.pauses.cards.get_mut(id.0 as usize) {
            *card = Card::default();
        }
    }
}
