//! The timers of an RPC (Homa §3.7): one entry in the wheel, re-armed lazily.
//!
//! [`Endpoint::check`] acts on the state of the RPC and returns when to check next.

use super::HOST_STALL;
use crate::coverage::EndpointInput;
use crate::endpoint::Endpoint;
use crate::event::{RpcError, RpcHandle};
use crate::rpc::RpcState;
use crate::units::{Duration, Time};

/// The client of a response that was silent for this long is gone.
const RESPONSE_SILENCE: Duration = Duration::secs(10);
/// Nothing is due for an RPC in service; look again now and then.
const IDLE_CHECK: Duration = Duration::millis(200);
/// An RPC in service for so long has its client asked whether it is there, and again at growing
/// intervals: after 1, 2, 4, … s, at most this many doublings apart.
const SERVICE_PROBE: Duration = Duration::secs(1);
const MAX_PROBE_BACKOFF: u16 = 5;
/// Most doublings of the interval between NEED_ACKs for a response that gets no grants.
const MAX_BACKOFF: u16 = 5;

impl Endpoint {
    /// Fires every timer that is due.
    pub(crate) fn expire_rpcs(&mut self, now: Time) {
        let mut due = core::mem::take(&mut self.timers.due);
        while let Some(tick) = self.timers.wheel.fire(now, &mut due) {
            for &index in &due {
                if let Some(handle) = self.rpcs.disarm(index, tick) {
                    self.cover(Some(handle), EndpointInput::Timer);
                    self.check(now, handle);
                }
            }
        }
        self.timers.due = due;
    }

    /// Notices that the host did not run: until `now`, neither a timer fired nor did input arrive.
    #[inline]
    pub(crate) fn detect_stall(&mut self, now: Time) {
        let awaited = self.timers.deadline().unwrap_or(Time::MAX).max(self.now);
        if now.since(awaited) >= HOST_STALL {
            self.compensate_stall(now, now.since(awaited));
        }
    }

    /// Has an RPC checked no later than `at`; never if loss detection has no timers.
    pub(crate) fn arm(&mut self, now: Time, at: Time, handle: RpcHandle) {
        if self.config.loss.resend_after == Duration::MAX {
            return;
        }
        if let Some(armed) = self.rpcs.armed(handle) {
            self.timers.wheel.arm(now, at, handle.index, armed);
        }
    }

    /// Acts on everything that is due for one RPC.
    pub(crate) fn check(&mut self, now: Time, handle: RpcHandle) {
        let until = self.proof_due(handle);
        if now >= until {
            return self.end_server_rpc(handle);
        }
        let Some(state) = self.rpcs.get(handle).map(|rpc| rpc.state) else { return };
        let next = match state {
            RpcState::ClientOutgoing | RpcState::ClientIncoming => self.check_client(now, handle),
            RpcState::ServerIncoming | RpcState::OneWayIncoming => {
                self.check_receiving(now, handle)
            }
            RpcState::ServerInService => self.check_serving(now, handle),
            RpcState::ServerOutgoing => self.check_responding(now, handle),
            RpcState::ServerSent => self.check_sent(now, handle),
            RpcState::OneWayOutgoing => None,
        };
        if let Some(next) = next {
            self.arm(now, next.min(until), handle);
        }
    }

    fn check_client(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let deadline = self.rpcs.get(handle)?.deadline();
        if now >= deadline {
            self.fail(handle, RpcError::DeadlineExceeded);
            return None;
        }
        // The server may have lowered its limit since the request was submitted.
        if self.fail_too_long(handle) {
            return None;
        }
        let waits_for_memory = self.waits_for_memory(handle);
        let policy = &self.config.policy().loss;
        let rpc = self.rpcs.get_mut(handle)?;
        let sending = match policy.silence_starts_when_sent {
            true => rpc.out.may_send_more(),
            false => rpc.out.has_bytes_to_send(),
        } || rpc.out.waits_for_writer();
        // While the request is not sent, or we have no room for the response, the server owes
        // nothing.
        if rpc.state == RpcState::ClientOutgoing && (sending || waits_for_memory) {
            rpc.loss.heard(now);
        }
        let silent = now.since(rpc.loss.last_heard());
        // In profile `default` there is none, because each call has a deadline.
        if self.config.loss.timeout.is_some_and(|limit| silent >= limit) {
            self.fail(handle, RpcError::PeerUnreachable);
            return None;
        }
        Some(self.resend_if_due(now, handle)?.min(deadline))
    }

    fn check_receiving(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get(handle)?;
        // No RESENDs go to an address that may be spoofed: it is challenged once more.
        if rpc.is_unvalidated() {
            return self.check_unvalidated(now, handle);
        }
        // Otherwise a client that died would hold its place and its memory for ever.
        if now.since(rpc.loss.last_heard()) >= self.config.loss.server_silence {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        // Its client will be asked for everything when there is memory.
        if self.waits_for_memory(handle) {
            return Some(now + self.config.loss.resend_after);
        }
        self.resend_if_due(now, handle)
    }

    /// Nothing is sent about an RPC in service, so nothing else shows that its client ended. If the
    /// client knows the RPC, NEED_ACK costs a RESEND and BUSY; if it is another process, it answers
    /// with an ACK; and if its port is closed, its host says so.
    fn check_serving(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        if !self.config.policy().completion.asks_while_sending {
            return Some(now + IDLE_CHECK);
        }
        let rpc = self.rpcs.get(handle)?;
        let wait = match rpc.loss.resends().checked_sub(1) {
            None => SERVICE_PROBE,
            Some(asked) => Duration(SERVICE_PROBE.0 << asked.min(MAX_PROBE_BACKOFF)),
        };
        // A client that was told when to ask again asks then, which shows that it is there.
        let asks = rpc.loss.rests_until() + SERVICE_PROBE;
        let due = (rpc.loss.last_resend() + wait).max(asks);
        if now < due {
            return Some(due);
        }
        // A limit was reached, which shows nothing about the client.
        if !self.queue_need_ack(handle) {
            return Some(now + IDLE_CHECK);
        }
        self.rpcs.get_mut(handle)?.loss.asked(now);
        Some(now + SERVICE_PROBE)
    }

    fn check_responding(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let rpc = self.rpcs.get_mut(handle)?;
        // The client owes nothing yet, because the next bytes wait for our link.
        if rpc.out.has_bytes_to_send() {
            rpc.loss.heard(now);
        } else if now.since(rpc.loss.last_heard()) >= RESPONSE_SILENCE {
            self.counters.server_cancels += 1;
            self.end_server_rpc(handle);
            return None;
        }
        // A response that gets no grants: its client may have given up and its ACK was lost, or it
        // crashed and is back. If the client does not know the RPC, it answers with an ACK.
        let wait = Duration(IDLE_CHECK.0 << rpc.loss.resends().min(MAX_BACKOFF));
        let silent = now.since(rpc.loss.silent_since()) >= wait;
        let asks = self.config.policy().completion.asks_while_sending;
        if silent && asks && self.queue_need_ack(handle) {
            self.rpcs.get_mut(handle)?.loss.asked(now);
        }
        Some(now + IDLE_CHECK)
    }
}
