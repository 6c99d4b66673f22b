//! What is known about a request, and what is recorded of it: by its client's name where it has
//! one, otherwise by its address.

use crate::endpoint::Endpoint;
use crate::packet::{Packet, PeerId, RpcId};
use crate::peer::Peer;
use crate::rpc::id::split;
use crate::units::Time;

/// What is known about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was not executed.
    New,
    /// It was, or counts as such.
    Executed,
    /// Nobody can tell before its client has answered.
    Unproven,
}

impl Endpoint {
    /// What is known about the request of a packet.
    pub(crate) fn knows(&self, packet: &Packet) -> Known {
        let Some(peer) = self.peer(packet.peer) else { return Known::Unproven };
        let remembers = self.suppresses_duplicates();
        if !self.asks_for_proof() {
            let executed = remembers && peer.more.executed.contains(packet.id);
            return if executed { Known::Executed } else { Known::New };
        }
        if !remembers {
            return if peer.answers { Known::New } else { Known::Unproven };
        }
        let (epoch, counter) = split(packet.id);
        let exchange = &peer.more.exchange;
        if let Some(handle) = exchange.client(epoch) {
            // Where its record is gone, it was forgotten, or named itself to another endpoint.
            let known =
                self.admission.clients.get(handle).map(|client| client.epoch.knows(counter));
            return match known.flatten() {
                Some(true) => Known::Executed,
                _ if peer.more.executed.is_refused(packet.id) => Known::Executed,
                Some(false) => Known::New,
                None => Known::Unproven,
            };
        }
        match peer.more.executed.knows(packet.id) {
            Some(true) => Known::Executed,
            Some(false) => Known::New,
            None if peer.more.executed.is_refused(packet.id) => Known::Executed,
            None => Known::Unproven,
        }
    }

    /// True where the client of a packet's request said who it is, and is remembered.
    pub(crate) fn is_of_named_client(&self, packet: &Packet) -> bool {
        let client = self.peer(packet.peer).and_then(|peer| {
            let (epoch, _) = split(packet.id);
            peer.more.exchange.client(epoch)
        });
        let named = client.is_some_and(|handle| self.admission.clients.get(handle).is_some());
        named && self.asks_for_proof() && self.suppresses_duplicates()
    }

    /// True where a request may have been executed for a client under another address: at this one
    /// its client has not named itself, and could.
    pub(crate) fn may_have_moved(&self, packet: &Packet) -> bool {
        let nameless = self.peer(packet.peer).is_none_or(|peer| peer.more.exchange.nameless);
        let asks = self.asks_for_proof() && self.suppresses_duplicates();
        asks && !nameless && self.knows(packet) == Known::Unproven
    }

    /// True where a request that took its time to arrive was, or may have been, executed meanwhile:
    /// its client named itself from another address and sent it there again, or to another endpoint
    /// of ours. Below the watermark, where executions cannot be told apart, the client's last
    /// address decides.
    pub(crate) fn ran_elsewhere(&mut self, peer: PeerId, id: RpcId) -> bool {
        if !self.asks_for_proof() || !self.suppresses_duplicates() {
            return false;
        }
        self.disown_who_left();
        let (epoch, counter) = split(id);
        let client = self.peer(peer).and_then(|peer| peer.more.exchange.client(epoch));
        let Some(client) = client else { return false };
        match self.admission.clients.get(client) {
            Some(client) => {
                let executed = client.epoch.contains(counter);
                executed && (client.epoch.tells(counter) || client.peer != peer)
            }
            // It went on at another endpoint, or, where there is none, was forgotten.
            None => self.admission.names.is_some(),
        }
    }

    /// Records an execution with the client that its peer named; false where it named none. Where
    /// that record is gone nothing is recorded: the client is asked for its name before anything
    /// else of it is executed here.
    fn remember_of_client(&mut self, peer: PeerId, id: RpcId) -> bool {
        let (epoch, counter) = split(id);
        let client = self.peer(peer).and_then(|peer| peer.more.exchange.client(epoch));
        let Some(client) = client else { return false };
        self.admission.clients.remember(client, counter, peer);
        true
    }

    /// Records that a request is executed, or counts as such.
    pub(crate) fn remember_executed(&mut self, now: Time, peer: PeerId, id: RpcId) {
        if !self.suppresses_duplicates()
            || self.asks_for_proof() && self.remember_of_client(peer, id)
        {
            return;
        }
        let homes = &mut self.admission.clients.homes;
        let slot = self.peers.get_mut(peer.0 as usize);
        if let Some(Peer { more, .. }) = slot.and_then(Option::as_mut) {
            let crowded = homes.has_its_share(more.home);
            homes.charge(more.home, more.executed.insert(now, id, crowded));
        }
    }

    /// A client that names nobody is there, with a request that waited for its answer.
    pub(super) fn begin_executed(&mut self, now: Time, peer: PeerId, id: RpcId) {
        let slot = self.peers.get_mut(peer.0 as usize);
        if let Some(Peer { more, .. }) = slot.and_then(Option::as_mut) {
            self.admission.clients.homes.charge(more.home, more.executed.begin(now, id));
        }
    }

    /// A peer is closed: what it executed here is forgotten.
    pub(crate) fn forget_executed(&mut self, now: Time, closed: &Peer) {
        let more = &closed.more;
        if !more.executed.is_empty() {
            self.forgot(now);
            let entries = more.executed.entries() as isize;
            self.admission.clients.homes.charge(more.home, -entries);
        }
    }
}
