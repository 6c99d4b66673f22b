//! BUSY (Homa §3.7, Figure 3): when the sender of a message answers a RESEND with it
//! ([`says_busy`]), and what its receiver does then.
//!
//! In profile `default` the BUSY of a request in service names the time until which its client
//! should not ask again: after as long as the RPC has taken so far, or as the application
//! announced. So the interval between the RESENDs of a long call grows to 10 s. If a response is
//! lost meanwhile, the server's NEED_ACK repairs that.

use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::Body;
use crate::rpc::RpcState;
use crate::rpc::room::MOST;
use crate::units::{Duration, Time};

/// What the sender of a message has for the receiver that sent a RESEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// The message is a response, and the server still executes the RPC.
    NoResponseYet,
    /// None of the bytes was sent so far.
    NotSent,
    /// Bytes to retransmit; shorter messages may have to leave first.
    Retransmission { behind_shorter: bool },
}

/// Homa §3.7, Figure 3: a sender that cannot answer a RESEND at once says BUSY, so that the
/// receiver does not time out.
///
/// Example: a client asks for a response while the server still executes the RPC: BUSY.
pub(super) const fn says_busy(requested: Requested, busy_while_waiting: bool) -> bool {
    match requested {
        // Nothing can leave yet.
        Requested::NoResponseYet | Requested::NotSent => true,
        // Shorter messages leave first. (The kernel module does not say so.)
        Requested::Retransmission { behind_shorter } => behind_shorter && busy_while_waiting,
    }
}

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
    /// A client asks for a response that does not exist yet.
    pub(super) fn on_resend_before_response(&mut self, now: Time, handle: RpcHandle) {
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
        self.answer_resend(handle, Requested::NoResponseYet, time);
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

    /// Sends BUSY if it is the answer to a RESEND.
    pub(super) fn answer_resend(
        &mut self,
        handle: RpcHandle,
        requested: Requested,
        come_back: Option<Duration>,
    ) {
        if !says_busy(requested, self.config.policy().loss.busy_while_waiting) {
            return;
        }
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
    fn a_sender_that_cannot_answer_at_once_says_busy() {
        let behind = |behind_shorter| Requested::Retransmission { behind_shorter };
        for (requested, paper, module) in [
            (Requested::NoResponseYet, true, true),
            (Requested::NotSent, true, true),
            (behind(true), true, false),
            // The bytes leave at once.
            (behind(false), false, false),
        ] {
            assert_eq!(says_busy(requested, true), paper, "{requested:?}");
            assert_eq!(says_busy(requested, false), module, "{requested:?}");
        }
    }

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
