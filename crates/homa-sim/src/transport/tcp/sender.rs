//! The sending side of a connection: how acknowledgements, timeouts and transmissions change the
//! window and the segments in flight.
//!
//! RFC 5681 and 6582 without selective acknowledgements, RFC 6675 or 8985 with them; RFC 3042 and
//! 6298; RFC 3168 §6.1.2. Invariants: the RTO timer runs exactly while segments are in flight; `una
//! <= next`; a loss reduces the window once per window. Left out: rules 3 and 4 of RFC 6675's
//! `NextSeg` (the timer or the probe repairs such tails), spurious timeouts (RFC 5682), and the
//! reduction spread over a round trip as in Linux (RFC 6937).

use homa_proto::{Duration, Time};

use super::config::TcpConfig;
use super::congestion::{Acked, CongestionControl, CongestionWindow};
use super::rack::{RackState, TailProbe};
use super::rto::Rto;
use super::scoreboard::{DUP_THRESH, Scoreboard, Sent};
use super::segment::{Flags, Segment};

/// The state of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// No loss is known.
    Open,
    /// Fast recovery (RFC 5681 §3.2).
    Recovery,
    /// After a timeout (RFC 5681 §3.1).
    Loss,
}

/// See the module's description.
#[derive(Debug)]
pub struct Sender {
    /// All bytes before this one are acknowledged.
    pub una: u64,
    /// The first byte not sent yet.
    pub next: u64,
    /// The segments between them.
    pub board: Scoreboard,
    /// Congestion window.
    pub window: CongestionWindow,
    /// The algorithm that controls it.
    pub control: CongestionControl,
    /// Round-trip times, and the RTO derived from them.
    pub rto: Rto,
    /// When the RTO timer expires.
    pub rto_due: Time,
    /// Losses by time, and tail loss probes.
    pub rack: RackState,
    phase: RecoveryPhase,
    /// The last loss is repaired once all bytes before this one are acknowledged; `None` if there
    /// was no loss.
    recover: Option<u64>,
    dupacks: u32,
    /// New bytes sent because of duplicates, which do not count as in flight (RFC 5681 §3.2).
    limited: u32,
    /// A partial acknowledgement arrived in this recovery (RFC 6582 §4).
    partial: bool,
    /// The next lost segment is sent regardless of the window.
    must_resend: bool,
    /// A probe is sent regardless of the window.
    must_probe: bool,
    /// The window is not reduced again before this byte is acknowledged.
    reduced_until: u64,
    /// The next segment has to announce the reduction (RFC 3168 §6.1.2).
    announce_reduction: bool,
    /// When a segment was last sent.
    last_sent: Time,
    /// The peak of bytes in flight in this window and the end of the window, to tell whether the
    /// window was used up.
    peak: (u32, u64),
    /// Bytes of new segments that may leave as one large send.
    large_send: u32,
}

/// The segment to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSegment {
    /// One that was sent before.
    Again(Sent),
    /// This many new sequence numbers.
    New(u32),
}

impl Sender {
    /// The state of an empty stream.
    pub fn new(config: &TcpConfig) -> Self {
        Self {
            una: 0,
            next: 0,
            board: Scoreboard::default(),
            window: CongestionWindow::new(config),
            control: CongestionControl::new(config.algorithm),
            rto: Rto::default(),
            rto_due: Time::MAX,
            rack: RackState::default(),
            phase: RecoveryPhase::Open,
            recover: None,
            dupacks: 0,
            limited: 0,
            partial: false,
            must_resend: false,
            must_probe: false,
            reduced_until: 0,
            announce_reduction: false,
            last_sent: Time::ZERO,
            peak: (0, 0),
            large_send: u32::MAX,
        }
    }

    /// The state of loss recovery.
    pub fn phase(&self) -> RecoveryPhase {
        self.phase
    }

    /// Bytes sent and not acknowledged (RFC 5681 §2).
    fn flight(&self) -> u32 {
        (self.next - self.una) as u32
    }

    /// The segment that may be sent now, if a new one would take `available` sequence numbers.
    #[inline]
    pub fn choose(&self, available: u32, config: &TcpConfig) -> Option<NextSegment> {
        let pipe = self.board.pipe();
        let may_fly = |extra| self.window.cwnd.saturating_add(extra);
        let fits = |len: u32, extra: u32| pipe == 0 || pipe + len <= may_fly(extra);
        if let Some(lost) = self.board.next_lost() {
            return (self.must_resend || fits(lost.len, 0)).then_some(NextSegment::Again(lost));
        }
        if available > 0 && self.flight() + available <= config.flight_limit() {
            let extra = if config.recovery.sack { 0 } else { self.limited_transmit(config) };
            let waits = pipe > 0 && self.waits_for_more(available, config);
            if self.must_probe || !waits && fits(available, extra) {
                return Some(NextSegment::New(available));
            }
        }
        self.board.last().filter(|_| self.must_probe).map(NextSegment::Again)
    }

