//! RESEND at the sender of the bytes: retransmit them, or say BUSY if nothing can leave at once
//! (Homa §3.7, Figure 3).

use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::link::Links;
use crate::packet::{Body, ResendLength};
use crate::rpc::room::MOST;
use crate::rpc::{Rpc, RpcState};
use crate::send::PacketSizes;
use crate::units::{Duration, Time};

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
        if rpc.is_unvalidated() {
            return self.on_resend_of_unvalidated(now, handle);
        }
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
        let sizes = PacketSizes::again(&self.config, peer);
        let out = &mut rpc.out;
        let (start, end) = match range {
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
        // Retransmissions may queue behind shorter messages: tell the receiver, so that it does not
        // time out. The kernel module does so only if there is nothing to retransmit.
        let waits = self.config.policy().loss.busy_while_waiting
            && self.send_queue.shortest(&self.rpcs, link).is_some_and(|first| first != handle);
        if !retransmits || waits {
            self.send_busy(handle);
        }
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

    /// A client asks for a response that does not exist yet.
    fn on_resend_before_response(&mut self, now: Time, handle: RpcHandle) {
        let waits_for_memory = self.waits_for_memory(handle);
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if waits_for_memory {
            rpc.loss.heard(now);
        }
        // The client is alive, so missing bytes of its request can be asked for at once.
        let late = now.since(rpc.loss.silent_since()) >= self.config.loss.resend_after;
        let asks = self.config.policy().loss.requests_missing_on_resend;
        if asks && late && rpc.awaits_bytes() && self.control.may_resend() {
            self.request_missing(now, handle);
        }
        self.send_busy(handle);
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

    fn send_busy(&mut self, handle: RpcHandle) {
        if !self.may_answer() {
            return;
        }
        self.counters.busys_sent += 1;
        self.queue_control(handle, Body::Busy { come_back: None });
    }

    /// BUSY: the sender is alive, and will send when shorter messages are done. Or it has no room
    /// for our request, and is asked again after `come_back`.
    pub(crate) fn on_busy(&mut self, now: Time, handle: RpcHandle, come_back: Option<Duration>) {
        self.counters.busys_received += 1;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        rpc.loss.heard(now);
        rpc.loss.set_server_absent(false);
        let sent_away = rpc.state == RpcState::ClientOutgoing;
        let time = come_back.filter(|_| sent_away).unwrap_or_default();
        rpc.loss.rest_until(now + time.min(MOST));
    }
}
