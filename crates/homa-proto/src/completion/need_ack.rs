//! A server whose response was sent asks for its ACK with NEED_ACK, with backoff, and gives up at
//! last (Homa §3.8; Linux §2.5).

use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::loss::without_drift;
use crate::packet::{Body, Packet};
use crate::rpc::RpcState;
use crate::units::{Duration, Time};
use crate::util::timer::TICK;

/// Most doublings of the interval between NEED_ACKs.
const MAX_BACKOFF: u16 = 6;
/// When an RPC tries again whose NEED_ACK was beyond a limit, at least: later than those that were
/// sent, so that it is next, and rarely enough for many such RPCs.
const RETRY: Duration = Duration::millis(3);

impl Endpoint {
    /// All bytes of an outgoing message were sent (again).
    pub(crate) fn message_sent(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        match (rpc.state, self.config.completion) {
            // No packet will ever name this RPC again (Homa §3.8).
            (RpcState::OneWayOutgoing, _)
            | (RpcState::ServerOutgoing | RpcState::ServerSent, Completion::AtLeastOnce) => {
                self.forget(handle);
            }
            (RpcState::ServerOutgoing, Completion::Acked { need_ack_after, .. }) => {
                rpc.state = RpcState::ServerSent;
                rpc.loss.restart(now);
                self.arm(now, now + need_ack_after, handle);
            }
            (RpcState::ClientOutgoing, _) => rpc.note_request_sent(now),
            _ => {}
        }
    }

    /// The timer of a server RPC whose response was sent: NEED_ACK, or give up. Returns when to
    /// check next.
    pub(crate) fn check_sent(&mut self, now: Time, handle: RpcHandle) -> Option<Time> {
        let Completion::Acked { need_ack_after, need_ack_interval, give_up, .. } =
            self.config.completion
        else {
            return None;
        };
        let rpc = self.rpcs.get_mut(handle)?;
        // The client is gone: it has sent nothing about this RPC for that long.
        if now.since(rpc.loss.last_heard()) >= give_up {
            self.counters.ack_give_ups += 1;
            self.end_server_rpc(handle);
            return None;
        }
        let policy = self.config.policy();
        let steady = policy.completion.steady;
        // The kernel module asks at a constant interval (`steady`); others back off at once.
        let interval = |asked: u16| match asked {
            0 => need_ack_after,
            _ => Duration(need_ack_interval.0 << asked.saturating_sub(steady).min(MAX_BACKOFF)),
        };
        let due = rpc.loss.last_resend() + interval(rpc.loss.resends());
        if now < due {
            return Some(due);
        }
        let asked_at = if policy.loss.without_drift { without_drift(due, now) } else { now };
        // A limit was reached, which says nothing about the client: it is not counted as asked.
        if !self.queue_need_ack(handle) {
            return Some(now + need_ack_interval.max(RETRY));
        }
        let rpc = self.rpcs.get_mut(handle)?;
        rpc.loss.asked(asked_at);
        Some(asked_at + interval(rpc.loss.resends()))
    }

    /// Queues a NEED_ACK for an RPC; false if the last one has not left, or too many were sent.
    pub(crate) fn queue_need_ack(&mut self, handle: RpcHandle) -> bool {
        let (may, tick) = (self.control.may_resend(), self.now.0 / TICK.0);
        let rpc = self.rpcs.get_mut(handle);
        // A question that waits for the link needs no second one.
        let Some(rpc) = rpc.filter(|rpc| may && !rpc.loss.has_queued_resends()) else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        // The answer to one NEED_ACK carries the ACKs of several RPCs.
        if !peer.cold.need_acks.take(tick) {
            return false;
        }
        rpc.loss.queue_resends();
        self.control.push_need_ack(handle);
        true
    }

    /// The NEED_ACK that leaves now, unless the RPC is over.
    pub(crate) fn need_ack_packet(&mut self, handle: RpcHandle) -> Option<Packet> {
        let packet = self.control_packet(handle, Body::NeedAck)?;
        self.rpcs.get_mut(handle)?.loss.resends_left();
        self.counters.need_acks_sent += 1;
        Some(packet)
    }
}
