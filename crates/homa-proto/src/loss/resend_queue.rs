//! One RESEND per peer at a time (profile `default`): RPCs whose RESEND is due while another one to
//! the peer is outstanding wait in the peer's queue, and the next one asks when the peer is heard.
//!
//! A silent peer with a thousand calls then gets a few packets a second, not thousands.

use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::PeerId;
use crate::units::Time;

impl Endpoint {
    /// Lets an RPC ask when its peer is heard from.
    pub(super) fn queue_resend(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if !rpc.loss.enter_resend_queue() {
            return;
        }
        let peer = rpc.peer;
        let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let rpcs = peer.rpcs() as usize;
        let queue = &mut peer.cold.timing.resend_queue;
        // RPCs that end stay in the queue: remove them when they are more than half of it.
        if queue.len() > 2 * rpcs {
            queue.retain(|&handle| self.rpcs.get(handle).is_some());
        }
        queue.push_back(handle);
    }

    /// The peer was heard from after a RESEND: the next RPC in its queue that has something to ask
    /// for asks.
    pub(crate) fn next_resend(&mut self, now: Time, peer: PeerId) {
        let next = |endpoint: &mut Self| {
            endpoint.peer_mut(peer).and_then(|peer| peer.cold.timing.resend_queue.pop_front())
        };
        while let Some(handle) = next(self) {
            let Some(rpc) = self.rpcs.get_mut(handle) else { continue };
            rpc.loss.leave_resend_queue();
            let rpc = self.rpcs.get(handle).filter(|rpc| rpc.state.sends_resends());
            // Its bytes may have arrived while it waited for its turn.
            if rpc.is_some_and(|rpc| now >= self.resend_at(rpc)) {
                self.check(now, handle);
                // It has asked: the others wait until the peer is heard again.
                if self.peer(peer).is_none_or(|peer| peer.loss.resend_outstanding()) {
                    return;
                }
            }
        }
    }
}