    /// Linux' `tcp_tso_should_defer`: whether a full segment waits until a larger piece may leave
    /// with it. It does not during recovery, nor while a reduction is under way.
    fn waits_for_more(&self, segment: u32, config: &TcpConfig) -> bool {
        config.tso_win_divisor > 0
            && segment >= config.mss()
            && segment > self.large_send
            && self.phase == RecoveryPhase::Open
            && self.una >= self.reduced_until
    }

    /// After an acknowledgement: what may leave now leaves, if it is the configured part of the
    /// window or the largest send.
    fn judge_large_send(&mut self, config: &TcpConfig) {
        if config.tso_win_divisor == 0 {
            return;
        }
        const LARGEST: u32 = 65_536;
        let window = self.window.cwnd.min(config.flight_limit());
        let room = window.saturating_sub(self.board.pipe());
        let part = window / config.tso_win_divisor;
        self.large_send = if room >= part.min(LARGEST) { room } else { 0 };
    }

    /// RFC 3042: one more segment for each of the first two duplicates. (With selective
    /// acknowledgements, segments that arrived leave the pipe instead: RFC 6675 §5.)
    fn limited_transmit(&self, config: &TcpConfig) -> u32 {
        let applies = config.recovery.limited_transmit && self.phase == RecoveryPhase::Open;
        if applies { self.dupacks.min(DUP_THRESH - 1) * config.mss() } else { 0 }
    }

    /// Adjusts the window before the first transmission after an idle period (RFC 5681 §4.1).
    #[inline]
    pub fn wake(&mut self, now: Time, config: &TcpConfig) {
        if !self.board.is_empty() || self.next == 0 {
            return;
        }
        let idle = now.since(self.last_sent);
        self.control.on_idle(idle);
        if config.idle_restart && idle > self.rto.timeout(&config.rto) {
            let restart = CongestionWindow::new(config).cwnd;
            self.window.cwnd = self.window.cwnd.min(restart);
        }
    }

    /// Records that the chosen segment is sent; true if it has to announce a reduction.
    #[inline]
    pub fn sent(&mut self, now: Time, choice: NextSegment, config: &TcpConfig) -> bool {
        let probe = std::mem::take(&mut self.must_probe);
        self.last_sent = now;
        match choice {
            NextSegment::Again(lost) => {
                self.must_resend = false;
                self.board.resend(lost.start, now);
            }
            NextSegment::New(len) => {
                self.board.push(self.next, len, now);
                self.next += u64::from(len);
                self.large_send = self.large_send.saturating_sub(len);
                if self.dupacks > 0 && self.phase == RecoveryPhase::Open {
                    self.limited += len;
                }
                self.note_use();
            }
        }
        if probe {
            let repeats = matches!(choice, NextSegment::Again(_));
            self.rack.probe = Some(TailProbe { end: self.next, repeats });
        }
        if self.rto_due == Time::MAX || probe {
            self.rto_due = now + self.rto.timeout(&config.rto);
        }
        if !probe {
            self.schedule_probe(now, config);
        }
        matches!(choice, NextSegment::New(_)) && std::mem::take(&mut self.announce_reduction)
    }

    fn note_use(&mut self) {
        let flight = self.flight();
        self.peak = if self.una >= self.peak.1 {
            (flight, self.next)
        } else {
            (self.peak.0.max(flight), self.peak.1)
        };
    }

    /// Whether the window limited the sender; if it did not, it must not grow (RFC 7661 §4.1; as in
    /// Linux, half of it is enough in slow start).
    fn used_window(&self, mss: u32) -> bool {
        let (peak, cwnd) = (self.peak.0, self.window.cwnd);
        peak + mss > cwnd || self.window.in_slow_start() && 2 * peak >= cwnd
    }

    /// Restarts the timer of the tail loss probe (RFC 8985 §7.2).
    fn schedule_probe(&mut self, now: Time, config: &TcpConfig) {
        let quiet = self.phase == RecoveryPhase::Open && !self.board.has_sacked();
        let wanted = config.recovery.rack && quiet && self.rack.probe.is_none();
        self.rack.probe_due = Time::MAX;
        if !wanted || self.board.is_empty() {
            return;
        }
        let alone = self.board.len() == 1;
        let wait = RackState::probe_timeout(self.rto.srtt(), alone, config.longest_ack_delay());
        let due = now + wait;
        if due < self.rto_due {
            self.rack.probe_due = due;
        }
    }

