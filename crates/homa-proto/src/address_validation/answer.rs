//! A challenge at the client: it identifies itself to servers that it has calls with.

use crate::endpoint::Endpoint;
use crate::packet::{Body, Packet, PeerId, Proof, RpcId};
use crate::rpc::{Rpc, split};
use crate::units::{Duration, Time};

/// Least time between two searches through the calls to one peer, and the time added for each call
/// that has to be checked. The first is half of a server's time between two challenges.
const SEARCHED: Duration = Duration(super::challenge::CHALLENGE_INTERVAL.0 / 2);
const SEARCHED_EACH: u64 = 500;

impl Endpoint {
    /// A challenge arrived: identifies this client, if it has calls with that server.
    pub(crate) fn on_challenge(
        &mut self,
        now: Time,
        packet: &Packet,
        (boot, remembered): (u64, Duration),
    ) {
        self.counters.need_acks_received += 1;
        if !self.may_answer() {
            return;
        }
        let (epoch, next) = self.rpcs.upcoming_id();
        // Zero stands for no token.
        let fresh = self.validation.random.next() | 1;
        let names_itself = self.config.policy().wire.challenges;
        let Some(peer) = self.peer(packet.peer) else { return };
        // A host that we do not call learns nothing, and costs no search through the calls.
        let calls = peer.rpcs() > peer.served() && names_itself;
        // A server with another boot id has forgotten what it executed before. An attacker can send
        // a challenge in its name, so all that is kept of one is that there was another id.
        let known = &peer.cold.validation;
        let restarted = calls && (known.restarted || known.boot != boot && known.boot != 0);
        // A flood of forged challenges must not cost a search each.
        if restarted && now < known.searched {
            return;
        }
        let unnamed = calls && known.token == 0;
        let safe = restarted.then(|| self.begun_since(packet.peer, now, remembered));
        // A server may have several ports, which are several peers to us. It may have calls to the
        // others already, which it has not executed either.
        let elsewhere = (restarted || unnamed)
            .then(|| self.begun_elsewhere(packet.peer, now, remembered))
            .flatten()
            .unwrap_or(u64::MAX);
        let pause = SEARCHED.max(Duration(SEARCHED_EACH * self.rpcs.clients() as u64));
        let Some(peer) = self.peer_mut(packet.peer) else { return };
        let validation = &mut peer.cold.validation;
        let mut proof = Proof::default();
        if calls {
            let first = match safe {
                Some(safe) => {
                    (validation.restarted, validation.searched) = (true, now + pause);
                    safe.unwrap_or(u64::from(epoch) << 32 | u64::from(next) << 1).min(elsewhere)
                }
                None => {
                    validation.first = validation.first.min(elsewhere);
                    validation.first
                }
            };
            validation.boot = boot;
            // A token per server, so that servers cannot follow a client.
            if validation.token == 0 {
                validation.token = fresh;
            }
            let (of, first) = split(RpcId(first));
            // If its oldest call has an id of an earlier epoch, any of this one may be in progress.
            let first = if of == epoch { first } else { 0 };
            proof = Proof { token: validation.token, epoch, first, next };
        }
        self.counters.acks_sent += 1;
        let ports = (packet.local_port, packet.remote_port);
        let body = if names_itself { Body::Proof(proof) } else { Body::Ack(Default::default()) };
        self.queue_control_to(packet.peer, ports, packet.id.client(), body);
    }

    /// The first id of the calls in progress with a peer that began within `time`.
    fn begun_since(&self, peer: PeerId, now: Time, time: Duration) -> Option<u64> {
        let count = self.peer(peer).map_or(0, |peer| peer.rpcs() as usize);
        let of_peer = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer).take(count);
        let begun = |rpc: &Rpc| rpc.state.is_client() && now.since(rpc.started()) < time;
        of_peer.filter(|(_, rpc)| begun(rpc)).map(|(_, rpc)| rpc.id.0).min()
    }

    /// The first id of the calls in progress with other peers of a peer's host that began within
    /// `time`: the server has forgotten nothing for that long, so it executed none of them before a
    /// restart.
    fn begun_elsewhere(&self, peer: PeerId, now: Time, time: Duration) -> Option<u64> {
        let host = self.peer(peer)?.info.host;
        let begun = |rpc: &Rpc| {
            rpc.state.is_client()
                && now.since(rpc.started()) < time
                && self.peer(rpc.peer).is_some_and(|other| other.info.host == host)
        };
        let others = self.rpcs.iter().filter(|(_, rpc)| rpc.peer != peer && begun(rpc));
        others.map(|(_, rpc)| rpc.id.0).min()
    }

    /// A request to a server begins.
    pub(crate) fn note_call(&mut self, to: PeerId, id: RpcId) {
        if !self.validates_addresses() {
            return;
        }
        if let Some(peer) = self.peer_mut(to) {
            peer.validation.note_called();
            // Without other calls to this server, this is its first.
            if peer.rpcs() == peer.served() {
                peer.cold.validation.first = id.0;
                peer.cold.validation.restarted = false;
            }
        }
    }
}
