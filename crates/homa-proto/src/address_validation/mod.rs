//! Who may have a request executed (Homa §3.8: at most once; RFC 9000 §8: address validation).
//!
//! The first request of a client waits, whole or not, until the client has answered a challenge: a
//! NEED_ACK of an RPC that does not exist, whose random id only comes back from whoever receives at
//! the address. The answer also names the client and says which of its requests can be in progress,
//! so that a copy from before is refused, whatever this server forgot, also by restarting. It takes
//! one round trip, once per client.
//!
//! Invariants: an address that has not answered gets at most three times the bytes it sent, and of
//! its requests none is granted or executed; all of them together have a small part of the tables
//! and the memory, where the oldest makes room for the next. What was executed is remembered by the
//! client's name, not its address. When some of that is forgotten, this server gets another boot
//! id: clients that are asked under it name only requests begun since.
//!
//! Peers that do not know the extension (builds before it, other profiles) answer with an ACK that
//! proves the address and names nobody: their requests are remembered by address.
//!
//! Left out: secrecy. Whoever reads packets on the way can forge them.

mod answer;
mod clients;
mod directory;
mod execution;
mod quotas;

use crate::completion::replay_window::ClientEpoch;
use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Data, Packet, PeerId, Proof, RpcId};
use crate::rpc::id::split;
use crate::units::{Duration, Time};
use crate::util::random::Random;
use crate::util::slab::Keyed;
use crate::wire;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use clients::{ClientRef, Clients, Registered};
pub use directory::ClientDirectory;
pub(crate) use execution::Execution;

/// Bytes that may be sent for each one received from an address that has not answered.
const AMPLIFICATION: u32 = 3;
/// What a datagram adds to its packet: our header, and those of UDP and IPv6.
const HEADERS: u32 = 16 + 8 + 40;
/// Strangers have one part in this many of the RPCs and of the memory.
const SHARE: u32 = 8;
/// A request that waits for its client's answer is given up after this.
const VALIDATION_TIMEOUT: Duration = Duration::secs(1);
/// Least time between two challenges to one peer.
const CHALLENGE_INTERVAL: Duration = Duration::millis(1);
/// Clients that a peer's requests may be of: one that restarts is another.
const CLIENTS_OF_PEER: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct AddressValidation {
    random: Random,
    clients: Clients,
    /// Of others at our address.
    directory: Option<Box<dyn ClientDirectory>>,
    /// Requests that wait for an answer, oldest first, and some that do no longer.
    pending: VecDeque<RpcHandle>,
    /// How many do, and the memory that they count for.
    pending_count: usize,
    memory: u64,
}

impl AddressValidation {
    pub(crate) fn new(seed: u64, hash: Keyed) -> Self {
        let mut random = Random::new(seed);
        let clients = Clients::new(random.next(), hash);
        Self {
            random,
            clients,
            directory: None,
            pending: VecDeque::new(),
            pending_count: 0,
            memory: 0,
        }
    }

    /// Of a budget, requests that wait have no part left for so many bytes more.
    pub(crate) const fn is_short(&self, bytes: u32, budget: u64) -> bool {
        self.memory + bytes as u64 > budget / SHARE as u64
    }

    /// A request that waits counts for more memory.
    pub(crate) fn count(&mut self, more: u32) {
        self.memory += u64::from(more);
    }
}

/// What is kept of the exchange with one peer.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    /// The peer as client: the id of the challenge that waits for an answer, 0: none does.
    challenge: u64,
    /// That of the one answered last: its answer may come twice.
    answered: u64,
    challenged: Option<Time>,
    /// Bytes that may be sent to it before it answers.
    send_allowance: u32,
    /// Its requests that wait, and some that do no longer.
    pending: VecDeque<RpcHandle>,
    /// Who it said it is.
    clients: Vec<(u32, ClientRef)>,
    /// It answers without a name.
    anonymous: bool,
    /// The peer as server: our name there, 0: none yet.
    token: u64,
    /// Its boot id as it said last, 0: never.
    boot: u64,
    /// No RPC of ours with an id below is in progress there.
    first: u64,
    /// It said another one since the oldest call in progress there was made.
    restarted: bool,
    /// Then a challenge costs a search; until this time, no other is looked at.
    searched: Time,
}

