//! Which link the packets to a peer take, and what leaves by a link that has room.

use crate::endpoint::Endpoint;
use crate::link::{LinkId, LinkInfo, LinkState, Links};
use crate::packet::{Packet, PeerId};
use crate::units::Time;
use alloc::vec::Vec;

impl Endpoint {
    /// Sets the properties of a link, new or not. Numbers from [`LinkId::MAX`] on are ignored.
    pub fn set_link(&mut self, link: LinkId, info: LinkInfo) {
        self.links.set(&self.config, link, info);
    }

    /// Sets the link by which a peer is reached, also for its messages in progress.
    pub fn set_route(&mut self, peer: PeerId, link: LinkId) {
        let Some(known) = self.peer_mut(peer).filter(|_| link.0 < LinkId::MAX) else { return };
        let before = known.set_link(link);
        // No message is in a queue of the old link.
        if before == link || known.rpcs() == 0 {
            return;
        }
        let in_progress = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer);
        let in_progress: Vec<_> = in_progress.map(|(handle, _)| handle).collect();
        for handle in in_progress {
            if let Some(rpc) = self.rpcs.get_mut(handle) {
                self.send_queue.reroute(handle, &mut rpc.out, link);
            }
        }
        // Each message left an entry behind in the queue of its old link.
        self.send_queue.sweep(&self.rpcs);
    }

    /// Network out, if there are several links: like [`Endpoint::transmit`], for messages that take
    /// one of `links`. Control packets are small and few, and leave whatever their link.
    pub fn transmit_by(&mut self, now: Time, links: Links) -> Option<Packet> {
        let mut packet = self.next_packet(now, links)?;
        packet.priority = self.levels.in_network(packet.priority);
        Some(packet)
    }

    /// False if [`Endpoint::transmit_by`] would return nothing.
    pub fn has_packet_for(&self, links: Links) -> bool {
        self.waiting_control() > 0 || self.send_queue.has_packet_for(links)
    }

    /// The link by which a peer is reached.
    pub(crate) fn link_of(&self, peer: PeerId) -> &LinkState {
        self.links.get(self.peer(peer).map_or(LinkId::default(), |peer| peer.link()))
    }
}