    /// An acknowledgement arrives. True if it acknowledges anything new.
    #[inline]
    pub fn on_ack(&mut self, now: Time, segment: &Segment, config: &TcpConfig) -> bool {
        let ack = segment.ack;
        if ack > self.next || ack < self.una {
            return false;
        }
        let newly = (ack - self.una) as u32;
        let sacked = self.take_off(now, segment, config);
        self.una = ack;
        let marked = config.ecn && segment.flags.has(Flags::ECE);
        self.control.observe((ack, self.next), (newly, marked));
        if marked && ack > self.reduced_until && self.phase == RecoveryPhase::Open {
            self.control.on_mark(&mut self.window, config.mss());
            self.reduced_until = self.next;
            self.announce_reduction = true;
        }
        // RFC 5681 §2, and RFC 6675 §2 if there are blocks.
        let plain = newly == 0 && !segment.occupies() && !self.board.is_empty();
        let duplicate = plain && if config.recovery.sack { sacked } else { true };
        let grows = newly > 0 && !marked;
        match self.phase {
            RecoveryPhase::Open => self.on_ack_open(now, (newly, duplicate, grows), config),
            RecoveryPhase::Recovery => self.on_ack_recovering(now, (newly, duplicate), config),
            RecoveryPhase::Loss => self.on_ack_after_timeout(now, (newly, grows), config),
        }
        self.judge_probe(segment, config);
        self.judge_large_send(config);
        if newly > 0 {
            self.restart_timers(now, config);
        }
        newly > 0
    }

    /// Removes the acknowledged segments from the scoreboard and measures their round trip; true if
    /// a block was new.
    fn take_off(&mut self, now: Time, segment: &Segment, config: &TcpConfig) -> bool {
        let (mut rtt, mut repeated, mut sacked) = (None, false, false);
        let (board, rack) = (&mut self.board, &mut self.rack);
        board.acknowledge(segment.ack, |sent| {
            repeated |= sent.repeated;
            if !sent.sacked {
                rtt = rtt.or(Some(now.since(sent.at)));
                rack.delivered(now, sent);
            }
        });
        if config.recovery.sack && !segment.sacks.is_empty() {
            for block in segment.sacks.iter(segment.ack) {
                board.sack(block, |sent| {
                    sacked = true;
                    rack.delivered(now, sent);
                });
            }
        }
        // Karn's rule (RFC 6298 §3).
        if let Some(rtt) = rtt.filter(|_| !repeated) {
            self.rto.sample(rtt);
        }
        sacked
    }

    fn on_ack_open(
        &mut self,
        now: Time,
        (newly, duplicate, grows): (u32, bool, bool),
        config: &TcpConfig,
    ) {
        if newly > 0 {
            (self.dupacks, self.limited) = (0, 0);
        }
        if grows {
            self.grow(now, newly, config);
        }
        self.dupacks += u32::from(duplicate);
        if !config.recovery.fast_retransmit {
            return;
        }
        let lost = if config.recovery.sack {
            self.find_losses(now, config) || !config.recovery.rack && self.dupacks >= DUP_THRESH
        } else {
            // RFC 6582 §3.2 step 1: not again for segments that a timeout sent again.
            duplicate
                && self.dupacks == DUP_THRESH
                && self.recover.is_none_or(|recover| self.una > recover)
        };
        if lost {
            self.enter_recovery(config);
        }
    }

    fn grow(&mut self, now: Time, bytes: u32, config: &TcpConfig) {
        let mss = config.mss();
        if self.used_window(mss) {
            let srtt = self.rto.srtt().unwrap_or(Duration::ZERO);
            let slow_start_limit = config.slow_start_limit;
            let acked = Acked { now, bytes, srtt, mss, slow_start_limit };
            self.control.grow(&mut self.window, &acked);
        }
    }

    /// Marks segments as lost by blocks or by times; true if there were any.
    fn find_losses(&mut self, now: Time, config: &TcpConfig) -> bool {
        if config.recovery.rack {
            let recovering = self.phase != RecoveryPhase::Open;
            let circumstances = (self.rto.srtt(), recovering);
            return self.rack.detect(now, &mut self.board, circumstances);
        }
        self.board.has_sacked() && self.board.lose_overtaken(config.mss())
    }

    /// RFC 5681 §3.2 steps 2 and 3, RFC 6675 §5 step 4.
    fn enter_recovery(&mut self, config: &TcpConfig) {
        let mss = config.mss();
        let flight = self.flight().saturating_sub(self.limited);
        self.control.on_loss(&mut self.window, flight, mss);
        let inflation = if config.recovery.sack { 0 } else { DUP_THRESH * mss };
        self.window.cwnd = self.window.ssthresh + inflation;
        if self.board.next_lost().is_none() {
            self.board.lose_first();
        }
        self.phase = RecoveryPhase::Recovery;
        (self.recover, self.reduced_until) = (Some(self.next), self.next);
        (self.partial, self.limited, self.must_resend) = (false, 0, true);
        self.rack.probe_due = Time::MAX;
    }