impl Validation {
    fn client(&self, epoch: u32) -> Option<ClientRef> {
        self.clients.iter().find(|(of, _)| *of == epoch).map(|(_, client)| *client)
    }
}

/// Bytes of a packet as received: less than on any wire.
fn received_bytes(packet: &Packet) -> u32 {
    let payload = match packet.body {
        Body::Data(Data { span, .. }) => span.len,
        _ => 0,
    };
    (wire::encoded_len(&packet.body) as u32).saturating_add(payload)
}

/// Bytes of a packet as sent: no less than on any wire.
fn sent_bytes(packet: &Packet) -> u32 {
    received_bytes(packet) + HEADERS + wire::datagram::extensions_len(&packet.body) as u32
}

impl Endpoint {
    /// Addresses have to prove that they receive.
    pub(crate) fn validates_addresses(&self) -> bool {
        self.config.validate_addresses
    }

    /// A packet arrived from an address that has not answered.
    pub(crate) fn grow_send_allowance(&mut self, packet: &Packet) {
        if let Some(peer) = self.peer_mut(packet.peer) {
            let allowance = &mut peer.cold.validation.send_allowance;
            *allowance =
                allowance.saturating_add(AMPLIFICATION * received_bytes(packet).min(1 << 16));
        }
    }

    /// True when a control packet may leave: its peer has answered, or sent enough for it.
    pub(crate) fn may_send_to(&mut self, packet: &Packet) -> bool {
        let Some(peer) = self.peers.get_mut(packet.peer.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        if peer.validated {
            return true;
        }
        let left = peer.cold.validation.send_allowance.checked_sub(sent_bytes(packet));
        match left {
            Some(left) => peer.cold.validation.send_allowance = left,
            None => self.counters.answers_withheld += 1,
        }
        left.is_some()
    }

    /// True when large packets may be sent to a peer: it has answered, or is called.
    pub fn is_validated(&self, peer: PeerId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.validated)
    }

    /// A stranger's request needs a place: the oldest that wait give theirs.
    pub(crate) fn evict_unvalidated(&mut self) {
        let most = (self.config.max_rpcs / SHARE).max(1) as usize;
        let budget = self.config.memory_budget;
        while self.validation.pending_count >= most || self.validation.is_short(0, budget) {
            let Some(oldest) = self.validation.pending.pop_front() else { return };
            if self.rpcs.get(oldest).is_some_and(|rpc| rpc.unvalidated) {
                self.counters.unvalidated_requests_dropped += 1;
                self.end_server_rpc(oldest);
            }
        }
    }

    /// A request was created that waits for its client's answer.
    pub(crate) fn await_validation(&mut self, now: Time, handle: RpcHandle, packet: &Packet) {
        self.validation.pending_count += 1;
        self.validation.pending.push_back(handle);
        if self.validation.pending.len() > 2 * self.validation.pending_count + 64 {
            let rpcs = &self.rpcs;
            self.validation
                .pending
                .retain(|&handle| rpcs.get(handle).is_some_and(|rpc| rpc.unvalidated));
        }
        if let Some(peer) = self.peers.get_mut(packet.peer.0 as usize).and_then(Option::as_mut) {
            let held = &mut peer.cold.validation.pending;
            if held.len() > 2 * peer.cold.served as usize {
                held.retain(|&handle| self.rpcs.get(handle).is_some_and(|rpc| rpc.unvalidated));
            }
            held.push_back(handle);
        }
        self.challenge(now, packet.peer, (packet.local_port, packet.remote_port));
    }

    /// A request that waited ends, or waits no longer.
    pub(crate) fn release_unvalidated(&mut self, reserved: u32) {
        self.validation.pending_count -= 1;
        self.validation.memory -= u64::from(reserved);
    }

