//! ACKs that wait for a DATA packet to carry them, the RPCs that were acknowledged last, and the
//! memory of executed RPCs.

use crate::packet::{AckEntry, Acks, PeerId, RpcId};
use crate::units::{Duration, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How long more ACKs than a packet holds wait: well before a server asks for them.
const ACK_DELAY: Duration = Duration::millis(5);
/// For how long after an ACK a RESEND of its RPC gets no answer.
const QUIET_AFTER_ACK: Duration = Duration::millis(10);
/// Most RPCs that are remembered for that. A RESEND of an unknown RPC looks at all of them.
const MAX_RECENT: usize = 1_024;
/// Most NEED_ACKs to one peer in a millisecond. The answer to each brings all ACKs that wait, and
/// asking for thousands of RPCs would keep a busy peer from answering.
const MAX_NEED_ACKS: u16 = 16;

/// Completed RPCs that a server has not been told about, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks {
    acks: VecDeque<AckEntry>,
    /// The peer is in [`AckTimer`]'s list.
    late: bool,
}

impl PendingAcks {
    /// Adds an ACK unless `most` wait already.
    pub(crate) fn push(&mut self, ack: AckEntry, most: usize) -> bool {
        let room = self.acks.len() < most;
        if room {
            self.acks.push_back(ack);
        }
        room
    }

    /// An ACK to piggyback on DATA: the oldest, or the newest.
    pub(crate) fn pop(&mut self, newest: bool) -> Option<AckEntry> {
        if newest { self.acks.pop_back() } else { self.acks.pop_front() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.acks.is_empty()
    }

    /// As many as an ACK packet holds.
    pub(crate) fn take(&mut self) -> Acks {
        let mut acks = Acks::default();
        while acks.len() < Acks::CAPACITY
            && let Some(entry) = self.acks.pop_front()
        {
            let _ = acks.push(entry);
        }
        acks
    }

    fn exceed_a_packet(&self) -> bool {
        self.acks.len() > Acks::CAPACITY
    }

    /// True if more wait than a packet holds, and that is new.
    pub(crate) fn is_newly_late(&mut self) -> bool {
        // A peer is in the list of late ones once.
        self.exceed_a_packet() && !core::mem::replace(&mut self.late, true)
    }

    /// The peer left the list: true if more still wait than a packet holds.
    pub(crate) fn take_late(&mut self) -> bool {
        self.late = false;
        self.exceed_a_packet()
    }
}

/// Peers with more ACKs waiting than a packet holds, and when those are sent.
#[derive(Debug)]
pub(crate) struct AckTimer {
    late: Vec<PeerId>,
    due: Time,
    /// The port that requests were last sent from, which ACK packets name.
    local_port: u16,
}

impl AckTimer {
    pub(crate) const NEW: Self = Self { late: Vec::new(), due: Time::MAX, local_port: 0 };

    /// When ACKs are due; `Time::MAX` if none are.
    #[inline]
    pub(crate) const fn due(&self) -> Time {
        self.due
    }

    pub(super) fn add(&mut self, now: Time, peer: PeerId) {
        self.late.push(peer);
        // ACKs for peers that become late after the first one leave together with its ACKs.
        self.due = self.due.min(now + ACK_DELAY);
    }

    /// The list starts over.
    pub(super) fn restart(&mut self) {
        self.due = Time::MAX;
    }

    pub(super) fn pop(&mut self) -> Option<PeerId> {
        self.late.pop()
    }

    pub(crate) fn note_local_port(&mut self, port: u16) {
        self.local_port = port;
    }

    pub(super) const fn local_port(&self) -> u16 {
        self.local_port
    }
}

/// NEED_ACKs sent to a peer within the current millisecond.
#[derive(Debug, Default)]
pub(crate) struct NeedAckBudget {
    tick: u64,
    sent: u16,
}

impl NeedAckBudget {
    /// Takes one; false if there is none left in this tick.
    pub(super) fn take(&mut self, tick: u64) -> bool {
        // Another millisecond has begun, and with it another budget.
        if self.tick != tick {
            *self = Self { tick, sent: 0 };
        }
        let left = self.sent < MAX_NEED_ACKS;
        self.sent += u16::from(left);
        left
    }
}

/// RPCs that were acknowledged a moment ago. Their clients may have sent a RESEND before the
/// response arrived; the kernel module logs an answer of RPC_UNKNOWN as an error.
#[derive(Debug, Default)]
pub(crate) struct RecentAcks {
    /// Oldest first, at most [`MAX_RECENT`].
    acked: VecDeque<(Time, PeerId, RpcId)>,
}

impl RecentAcks {
    /// An RPC is acknowledged now.
    pub(super) fn add(&mut self, now: Time, peer: PeerId, id: RpcId) {
        let past = |&&(at, ..): &&(Time, PeerId, RpcId)| now.since(at) >= QUIET_AFTER_ACK;
        let over = self.acked.iter().take_while(past).count();
        let most = MAX_RECENT - 1;
        // Entries that are too old, and the oldest if there are too many.
        self.acked.drain(..over.max(self.acked.len().saturating_sub(most)));
        self.acked.push_back((now, peer, id));
    }

    /// True if an RPC was acknowledged within [`QUIET_AFTER_ACK`].
    pub(super) fn contains(&self, now: Time, peer: PeerId, id: RpcId) -> bool {
        // The newest are last, so the search ends at the first that is too old.
        let recent = self.acked.iter().rev();
        let mut recent = recent.take_while(|(at, ..)| now.since(*at) < QUIET_AFTER_ACK);
        recent.any(|&(_, of, acked)| (of, acked) == (peer, id))
    }
}

/// Since when no executed RPC was forgotten.
#[derive(Debug, Default)]
pub(crate) struct ExecutionMemory {
    /// `None` before the first input: an endpoint cannot vouch for the time before it.
    since: Option<Time>,
    /// For how long before that nothing was forgotten: by an endpoint whose place this one took, or
    /// because no endpoint was there.
    before: Duration,
}

impl ExecutionMemory {
    /// Starts at the first input; true then.
    #[inline]
    pub(crate) fn start(&mut self, now: Time) -> bool {
        let first = self.since.is_none();
        if first {
            self.since = Some(now);
        }
        first
    }

    /// Something that was executed is forgotten.
    pub(crate) fn note_forgotten(&mut self, now: Time) {
        // What an earlier endpoint vouched for is not complete any more either.
        (self.since, self.before) = (Some(now), Duration::ZERO);
    }

    /// The memory reaches back for so long before the first input.
    pub(crate) fn resume(&mut self, before: Duration) {
        self.before = before;
    }

    /// For how long nothing was forgotten.
    pub(crate) fn covers(&self, now: Time) -> Duration {
        let here = now.since(self.since.unwrap_or(now));
        Duration(here.0.saturating_add(self.before.0))
    }

    /// The same for a peer that is opened now; `Time::MAX` before the first input.
    pub(crate) fn of_new_peer(&self) -> Time {
        self.since.unwrap_or(Time::MAX)
    }
}
