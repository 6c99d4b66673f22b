//! The state of loss detection: of an RPC, of a peer, and the endpoint's timers.
//!
//! Invariants: only this file writes the times of an RPC; other folders report what happened
//! ([`RpcLoss::heard`], [`RpcLoss::progressed`]) and never when to ask again.

use crate::event::RpcHandle;
use crate::receive::SmoothedTime;
use crate::units::{Duration, Time};
use crate::util::timer::Wheel;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A client doubts the answers to at most this many of its questions about an RPC, because a server
/// that restarted gives such answers for ever.
const DOUBTS_MAX: u8 = 2;

/// What loss detection keeps of one RPC. `repr(C)`: what each DATA packet writes comes first, so
/// that it shares a cache line with the incoming message's pointer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RpcLoss {
    /// RESENDs or NEED_ACKs since the last progress; the exponent of the backoff.
    resend_count: u16,
    /// RESENDs or a NEED_ACK of this RPC wait for the link.
    resends_queued: bool,
    /// In its peer's resend queue.
    in_resend_queue: bool,
    /// At the client: the server's host said last that no server is there.
    server_absent: bool,
    /// At the client: questions whose answers were doubted, because they may have been delayed.
    doubts: u8,
    /// [`Self::resend_count`] at the last doubt.
    doubted_at: u16,
    /// When the peer last showed that it works on this RPC (DATA, GRANT or BUSY), or when something
    /// was owed to us for the first time since.
    last_heard: Time,
    /// When the last RESEND or NEED_ACK was sent.
    last_resend: Time,
    /// At the client: until then the server asked not to be asked. At the server: until then it
    /// asked its client not to ask, or will when that asks. In the past: no one asked.
    rest_until: Time,
}

impl RpcLoss {
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            resend_count: 0,
            resends_queued: false,
            in_resend_queue: false,
            server_absent: false,
            doubts: 0,
            doubted_at: 0,
            last_heard: now,
            last_resend: now,
            rest_until: Time::ZERO,
        }
    }

    /// The peer is alive, or nothing is owed to us: silence starts now.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time) {
        self.last_heard = now;
    }

    /// New DATA or a GRANT arrived: silence starts now, and the backoff is over.
    #[inline]
    pub(crate) fn progressed(&mut self, now: Time) {
        self.last_heard = now;
        self.resend_count = 0;
        self.server_absent = false;
        // The peer sends again, so what it asked for before that is over.
        self.rest_until = Time::ZERO;
    }

    /// The server asks the client not to ask for the response before then.
    pub(crate) fn rest_until(&mut self, until: Time) {
        self.rest_until = until;
    }

    /// Whether the server's host said last that no server is there.
    pub(crate) fn set_server_absent(&mut self, absent: bool) {
        self.server_absent = absent;
    }

    /// Doubts an answer of the server; false if it was doubted often enough. Several delayed
    /// answers to one question are doubted once.
    pub(crate) fn doubts_answer(&mut self) -> bool {
        // These answers are to the question whose answer was doubted last.
        if self.doubts > 0 && self.doubted_at == self.resend_count {
            return true;
        }
        let doubts = self.doubts < DOUBTS_MAX;
        self.doubts += u8::from(doubts);
        self.doubted_at = self.resend_count;
        doubts
    }

    pub(super) const fn is_server_absent(&self) -> bool {
        self.server_absent
    }

    /// The RPC waits for something else from now on, for example for an ACK of its response.
    pub(crate) fn restart(&mut self, now: Time) {
        *self = Self {
            last_heard: now,
            last_resend: now,
            resend_count: 0,
            rest_until: Time::ZERO,
            ..*self
        };
    }

    /// A RESEND or NEED_ACK was sent. `at` is not always the present: see [`super::without_drift`].
    pub(crate) fn asked(&mut self, at: Time) {
        self.last_resend = at;
        self.resend_count = self.resend_count.saturating_add(1);
    }

    /// Counts the last RESEND as sent at another time.
    pub(super) fn resent_at(&mut self, at: Time) {
        self.last_resend = at;
    }

    /// The host did not run for `time` until `now`: that was no silence of the peer.
    pub(super) fn shift(&mut self, time: Duration, now: Time) {
        // No later than now, because silence cannot begin in the future.
        self.last_heard = (self.last_heard + time).min(now);
        self.last_resend = (self.last_resend + time).min(now);
    }

    #[inline]
    pub(crate) const fn last_heard(&self) -> Time {
        self.last_heard
    }

    pub(crate) const fn last_resend(&self) -> Time {
        self.last_resend
    }

    /// Until when the server asked not to be asked; in the past: it did not.
    pub(super) const fn rests_until(&self) -> Time {
        self.rest_until
    }

    /// Since when nothing was heard and nothing was asked.
    pub(super) fn silent_since(&self) -> Time {
        self.last_heard.max(self.last_resend)
    }

    /// RESENDs or NEED_ACKs since the last progress.
    pub(crate) const fn resends(&self) -> u16 {
        self.resend_count
    }

    /// A RESEND was sent after the last sign of life.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.last_resend > self.last_heard
    }

    /// RESENDs or a NEED_ACK of this RPC wait for the link.
    pub(crate) const fn has_queued_resends(&self) -> bool {
        self.resends_queued
    }

    /// Notes that RESENDs or a NEED_ACK wait for the link; false if some did already.
    pub(crate) fn queue_resends(&mut self) -> bool {
        !core::mem::replace(&mut self.resends_queued, true)
    }

    /// They left.
    pub(crate) fn resends_left(&mut self) {
        self.resends_queued = false;
    }

    /// Notes that the RPC is in its peer's resend queue; false if it was already.
    pub(super) fn enter_resend_queue(&mut self) -> bool {
        !core::mem::replace(&mut self.in_resend_queue, true)
    }

    pub(super) fn leave_resend_queue(&mut self) {
        self.in_resend_queue = false;
    }
}

