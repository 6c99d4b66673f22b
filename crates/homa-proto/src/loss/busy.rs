//! RESEND at the sender of the bytes: retransmit them, or say BUSY if nothing can leave at once
//! (Homa §3.7, Figure 3).
//!
//! In profile `default` the BUSY of a request in service names the time until which its client
//! should not ask again: after as long as the RPC has taken so far, or as the application
//! announced. So the interval between the RESENDs of a long call grows to 10 s. If a response is
//! lost meanwhile, the server's NEED_ACK repairs that.

use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::link::Links;
use crate::packet::{Body, ResendLength};
use crate::rpc::room::MOST;
use crate::rpc::{Rpc, RpcState};
use crate::send::PacketSizes;
use crate::units::{Duration, Time};

/// Clients of RPCs that have taken less are not told when to ask again: their own backoff is as
/// slow.
const SHORT: Duration = Duration::millis(250);
/// The longest time to come back that follows from the time so far, because a client that waits
/// notices only then that its server died.
const MOST_IN_SERVICE: Duration = Duration::secs(10);

/// How long the client of a request in service should wait before it asks again, if the first bytes
/// of the request arrived `age` ago and the application announced `announced` more; `None`: as it
/// likes.
fn come_back(age: Duration, announced: Duration) -> Option<Duration> {
    let usual = if age < SHORT { Duration::ZERO } else { age };
    let time = usual.min(MOST_IN_SERVICE).max(announced.min(MOST));
    (time > Duration::ZERO).then_some(time)
}

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
        // Homa Figure 3: BUSY keeps the receiver from timing out while retransmissions wait behind
        // shorter messages. The kernel module sends it only if there is nothing to retransmit.
        let waits = self.config.policy().loss.busy_while_waiting
            && self.send_queue.shortest(&self.rpcs, link).is_some_and(|first| first != handle);
        if !retransmits || waits {
            self.send_busy(handle, None);
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
        // Our memory is missing, not the client's bytes, and that is no silence.
        if waits_for_memory {
            rpc.loss.heard(now);
        }
        // The client is alive, so missing bytes of its request can be asked for at once.
        let late = now.since(rpc.loss.silent_since()) >= self.config.loss.resend_after;
        let asks = self.config.policy().loss.requests_missing_on_resend;
        if asks && late && rpc.awaits_bytes() && self.control.may_resend() {
            self.request_missing(now, handle);
        }
        let time = self.note_asked_in_service(now, handle);
        self.send_busy(handle, time);
    }

    /// The client of a request asks; returns the time to come back that it is given if its request
    /// is in service. It is known to be alive until then.
    fn note_asked_in_service(&mut self, now: Time, handle: RpcHandle) -> Option<Duration> {
        // A server that forgets a response with its last packet does not ask whether it arrived.
        let tells = self.config.policy().wire.come_back
            && self.config.completion != Completion::AtLeastOnce;
        let rpc = self.rpcs.get_mut(handle)?;
        if !tells || rpc.state != RpcState::ServerInService {
            return None;
        }
        let time = come_back(now.since(rpc.started()), rpc.loss.rests_until().since(now))?;
        rpc.loss.rest_until(now + time);
        Some(time)
    }

    /// The application says that it will take about this long from now to answer a request: its
    /// client, which asks for the response a few milliseconds after the request, is told not to ask
    /// again before then (profile `default`). At most a minute. A client that was told notices only
    /// at the end of that time that its server died, or refused the request in an answer that was
    /// lost. The server notices a client that died a second after that time. So this is for
    /// requests that wait for events.
    pub fn announce_delay(&mut self, now: Time, handle: RpcHandle, delay: Duration) {
        self.begin(now);
        if let Some(rpc) = self.rpcs.get_mut(handle)
            && rpc.state == RpcState::ServerInService
        {
            rpc.loss.rest_until(now + delay.min(MOST));
        }
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

    fn send_busy(&mut self, handle: RpcHandle, come_back: Option<Duration>) {
        // A peer that asks faster than our link answers must cost no memory.
        if !self.may_answer() {
            return;
        }
        self.counters.busys_sent += 1;
        self.queue_control(handle, Body::Busy { come_back });
    }

    /// BUSY: the sender is alive, and will send when shorter messages are done. Or it has no room
    /// for our request, or expects to work on it for longer, and is asked again after `come_back`.
    pub(crate) fn on_busy(&mut self, now: Time, handle: RpcHandle, come_back: Option<Duration>) {
        self.counters.busys_received += 1;
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        // Homa Figure 3: the sender is alive, so the timeout starts anew.
        rpc.loss.heard(now);
        // An answer shows that a server is there.
        rpc.loss.set_server_absent(false);
        // At a server, a client's BUSY says nothing about what the server announced.
        if !rpc.state.is_client() {
            return;
        }
        // Once the response has begun, silence is a loss.
        let waits = rpc.state == RpcState::ClientOutgoing;
        let time = come_back.filter(|_| waits).unwrap_or_default();
        // A wrong answer silences the client for no longer than the longest honest one.
        rpc.loss.rest_until(now + time.min(MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ask_again_after_the_time_that_the_rpc_has_taken() {
        const MS: fn(u64) -> Duration = Duration::millis;
        for (age, announced, want) in [
            (10, 0, None),
            (249, 0, None),
            (250, 0, Some(250)),
            (3_000, 0, Some(3_000)),
            (60_000, 0, Some(10_000)),
            (10, 25_000, Some(25_000)),
            (3_000, 1_000, Some(3_000)),
            (10, 600_000, Some(60_000)),
        ] {
            let got = come_back(MS(age), MS(announced));
            assert_eq!(got, want.map(MS), "{age} {announced}");
        }
    }
}
