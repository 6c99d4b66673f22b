//! ICMP reports that something of a peer cannot be reached, refusals of our own system, and what
//! they prove.
//!
//! A packet that came back proves nothing about earlier ones: the server may have executed a call
//! and crashed since. In profile `default` (at most once, Homa §3.8), a call was certainly not
//! executed if nothing of its request was sent, or if its first DATA came back and was sent once: a
//! server may begin to execute a request with its first bytes. Packets that left in the same turn
//! as a whole request that came back met the same host. Other calls are
//! [`RpcError::Indeterminate`] if the server sent a packet about them or they have waited for a
//! RESEND; calls that were just sent wait for a report about them, or for their RESEND. Idempotent
//! calls continue, because the server may be about to restart. The other profiles fail every call
//! of the peer, as the kernel module does.
//!
//! A report about the host or the network may be wrong a moment later, for example when a link
//! comes back (RFC 1122 §4.2.3.9). It does not end a call during which the peer was heard, and
//! never ends a request of a client: RESENDs show whether the peer is back, until the deadline. A
//! refusal of our own system ends a call only if no packet of it was sent.
//!
//! If a process is there and nothing listens at the port, there is no ICMP report: the answer to
//! the call's RESEND says so (UDP only; `client`).

use super::state::{Rpc, RpcState};
use crate::endpoint::Endpoint;
use crate::event::{Quoted, RpcError, RpcHandle, Unreachable};
use crate::packet::PeerId;
use crate::units::Time;
use alloc::vec::Vec;

/// The first DATA of a request, which came back and was sent once.
#[derive(Clone, Copy, Debug)]
struct Refused {
    handle: RpcHandle,
    /// When it left, if it is the whole request.
    at: Option<Time>,
}

impl Unreachable {
    const fn is_refusal(self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

impl Rpc {
    /// True if no byte of the request was sent more than once.
    const fn is_sent_once(&self) -> bool {
        matches!(self.state, RpcState::ClientOutgoing)
            && !self.is_seen_by_peer()
            && !self.is_restarted()
    }

    /// True if the server sent a packet about this call.
    const fn is_heard(&self) -> bool {
        self.is_seen_by_peer() || matches!(self.state, RpcState::ClientIncoming)
    }

    /// True if the server may have a part of the request, and act on it.
    const fn may_be_executed(&self) -> bool {
        !self.state.is_outgoing() || self.is_restarted() || self.out.sent > 0
    }
}

impl Endpoint {
    /// Environment in: the network reports that something of the peer cannot be reached (ICMP).
    /// RPCs that need it fail. `quoted` is the packet of ours that came back. Reports can be
    /// forged, but an attacker does not know an RPC in progress, so a report that names none is
    /// ignored. `None`: the report does not show the packet, and the environment vouches that it is
    /// genuine. It must not pass on such a report if reports can be forged.
    pub fn unreachable(
        &mut self,
        now: Time,
        peer: PeerId,
        what: Unreachable,
        quoted: Option<Quoted>,
    ) {
        self.begin(now);
        let mut refused = None;
        if let Some(Quoted { id, begins }) = quoted {
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
            refused = (begins && rpc.is_sent_once()).then_some(Refused { handle, at });
        }
        let verifies = self.config.policy().loss.verifies_unreachable;
        let may_pass = what.is_refusal() || (verifies && what == Unreachable::Host);
        let count = self.peer(peer).map_or(0, |peer| peer.rpcs() as usize);
        // Reports can be forged, so they cost nothing if the peer has no RPCs.
        let of_peer = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer).take(count);
        let concerns =
            |rpc: &Rpc| !matches!(what, Unreachable::Port(other) if other != rpc.ports().1);
        let hit: Vec<RpcHandle> =
            of_peer.filter(|(_, rpc)| concerns(rpc)).map(|(handle, _)| handle).collect();
        for handle in hit {
            let Some(rpc) = self.rpcs.get(handle) else { continue };
            if !rpc.state.is_client() {
                if !may_pass {
                    self.end_server_rpc(handle);
                }
                continue;
            }
            let idempotent = rpc.is_idempotent();
            match self.verdict((handle, rpc), what, refused) {
                Some(error) => self.fail(handle, error),
                // The host itself answers, so it will say when a server is back.
                None if idempotent && !may_pass => self.await_server(now, handle),
                None => {}
            }
        }
    }

    /// Environment in: nothing is sent or received any more. Every call fails with `error`, and
    /// every request of others is cancelled.
    pub fn fail_all(&mut self, error: RpcError) {
        let all: Vec<RpcHandle> = self.rpcs.iter().map(|(handle, _)| handle).collect();
        for handle in all {
            match self.rpcs.get(handle).is_some_and(|rpc| rpc.state.is_client()) {
                true => self.fail(handle, error),
                false => self.end_server_rpc(handle),
            }
        }
    }

    /// The error of a client's RPC that needs the part that cannot be reached; `None` if it
    /// continues.
    fn verdict(
        &self,
        (handle, rpc): (RpcHandle, &Rpc),
        what: Unreachable,
        refused: Option<Refused>,
    ) -> Option<RpcError> {
        // The kernel module's rule: the peer is gone, so its calls fail.
        let refusal = what.is_refusal();
        if !refusal && !self.config.policy().loss.verifies_unreachable {
            return Some(what.error());
        }
        if rpc.is_idempotent() && !refusal {
            return None;
        }
        // A router that has no way for a moment does not end a call during which the peer was
        // heard: the deadline decides (RFC 1122 §4.2.3.9).
        let last_heard = self.peer(rpc.peer).map_or(Time::ZERO, |peer| peer.loss.last_heard());
        let answers = rpc.is_heard() || last_heard > rpc.started();
        if refusal && rpc.is_heard() || what == Unreachable::Host && answers {
            return None;
        }
        let validated =
            |proof: Refused| proof.handle == handle || proof.at == Some(rpc.request_sent());
        let came_back = rpc.is_sent_once() && refused.is_some_and(validated);
        // The packet that came back proves that the server does not have the request.
        if came_back || !rpc.may_be_executed() {
            return Some(what.error());
        }
        let waits = refusal || (rpc.is_sent_once() && rpc.loss.resends() == 0);
        (!waits).then_some(RpcError::Indeterminate)
    }
}
