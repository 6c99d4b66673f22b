//! Peers are opened, given an account, and closed by the environment.

use crate::endpoint::Endpoint;
use crate::packet::PeerId;
use crate::peer::{Peer, PeerInfo};
use crate::units::Time;

impl Endpoint {
    /// Introduces a peer before its number appears in any other call. The environment numbers peers
    /// densely and may reuse the number of a closed one.
    pub fn open_peer(&mut self, peer: PeerId, info: PeerInfo) {
        let index = peer.0 as usize;
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        if self.peers[index].is_none() {
            // Lengths are divided by it.
            let info = PeerInfo { max_payload: info.max_payload.max(1), ..info };
            let version = self.levels.assumed_version();
            let since = self.memory.of_new_peer();
            self.peers[index] = Some(Peer::new(&self.config, info, version, since));
        }
    }

    /// Gives a peer without RPCs an account, for good, which it shares with other peers of its
    /// host: memory and requests are limited per account, so that a host gets no more by calling
    /// from many ports. Its requests count until [`Endpoint::request_accepted`]. Accounts are
    /// numbered densely and reused; `host_key` names the host as long as the endpoint exists,
    /// because the records of its clients outlive its peers.
    pub fn set_account(&mut self, peer: PeerId, account: u32, host_key: u64) {
        let free = |peer: &&mut Peer| peer.rpcs() == 0 && !peer.cold.grants.has_account();
        let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        // RPCs in progress, and their memory, were counted without an account.
        if let Some(peer) = Some(peer).filter(free) {
            peer.cold.validation.set_host_key(host_key);
            self.grants.open_account(peer, account);
        }
    }

    /// Forgets a peer; false while RPCs with it are in progress. Which of its requests were
    /// executed is forgotten, too, and later answers to it admit that; but a copy of an executed
    /// request that the network delivers after this is executed again.
    pub fn close_peer(&mut self, now: Time, peer: PeerId) -> bool {
        let slot = self.peers.get_mut(peer.0 as usize);
        let Some(mut closed) = slot.and_then(|slot| slot.take_if(|peer| peer.rpcs() == 0)) else {
            return self.peer(peer).is_none();
        };
        self.grants.close_account(&mut closed);
        self.forget_executed(now, &closed);
        // The number of the peer may be used again for another one.
        self.control.drop_packets(|packet| packet.peer == peer);
        true
    }
}