    /// Asks a peer who it is, unless it was just asked.
    pub(crate) fn challenge(&mut self, now: Time, to: PeerId, ports: (u16, u16)) {
        if !self.may_answer() {
            return;
        }
        let boot = self.validation.clients.boot;
        let remembered = now.since(self.memory_complete_since());
        let fresh = self.validation.random.next() | 1;
        let Some(peer) = self.peer_mut(to) else { return };
        let validation = &mut peer.cold.validation;
        if validation.challenged.is_some_and(|at| now.since(at) < CHALLENGE_INTERVAL)
            && validation.challenge != 0
        {
            return;
        }
        if validation.challenge == 0 {
            validation.challenge = fresh;
        }
        validation.challenged = Some(now);
        let id = RpcId(validation.challenge);
        self.counters.challenges_sent += 1;
        let body = match self.config.policy().wire.challenges {
            true => Body::Challenge { boot, remembered },
            false => Body::NeedAck,
        };
        self.queue_control_to(to, ports, id, body);
    }

    /// A request that waits is looked at: one more question, then silence. Yields the next look.
    pub(crate) fn check_unvalidated(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        // Whatever else came of it: that is no answer.
        let end = rpc.started + VALIDATION_TIMEOUT;
        if now >= end {
            self.counters.unvalidated_requests_dropped += 1;
            self.end_server_rpc(handle);
            return None;
        }
        if rpc.resend_count == 0 {
            rpc.resend_count = 1;
            rpc.last_resend = now;
            // What is missing is asked for when there is somebody to ask.
            let (peer, ports) = (rpc.peer, (rpc.local_port, rpc.remote_port));
            self.challenge(now, peer, ports);
        }
        Some(end)
    }

    fn request_one_range(&mut self, handle: RpcHandle) {
        let priority = self.levels.top();
        let missing = self.rpcs.get(handle).and_then(|rpc| {
            let inc = rpc.inc.as_ref()?;
            inc.bytes.missing_before(inc.granted).next()
        });
        if let Some((start, end)) = missing {
            let length = crate::packet::ResendLength::Bytes(end - start);
            self.counters.resends_sent += 1;
            self.queue_control(handle, Body::Resend { offset: start, length, priority });
        }
    }

    /// The client of a request that waits asks for its response.
    pub(crate) fn on_resend_of_unvalidated(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let (peer, ports) = (rpc.peer, (rpc.local_port, rpc.remote_port));
        self.challenge(now, peer, ports);
        self.request_one_range(handle);
    }

