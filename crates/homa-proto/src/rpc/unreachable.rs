//! Reports of the network that something of a peer cannot be reached (ICMP), and what they prove.
//!
//! That a packet came back says nothing about those before it: the server may have executed a call,
//! and died since. At most once (Homa §3.8, profile `default`), a call was certainly not executed
//! if its request never left whole, or if DATA of it came back that was sent once. What left in the
//! same turn as a whole request that came back met the same host. Other calls of which the server
//! spoke, or that wait long enough to have been asked for, are [`RpcError::Indeterminate`]; those
//! just sent wait for a report of their own, or their RESEND's. Idempotent calls go on like any
//! that nobody answers: the server may be about to restart. The other profiles fail every call of
//! the peer, as the kernel module does.
//!
//! Where a process lives at the address and nobody listens at the port, there is no ICMP: the
//! answer to the call's RESEND says so (UDP only; `client.rs`).

use super::state::{Rpc, RpcState};
use crate::endpoint::Endpoint;
use crate::event::{Quoted, RpcError, RpcHandle, Unreachable};
use crate::packet::PeerId;
use crate::units::Time;
use alloc::vec::Vec;

/// DATA that came back and was sent once.
#[derive(Clone, Copy, Debug)]
struct Refused {
    handle: RpcHandle,
    /// When it left, if it is the whole request.
    at: Option<Time>,
}

impl Rpc {
    /// The bytes of the request were sent no more than once, as far as they were.
    const fn is_sent_once(&self) -> bool {
        matches!(self.state, RpcState::ClientOutgoing)
            && !self.is_seen_by_peer()
            && !self.is_restarted()
    }

    /// The server may have the whole request.
    const fn may_be_executed(&self) -> bool {
        !self.state.is_outgoing() || self.is_restarted() || self.out.sent >= self.out.length
    }
}

impl Endpoint {
    /// Environment in: the network says that something of the peer cannot be reached (ICMP); RPCs
    /// that need it fail. `quoted`: our packet that came back. Anybody can write reports, but not
    /// that of an RPC in progress with the peer; others are ignored. `None`: the report does not
    /// show it, and the environment vouches that it is genuine; where reports can be forged, it
    /// must not pass on such a one.
    pub fn unreachable(
        &mut self,
        now: Time,
        peer: PeerId,
        what: Unreachable,
        quoted: Option<Quoted>,
    ) {
        self.begin(now);
        let mut refused = None;
        if let Some(Quoted { id, data }) = quoted {
            let sent = match id.from_server() {
                true => self.find_server(peer, id.client()),
                false => self.find_client(peer, id),
            };
            let Some((handle, rpc)) =
                sent.and_then(|handle| Some((handle, self.rpcs.get(handle)?)))
            else {
                return;
            };
            let packet = self.peer(peer).map_or(0, |peer| peer.least_payload());
            let at = (rpc.out.length <= packet).then_some(rpc.request_sent());
            refused = (data && rpc.is_sent_once()).then_some(Refused { handle, at });
        }
        let count = self.peer(peer).map_or(0, |peer| peer.rpcs() as usize);
        // Reports can be forged: they cost nothing where the peer has no RPCs.
        let of_peer = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer).take(count);
        let concerns =
            |rpc: &Rpc| !matches!(what, Unreachable::Port(other) if other != rpc.ports().1);
        let hit: Vec<RpcHandle> =
            of_peer.filter(|(_, rpc)| concerns(rpc)).map(|(handle, _)| handle).collect();
        for handle in hit {
            let Some(rpc) = self.rpcs.get(handle) else { continue };
            if !rpc.state.is_client() {
                self.end_server_rpc(handle);
            } else if let Some(error) = self.verdict((handle, rpc), what, refused) {
                self.fail(handle, error);
            }
        }
    }

    /// How a client's RPC ends that needs what cannot be reached.
    fn verdict(
        &self,
        (handle, rpc): (RpcHandle, &Rpc),
        what: Unreachable,
        refused: Option<Refused>,
    ) -> Option<RpcError> {
        if !self.config.policy().loss.verifies_unreachable {
            return Some(what.error());
        }
        if rpc.is_idempotent() {
            return None;
        }
        let validated =
            |proof: Refused| proof.handle == handle || proof.at == Some(rpc.request_sent());
        let came_back = rpc.is_sent_once() && refused.is_some_and(validated);
        if came_back || !rpc.may_be_executed() {
            return Some(what.error());
        }
        let waits = rpc.is_sent_once() && rpc.loss.resends() == 0;
        (!waits).then_some(RpcError::Indeterminate)
    }
}
