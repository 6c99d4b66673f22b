//! RESEND at the sender of the bytes (Homa §3.7): retransmit them. Whether it says BUSY is decided
//! in `busy`.

use super::busy::Requested;
use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::link::Links;
use crate::packet::ResendLength;
use crate::rpc::{Rpc, RpcState};
use crate::send::PacketSizes;
use crate::units::Time;

impl Endpoint {
    /// A RESEND for a message of an RPC that we know.
    pub(crate) fn on_resend(
        &mut self,
        now: Time,
        handle: RpcHandle,
        range: (u32, ResendLength),
        priority: u8,
    ) {
        self.counters.resends_received += 1;
        let Some(rpc) = self.rpcs.get(handle) else { return };
        // The address may be spoofed, so a challenge and one RESEND are all that it is sent.
        if rpc.is_unvalidated() {
            return self.on_resend_of_unvalidated(now, handle);
        }
        // The answer to the challenge that its environment carried was lost, or was void.
        if self.proof_due(handle) != Time::MAX {
            let (peer, ports) = (rpc.peer, rpc.ports());
            self.challenge(now, peer, ports);
        }
        let Some(rpc) = self.rpcs.get(handle) else { return };
        // Homa §3.7: the server still works on the request, which BUSY tells its client.
        if !rpc.out.exists() {
            return self.on_resend_before_response(now, handle);
        }
        // No byte was granted, so the peer may have missed the announcement: send it again.
        if range.1 == ResendLength::All && self.announce(handle) {
            return;
        }
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let restarts = self.server_forgot(rpc, range);
        // Then the RESEND is answered by the first packets of the request.
        if restarts {
            self.restart_request(handle);
        }
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(peer) = self.peers.get(rpc.peer.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        // Bytes that are sent again may have left in packets of another size.
        let sizes = PacketSizes::again(&self.config, peer);
        let out = &mut rpc.out;
        let (start, end) = match range {
            // The receiver has nothing of the message, so it cannot name an end.
            (offset, ResendLength::All) => (offset, out.sent),
            (offset, ResendLength::Bytes(n)) => (offset, offset.saturating_add(n).min(out.length)),
        };
        let level = priority.min(self.levels.top());
        let retransmits = out.resend(sizes, (start, end), level) || restarts;
        // A RESEND grants the bytes that it asks for, because the GRANT may have been lost.
        out.granted = out.granted.max(end);
        // The client still wants the response, even if all of it was sent.
        if matches!(rpc.state, RpcState::ServerOutgoing | RpcState::ServerSent) {
            rpc.loss.heard(now);
        }
        let link = Links::only(out.link);
        self.send_queue.wake(handle, out);
        let mut is_behind = || {
            let first = self.send_queue.shortest(&self.rpcs, link);
            first.is_some_and(|first| first != handle)
        };
        let requested = match retransmits {
            true => Requested::Retransmission { behind_shorter: is_behind() },
            false => Requested::NotSent,
        };
        self.answer_resend(handle, requested, None);
    }

    /// True if a RESEND shows that the server has nothing of the request. Servers that forget at
    /// once (Homa §3.8) then ask for all unscheduled bytes, and will grant the rest again. What
    /// arrived of a response is kept, because the server will execute the request again and answer
    /// alike.
    fn server_forgot(&self, rpc: &Rpc, (offset, length): (u32, ResendLength)) -> bool {
        let all = match length {
            ResendLength::All => true,
            ResendLength::Bytes(n) => n >= rpc.out.unscheduled,
        };
        let granted = rpc.state == RpcState::ClientOutgoing && rpc.out.length > rpc.out.unscheduled;
        offset == 0 && all && granted && self.config.completion == Completion::AtLeastOnce
    }

    /// Everything that was sent of a request is retransmitted, at the level of unscheduled bytes
    /// (Linux §2.5).
    pub(crate) fn retransmit_all(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(peer) = self.peers.get(rpc.peer.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        let level = self.levels.unscheduled_priority(self.levels.cutoffs_of(peer), rpc.out.length);
        let sent = rpc.out.sent;
        rpc.out.resend(PacketSizes::again(&self.config, peer), (0, sent), level);
        self.send_queue.wake(handle, &mut rpc.out);
    }
}