    /// The answer to a challenge, or something that looks like it.
    pub(crate) fn on_proof(
        &mut self,
        now: Time,
        packet: &Packet,
        proof: Option<Proof>,
    ) -> Result<(), DropReason> {
        let peer = self.peer_mut(packet.peer).ok_or(DropReason::UnknownPeer)?;
        let validation = &mut peer.cold.validation;
        let id = packet.id.server().0;
        if validation.challenge != id {
            return if validation.answered == id { Ok(()) } else { Err(DropReason::UnknownRpc) };
        }
        (validation.challenge, validation.answered) = (0, id);
        validation.anonymous = proof.is_none_or(|proof| proof.token == 0);
        let held = core::mem::take(&mut validation.pending);
        (peer.validated, peer.answered_challenge) = (true, true);
        self.counters.proofs_received += 1;
        if let Some(proof) = proof.filter(|proof| proof.token != 0) {
            let client = self.register_client(now, &proof, packet.peer);
            if let Some(peer) = self.peer_mut(packet.peer) {
                let clients = &mut peer.cold.validation.clients;
                clients.retain(|(epoch, _)| *epoch != proof.epoch);
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

    /// The record of a client that named itself.
    fn register_client(&mut self, now: Time, proof: &Proof, peer: PeerId) -> ClientRef {
        let &Proof { token, epoch, first, next } = proof;
        let directory = self.validation.directory.as_mut();
        let first = match directory.is_some_and(|directory| directory.claim(token, epoch)) {
            true => {
                // It may have been here before that.
                self.validation.clients.remove((token, epoch));
                next
            }
            false => first,
        };
        let host = self.peer(peer).map_or(0, |peer| peer.cold.host_key);
        let AddressValidation { clients, directory, .. } = &mut self.validation;
        let Registered { client, forgotten } =
            clients.register((token, epoch), first, (peer, host));
        if let Some((token, epoch)) = forgotten {
            if let Some(directory) = directory {
                directory.forget(token, epoch);
            }
            self.note_forgotten(now);
        }
        client
    }

    /// Clients that named themselves to another endpoint of this address are strangers here. Due
    /// before a request is looked at.
    #[inline]
    pub(crate) fn forget_departed_clients(&mut self) {
        while let Some(name) =
            self.validation.directory.as_mut().and_then(|directory| directory.next_departed())
        {
            self.validation.clients.remove(name);
        }
    }

    /// Environment in: other endpoints hear other peers at the same address, and `names` tells to
    /// whom of all a client named itself last.
    pub fn share_client_directory(&mut self, directory: Box<dyn ClientDirectory>) {
        self.validation.directory = Some(directory);
    }

    /// The client of a request that waited has answered.
    fn on_client_validated(&mut self, now: Time, handle: RpcHandle, proof: Option<Proof>) {
        let Some(rpc) = self.rpcs.get(handle).filter(|rpc| rpc.unvalidated) else { return };
        let (epoch, counter) = split(rpc.id);
        let (peer, id) = (rpc.peer, rpc.id);
        let (admitted, told) = match proof {
            None => (true, false),
            Some(proof) if proof.token == 0 || proof.epoch != epoch => (false, false),
            Some(proof) => {
                let client = self.peer(peer).and_then(|peer| peer.cold.validation.client(epoch));
                let client = client.and_then(|handle| self.validation.clients.get(handle));
                // One that the client made after it answered may have overtaken the answer.
                let register_client = |epoch: &ClientEpoch| match counter < proof.next {
                    true => !epoch.contains(counter),
                    false => epoch.execution(counter) == Some(false),
                };
                (client.is_some_and(|client| register_client(&client.epoch)), true)
            }
        };
        if admitted && !self.exceeds_its_share(peer) {
            if proof.is_none() && self.suppresses_duplicates() {
                self.begin_executed(now, peer, id);
            }
            return self.admit(now, handle);
        }
        if told && !admitted {
            // Executed in a former life, perhaps.
            self.counters.unknowns_sent += 1;
            let body = Body::RpcUnknown { remembered: Some(Duration::ZERO), no_server: false };
            self.queue_control(handle, body);
        }
        self.counters.unvalidated_requests_dropped += 1;
        self.end_server_rpc(handle);
    }

    /// True when the host of a peer, of which a request waits that would be one more, has more in
    /// progress than is left for all others: under ever new names it would get everything.
    fn exceeds_its_share(&self, peer: PeerId) -> bool {
        let left = (self.config.max_rpcs as usize).saturating_sub(self.server_rpcs.len());
        let served = |peer| self.incoming.accounts.of(peer).served as usize;
        self.has_its_share(peer) || self.peer(peer).is_some_and(|peer| served(peer) > left)
    }

    /// A request need not wait any longer.
    fn admit(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.unvalidated = false;
        rpc.resend_count = 0;
        rpc.last_heard = now;
        if let Some(inc) = &mut rpc.inc {
            inc.suspended = false;
            self.incoming.expected += u64::from(inc.outstanding());
        }
        let reserved = rpc.inc.as_ref().map_or(0, |inc| inc.reserved);
        let whole = rpc.inc.as_ref().filter(|inc| inc.bytes.is_complete());
        let (length, peer) = (whole.map(|inc| inc.bytes.length()), rpc.peer);
        self.release_unvalidated(reserved);
        self.charge_memory(peer, reserved);
        self.charge_request(peer, true);
        match length {
            Some(length) => self.deliver(now, handle, length),
            None => {
                self.schedule(handle);
                self.arm(now, now + self.config.loss.resend_after, handle);
                self.grant(None);
            }
        }
    }

    /// Environment in: a place is needed for another peer. Gives up the requests of one that never
    /// answered, if nothing else is in progress with it; then [`Self::close_peer`] closes it.
    pub fn drop_unvalidated(&mut self, peer: PeerId) {
        let Some(held) = self.peer_mut(peer).filter(|peer| !peer.validated) else { return };
        for handle in core::mem::take(&mut held.cold.validation.pending) {
            if self.rpcs.get(handle).is_some_and(|rpc| rpc.unvalidated) {
                self.counters.unvalidated_requests_dropped += 1;
                self.end_server_rpc(handle);
            }
        }
    }
}