    fn on_ack_recovering(
        &mut self,
        now: Time,
        (newly, duplicate): (u32, bool),
        config: &TcpConfig,
    ) {
        let mss = config.mss();
        let window = &mut self.window;
        if self.recover.is_none_or(|recover| self.una >= recover) {
            // RFC 6582 §3.2 step 3, full acknowledgement; RFC 6675 leaves the window at the
            // threshold.
            window.cwnd = window.ssthresh;
            if !config.recovery.sack {
                let flight = (self.next - self.una) as u32;
                window.cwnd = window.ssthresh.min(flight.max(mss) + mss);
            }
            (self.phase, self.dupacks) = (RecoveryPhase::Open, 0);
            self.must_resend = false;
        } else if config.recovery.sack {
            self.find_losses(now, config);
        } else if newly > 0 {
            // Partial acknowledgement: send the next hole, and deflate the window by the bytes
            // acknowledged.
            window.cwnd = window.cwnd.saturating_sub(newly) + if newly >= mss { mss } else { 0 };
            window.cwnd = window.cwnd.max(mss);
            self.board.lose_first();
            self.must_resend = true;
        } else if duplicate {
            window.cwnd = window.cwnd.saturating_add(mss);
        }
    }

    fn on_ack_after_timeout(&mut self, now: Time, (newly, grows): (u32, bool), config: &TcpConfig) {
        if grows {
            self.grow(now, newly, config);
        }
        if config.recovery.rack {
            self.find_losses(now, config);
        }
        if self.recover.is_none_or(|recover| self.una >= recover) {
            (self.phase, self.dupacks, self.limited) = (RecoveryPhase::Open, 0, 0);
        }
    }

    /// Handles the acknowledgement of a probe (RFC 8985 §7.4).
    fn judge_probe(&mut self, segment: &Segment, config: &TcpConfig) {
        let Some(probe) = self.rack.probe.filter(|probe| self.una >= probe.end) else { return };
        if !probe.repeats || segment.flags.has(Flags::DSACK) {
            self.rack.probe = None;
        } else if self.una > probe.end {
            // The probe repaired a loss, which counts as congestion.
            self.rack.probe = None;
            if self.phase == RecoveryPhase::Open {
                let flight = self.flight();
                self.control.on_loss(&mut self.window, flight, config.mss());
                self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
                self.reduced_until = self.next;
            }
        }
    }

    /// RFC 6298 §5.2 and §5.3, RFC 6582 §3.2 (only the first partial acknowledgement restarts).
    fn restart_timers(&mut self, now: Time, config: &TcpConfig) {
        if self.board.is_empty() {
            self.rto_due = Time::MAX;
            (self.rack.probe_due, self.rack.due) = (Time::MAX, Time::MAX);
            return;
        }
        let partial = self.phase == RecoveryPhase::Recovery && !config.recovery.sack;
        if !(partial && self.partial) {
            self.rto_due = now + self.rto.timeout(&config.rto);
        }
        self.partial = partial;
        self.schedule_probe(now, config);
    }

    /// The earliest timer of this side.
    #[inline]
    pub fn due(&self) -> Time {
        self.rto_due.min(self.rack.due).min(self.rack.probe_due)
    }

    /// Handles timers that are due; true if the RTO expired.
    pub fn expire(&mut self, now: Time, config: &TcpConfig) -> bool {
        if self.rack.due <= now
            && self.find_losses(now, config)
            && self.phase == RecoveryPhase::Open
        {
            self.enter_recovery(config);
        }
        if self.rto_due <= now {
            self.on_timeout(now, config);
            return true;
        }
        if self.rack.probe_due <= now {
            (self.rack.probe_due, self.must_probe) = (Time::MAX, true);
        }
        false
    }

    /// RFC 6298 §5.4 to §5.6, RFC 5681 §3.1, RFC 6582 §3.2.
    fn on_timeout(&mut self, now: Time, config: &TcpConfig) {
        let mss = config.mss();
        self.rto.backoff();
        if self.phase != RecoveryPhase::Loss {
            let flight = self.flight();
            self.control.on_loss(&mut self.window, flight, mss);
        }
        self.control.on_timeout();
        self.board.lose_all();
        (self.window.cwnd, self.window.credit) = (mss, 0);
        self.phase = RecoveryPhase::Loss;
        (self.recover, self.reduced_until) = (Some(self.next), self.next);
        (self.dupacks, self.limited) = (0, 0);
        (self.must_resend, self.must_probe) = (true, false);
        self.rto_due = now + self.rto.timeout(&config.rto);
        (self.rack.due, self.rack.probe_due, self.rack.probe) = (Time::MAX, Time::MAX, None);
    }
}
