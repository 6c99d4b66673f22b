//! Was a request executed? The record is kept with the client if it identified itself, otherwise
//! with its address.

use crate::endpoint::Endpoint;
use crate::packet::{Packet, PeerId, RpcId};
use crate::peer::Peer;
use crate::rpc::split;
use crate::units::Time;

/// The record of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Execution {
    /// It was not executed.
    Fresh,
    /// It was executed, or counts as such.
    Executed,
    /// Not known before its client has answered a challenge.
    Unvalidated,
}

impl Endpoint {
    /// The record of a packet's request.
    pub(crate) fn execution(&self, packet: &Packet) -> Execution {
        let Some(peer) = self.peer(packet.peer) else { return Execution::Unvalidated };
        let remembers = self.suppresses_duplicates();
        // Without validation an address is its client.
        if !self.validates_addresses() {
            let executed = remembers && peer.cold.executed.contains(packet.id);
            return if executed { Execution::Executed } else { Execution::Fresh };
        }
        if !remembers {
            return if peer.validation.has_answered() {
                Execution::Fresh
            } else {
                Execution::Unvalidated
            };
        }
        let (epoch, counter) = split(packet.id);
        let validation = &peer.cold.validation;
        if let Some(handle) = validation.client(epoch) {
            // If the record is gone, the client was forgotten, or identified itself to another
            // endpoint.
            let known =
                self.validation.clients.get(handle).map(|client| client.epoch.execution(counter));
            return match known.flatten() {
                Some(true) => Execution::Executed,
                // A refused request must not be executed from a later copy.
                _ if peer.cold.executed.refusal(packet.id).is_some() => Execution::Executed,
                Some(false) => Execution::Fresh,
                None => Execution::Unvalidated,
            };
        }
        match peer.cold.executed.execution(packet.id) {
            Some(true) => Execution::Executed,
            Some(false) => Execution::Fresh,
            None if peer.cold.executed.refusal(packet.id).is_some() => Execution::Executed,
            None => Execution::Unvalidated,
        }
    }

    /// True if the client of a packet's request identified itself, and is remembered.
    pub(crate) fn is_of_named_client(&self, packet: &Packet) -> bool {
        let client = self.peer(packet.peer).and_then(|peer| {
            let (epoch, _) = split(packet.id);
            peer.cold.validation.client(epoch)
        });
        let register_client =
            client.is_some_and(|handle| self.validation.clients.get(handle).is_some());
        register_client && self.validates_addresses() && self.suppresses_duplicates()
    }

    /// True if a request may have been executed for a client at another address: the client can
    /// identify itself and has not done so at this one.
    pub(crate) fn may_have_moved(&self, packet: &Packet) -> bool {
        let anonymous = self.peer(packet.peer).is_none_or(|peer| peer.cold.validation.anonymous);
        let validates = self.validates_addresses() && self.suppresses_duplicates();
        validates && !anonymous && self.execution(packet) == Execution::Unvalidated
    }

    /// True if a request that arrived slowly was, or may have been, executed in the meantime: its
    /// client identified itself from another address and sent it from there again, or to another
    /// endpoint of ours. Below the watermark executions cannot be distinguished, so the client's
    /// last address decides.
    pub(crate) fn ran_elsewhere(&mut self, peer: PeerId, id: RpcId) -> bool {
        if !self.validates_addresses() || !self.suppresses_duplicates() {
            return false;
        }
        self.forget_departed_clients();
        let (epoch, counter) = split(id);
        let client = self.peer(peer).and_then(|peer| peer.cold.validation.client(epoch));
        let Some(client) = client else { return false };
        match self.validation.clients.get(client) {
            Some(client) => {
                let executed = client.epoch.contains(counter);
                executed && (client.epoch.tells(counter) || client.peer != peer)
            }
            // The client moved to another endpoint, or was forgotten if there is none.
            None => self.validation.directory.is_some(),
        }
    }

    /// Records an execution with the client of a peer; false if it did not identify itself. If the
    /// client's record is gone nothing is recorded, because the client has to identify itself
    /// before another request of it is executed here.
    fn remember_of_client(&mut self, peer: PeerId, id: RpcId) -> bool {
        let (epoch, counter) = split(id);
        let client = self.peer(peer).and_then(|peer| peer.cold.validation.client(epoch));
        let Some(client) = client else { return false };
        self.validation.clients.remember(client, counter, peer);
        true
    }

    /// Records that a request is executed, or counts as such.
    pub(crate) fn remember_executed(&mut self, now: Time, peer: PeerId, id: RpcId) {
        if !self.suppresses_duplicates()
            || self.validates_addresses() && self.remember_of_client(peer, id)
        {
            return;
        }
        let quotas = &mut self.validation.clients.quotas;
        let slot = self.peers.get_mut(peer.0 as usize);
        if let Some(Peer { cold, .. }) = slot.and_then(Option::as_mut) {
            let crowded = quotas.has_its_share(cold.validation.host_key);
            quotas.charge(cold.validation.host_key, cold.executed.insert(now, id, crowded));
        }
    }

    /// A client that does not identify itself has a request that waited for its answer.
    pub(super) fn begin_executed(&mut self, now: Time, peer: PeerId, id: RpcId) {
        let slot = self.peers.get_mut(peer.0 as usize);
        if let Some(Peer { cold, .. }) = slot.and_then(Option::as_mut) {
            self.validation
                .clients
                .quotas
                .charge(cold.validation.host_key, cold.executed.begin(now, id));
        }
    }

    /// A peer is closed: the record of its requests is forgotten.
    pub(crate) fn forget_executed(&mut self, now: Time, closed: &Peer) {
        let cold = &closed.cold;
        if !cold.executed.is_empty() {
            self.memory.note_forgotten(now);
            let entries = cold.executed.entries() as isize;
            self.validation.clients.quotas.charge(cold.validation.host_key, -entries);
        }
    }
}
