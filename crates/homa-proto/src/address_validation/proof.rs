//! The answer to a challenge at the server: who the client is, and which of the requests that
//! waited may be executed.

use super::clients::{ClientRef, Registered};
use super::directory::ClientDirectory;
use super::state::AddressValidation;
use crate::completion::replay_window::ClientEpoch;
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Packet, PeerId, Proof};
use crate::rpc::split;
use crate::units::{Duration, Time};
use alloc::boxed::Box;

/// Clients that a peer's requests may be of: one that restarts is another.
const CLIENTS_OF_PEER: usize = 4;

impl Endpoint {
    /// The answer to a challenge, or something that looks like it.
    pub(crate) fn on_proof(
        &mut self,
        now: Time,
        packet: &Packet,
        proof: Option<Proof>,
    ) -> Result<(), DropReason> {
        let AddressValidation { clients, .. } = &self.validation;
        let peer = self.peers.get_mut(packet.peer.0 as usize).and_then(Option::as_mut);
        let peer = peer.ok_or(DropReason::UnknownPeer)?;
        let validation = &mut peer.cold.validation;
        let id = packet.id.server().0;
        // Not the answer to the pending challenge: a copy of the last answer, or a guess.
        if validation.challenge != id {
            return if validation.answered == id { Ok(()) } else { Err(DropReason::UnknownRpc) };
        }
        (validation.challenge, validation.answered) = (0, id);
        // The client answered for a server that remembered it: it has to know that this one does
        // not, because requests in progress may have been executed.
        let forgotten = |proof: Proof| {
            let name = (proof.token, proof.epoch);
            proof.token != 0 && clients.is_forgotten_since(validation.challenged_after, name)
        };
        if proof.is_some_and(forgotten) {
            self.challenge(now, packet.peer, (packet.local_port, packet.remote_port));
            return Ok(());
        }
        validation.answered_at = Some(now);
        validation.anonymous = proof.is_none_or(|proof| proof.token == 0);
        let held = core::mem::take(&mut validation.pending);
        peer.validation.note_answered();
        self.counters.proofs_received += 1;
        if let Some(proof) = proof.filter(|proof| proof.token != 0) {
            let client = self.register_client(now, &proof, packet.peer);
            if let Some(peer) = self.peer_mut(packet.peer) {
                let clients = &mut peer.cold.validation.clients;
                clients.retain(|(epoch, _)| *epoch != proof.epoch);
                // The oldest of several clients, or lives of one client, at this address.
                if clients.len() == CLIENTS_OF_PEER {
                    clients.remove(0);
                }
                clients.push((proof.epoch, client));
            }
        }
        for handle in held {
            self.on_client_validated(now, handle, proof);
        }
        Ok(())
    }

    /// The record of a client that identified itself.
    fn register_client(&mut self, now: Time, proof: &Proof, peer: PeerId) -> ClientRef {
        let &Proof { token, epoch, first, next } = proof;
        let directory = self.validation.directory.as_mut();
        let first = match directory.is_some_and(|directory| directory.claim(token, epoch)) {
            true => {
                // It may have been here before, too, and that record is not complete.
                self.validation.clients.remove((token, epoch));
                next
            }
            false => first,
        };
        let host = self.peer(peer).map_or(0, |peer| peer.cold.validation.host_key);
        let AddressValidation { clients, directory, .. } = &mut self.validation;
        let Registered { client, forgotten } =
            clients.register((token, epoch), first, (peer, host));
        if let Some((token, epoch)) = forgotten {
            if let Some(directory) = directory {
                directory.forget(token, epoch);
            }
            self.memory.note_forgotten(now);
        }
        client
    }

    /// Forgets clients that identified themselves to another endpoint of this address since. Due
    /// before a request is judged.
    #[inline]
    pub(crate) fn forget_departed_clients(&mut self) {
        while let Some(name) =
            self.validation.directory.as_mut().and_then(|directory| directory.next_departed())
        {
            self.validation.clients.remove(name);
        }
    }

    /// Environment in: other endpoints receive from other peers at the same address, and
    /// `directory` records to which of them each client identified itself last.
    pub fn share_client_directory(&mut self, directory: Box<dyn ClientDirectory>) {
        self.validation.directory = Some(directory);
    }

    /// The client of a request that waited has answered: executes the request, or drops it.
    fn on_client_validated(&mut self, now: Time, handle: RpcHandle, proof: Option<Proof>) {
        let Some(rpc) = self.rpcs.get(handle).filter(|rpc| rpc.is_unvalidated()) else { return };
        let (epoch, counter) = split(rpc.id);
        let (peer, id) = (rpc.peer, rpc.id);
        let (admitted, identified) = match proof {
            // A peer without the extension: it receives at its address, and that is all we know.
            None => (true, false),
            // The client named itself, but the request is of another one.
            Some(proof) if proof.token == 0 || proof.epoch != epoch => (false, false),
            Some(proof) => {
                let client = self.peer(peer).and_then(|peer| peer.cold.validation.client(epoch));
                let client = client.and_then(|handle| self.validation.clients.get(handle));
                // A request that the client made after its answer may have overtaken it.
                let is_fresh = |epoch: &ClientEpoch| match counter < proof.next {
                    true => !epoch.contains(counter),
                    false => epoch.execution(counter) == Some(false),
                };
                (client.is_some_and(|client| is_fresh(&client.epoch)), true)
            }
        };
        if admitted && !self.exceeds_its_share(peer) {
            // The client is remembered by its address.
            if proof.is_none() && self.suppresses_duplicates() {
                self.begin_executed(now, peer, id);
            }
            return self.admit(now, handle);
        }
        if identified && !admitted {
            // It may have been executed before this server restarted.
            self.counters.unknowns_sent += 1;
            let remembered = Some(Duration::ZERO);
            let body = Body::RpcUnknown { remembered, no_server: false, reason: None };
            self.queue_control(handle, body);
        }
        self.counters.unvalidated_requests_dropped += 1;
        self.end_server_rpc(handle);
    }

    /// True if the host of a peer has more requests in progress than are left for all others. A
    /// waiting request is not counted yet, so without this a host would get everything by calling
    /// under new names.
    fn exceeds_its_share(&self, peer: PeerId) -> bool {
        let left = (self.config.max_rpcs as usize).saturating_sub(self.rpcs.servers());
        self.has_its_share(peer) || self.requests_of_host(peer).is_some_and(|served| served > left)
    }

    /// A request no longer waits.
    fn admit(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.set_validated();
        rpc.loss.progressed(now);
        let whole = rpc.inc.as_ref().filter(|inc| inc.bytes.is_complete());
        let (length, peer) = (whole.map(|inc| inc.bytes.length()), rpc.peer);
        self.admit_incoming(handle);
        self.charge_request(peer, true);
        match length {
            Some(length) => self.deliver(now, handle, length),
            None => {
                self.schedule(handle);
                self.arm(now, now + self.config.loss.resend_after, handle);
                self.grant(None);
                self.announce_prefix(handle);
            }
        }
    }
}