/// What loss detection keeps of a peer and looks at for each packet.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PeerLoss {
    /// When any packet of the peer last arrived.
    last_heard: Time,
    /// Until when a RESEND to this peer counts as outstanding; `Time::ZERO`: none does.
    resend_until: Time,
}

impl PeerLoss {
    pub(crate) const NEW: Self = Self { last_heard: Time::ZERO, resend_until: Time::ZERO };

    /// A packet of the peer arrived; true if a RESEND to it was outstanding.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time) -> bool {
        self.last_heard = now;
        // Any packet of the peer shows that it is alive, so another RESEND may leave.
        core::mem::take(&mut self.resend_until) != Time::ZERO
    }

    pub(crate) const fn last_heard(&self) -> Time {
        self.last_heard
    }

    pub(super) const fn resend_until(&self) -> Time {
        self.resend_until
    }

    pub(super) fn resend_outstanding(&self) -> bool {
        self.resend_until != Time::ZERO
    }

    /// A RESEND was sent that counts as outstanding until `until`, unless the peer is heard.
    pub(super) fn resent(&mut self, until: Time) {
        self.resend_until = until;
    }

    pub(super) fn shift(&mut self, time: Duration) {
        // Zero means that none is outstanding, and has to stay zero.
        if self.resend_outstanding() {
            self.resend_until += time;
        }
    }
}

/// What loss detection keeps of a peer for rarer things: how long it usually takes, and which RPCs
/// wait for their RESEND because one to the peer is outstanding (some of them may have ended).
#[derive(Debug, Default)]
pub(crate) struct PeerTiming {
    /// Time between DATA packets of one of its messages.
    data_gap: SmoothedTime,
    /// Time from the last byte of a request to the first byte of its response.
    response_time: SmoothedTime,
    /// When the last round of RESENDs to the peer was sent, and how many were since it was heard.
    last_round: Time,
    rounds: u8,
    pub(super) resend_queue: VecDeque<RpcHandle>,
}

impl PeerTiming {
    /// When the last round of RESENDs to the peer was sent.
    pub(super) const fn last_round(&self) -> Time {
        self.last_round
    }

    /// A round of RESENDs is sent to a peer that was last heard at `last_heard`; returns how many
    /// before it nothing was heard after.
    pub(super) fn count_round(&mut self, now: Time, last_heard: Time) -> u8 {
        // A peer that was heard since the last round starts the backoff anew.
        let unanswered = if last_heard > self.last_round { 0 } else { self.rounds };
        (self.last_round, self.rounds) = (now, unanswered.saturating_add(1));
        unanswered
    }

    /// DATA of a message arrived `gap` after the last sign of life.
    #[inline]
    pub(crate) fn note_data_gap(&mut self, gap: Duration) {
        self.data_gap.sample(gap);
    }

    /// A response began `time` after its request had left.
    #[inline]
    pub(crate) fn note_response_time(&mut self, time: Duration) {
        self.response_time.sample(time);
    }

    /// Longer than nearly every gap between DATA packets of one message.
    pub(crate) fn usual_gap(&self) -> Duration {
        self.data_gap.usual()
    }

    /// Longer than nearly every response takes to begin.
    pub(super) fn usual_response_time(&self) -> Duration {
        self.response_time.usual()
    }
}

/// The endpoint's timers.
#[derive(Debug)]
pub(crate) struct RpcTimers {
    pub(super) wheel: Wheel,
    /// The entries of one tick; kept so that it is allocated once.
    pub(super) due: Vec<u32>,
}

impl RpcTimers {
    pub(crate) fn new() -> Self {
        Self { wheel: Wheel::new(), due: Vec::new() }
    }

    /// When the first timer fires.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.wheel.deadline()
    }
}
