//! The sending side of a connection: what an acknowledgement, a timeout or a transmission does to
//! the window and to what is under way.
//!
//! RFC 5681 and 6582 without, RFC 6675 or 8985 with selective acknowledgements; RFC 3042 and 6298;
//! RFC 3168 §6.1.2. Invariants: the retransmission timer runs exactly while something is under way;
//! `una <= next`; a loss is answered once per window. Left out: rules 3 and 4 of RFC 6675's
//! `NextSeg` (the timer or the probe repairs such tails), spurious timeouts (RFC 5682), the
//! reduction spread over a round trip as Linux does (RFC 6937).

use homa_proto::{Duration, Time};

use super::config::TcpConfig;
use super::congestion::{Acked, CongestionControl, Window};
use super::rack::{Probe, Rack};
use super::rto::Rto;
use super::scoreboard::{DUP_THRESH, Scoreboard, Sent};
use super::segment::{Flags, Segment};

/// Where a connection is with its losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery (RFC 5681 §3.2).
    Recovery,
    /// After a timeout (RFC 5681 §3.1).
    Loss,
}

/// See the module's description.
#[derive(Debug)]
pub struct Sender {
    /// Everything before is acknowledged.
    pub una: u64,
    /// The first byte not sent yet.
    pub next: u64,
    /// What lies between.
    pub board: Scoreboard,
    /// Congestion window.
    pub window: Window,
    /// What moves it.
    pub control: CongestionControl,
    /// Round-trip times.
    pub rto: Rto,
    /// When the retransmission timer expires.
    pub rto_due: Time,
    /// Losses by time, probes.
    pub rack: Rack,
    phase: Phase,
    /// Everything sent when the last loss was found is acknowledged from here on; `None`: no loss.
    recover: Option<u64>,
    dupacks: u32,
    /// New bytes sent because of duplicates, which do not count as under way (RFC 5681 §3.2).
    limited: u32,
    /// A partial acknowledgement came in this recovery (RFC 6582 §4).
    partial: bool,
    /// The next lost segment is sent whatever the window.
    must_resend: bool,
    /// A probe is to be sent whatever the window.
    must_probe: bool,
    /// The window is not reduced again before this is acknowledged.
    reduced_until: u64,
    /// The reduction is to be told (RFC 3168 §6.1.2).
    tell_reduced: bool,
    /// When something was sent last.
    last_sent: Time,
    /// Most bytes under way in this window and when it ends: whether the window was used.
    peak: (u32, u64),
}

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Once more.
    Again(Sent),
    /// This many new sequence numbers.
    New(u32),
}

impl Sender {
    /// Of a stream without bytes.
    pub fn new(config: &TcpConfig) -> Self {
        Self {
            una: 0,
            next: 0,
            board: Scoreboard::default(),
            window: Window::new(config),
            control: CongestionControl::new(config.algorithm),
            rto: Rto::default(),
            rto_due: Time::MAX,
            rack: Rack::default(),
            phase: Phase::Open,
            recover: None,
            dupacks: 0,
            limited: 0,
            partial: false,
            must_resend: false,
            must_probe: false,
            reduced_until: 0,
            tell_reduced: false,
            last_sent: Time::ZERO,
            peak: (0, 0),
        }
    }

    /// Where the connection is with its losses.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Sent and not acknowledged (RFC 5681 §2).
    fn flight(&self) -> u32 {
        (self.next - self.una) as u32
    }

    /// What may be sent now, if `available` new sequence numbers fit in the next segment.
    #[inline]
    pub fn choose(&self, available: u32, config: &TcpConfig) -> Option<Choice> {
        let pipe = self.board.pipe();
        let may_fly = |extra| self.window.cwnd.saturating_add(extra);
        let fits = |len: u32, extra: u32| pipe == 0 || pipe + len <= may_fly(extra);
        if let Some(lost) = self.board.next_lost() {
            return (self.must_resend || fits(lost.len, 0)).then_some(Choice::Again(lost));
        }
        if available > 0 && self.flight() + available <= config.flight_limit() {
            let extra = if config.recovery.sack { 0 } else { self.limited_transmit(config) };
            if self.must_probe || fits(available, extra) {
                return Some(Choice::New(available));
            }
        }
        self.board.last().filter(|_| self.must_probe).map(Choice::Again)
    }

    /// RFC 3042: a segment more for each of the first two duplicates. (With selective
    /// acknowledgements, what arrived leaves the pipe instead: RFC 6675 §5.)
    fn limited_transmit(&self, config: &TcpConfig) -> u32 {
        let applies = config.recovery.limited_transmit && self.phase == Phase::Open;
        if applies { self.dupacks.min(DUP_THRESH - 1) * config.mss() } else { 0 }
    }

    /// Before the first transmission after a while: what the silence does to the window (RFC 5681
    /// §4.1).
    #[inline]
    pub fn wake(&mut self, now: Time, config: &TcpConfig) {
        if !self.board.is_empty() || self.next == 0 {
            return;
        }
        let idle = now.since(self.last_sent);
        self.control.on_idle(idle);
        if config.idle_restart && idle > self.rto.timeout(&config.rto) {
            let restart = Window::new(config).cwnd;
            self.window.cwnd = self.window.cwnd.min(restart);
        }
    }

    /// What was chosen is sent; true if the segment tells of a reduction.
    #[inline]
    pub fn sent(&mut self, now: Time, choice: Choice, config: &TcpConfig) -> bool {
        let probe = std::mem::take(&mut self.must_probe);
        self.last_sent = now;
        match choice {
            Choice::Again(lost) => {
                self.must_resend = false;
                self.board.resend(lost.start, now);
            }
            Choice::New(len) => {
                self.board.push(self.next, len, now);
                self.next += u64::from(len);
                if self.dupacks > 0 && self.phase == Phase::Open {
                    self.limited += len;
                }
                self.note_use();
            }
        }
        if probe {
            let repeats = matches!(choice, Choice::Again(_));
            self.rack.probe = Some(Probe { end: self.next, repeats });
        }
        if self.rto_due == Time::MAX || probe {
            self.rto_due = now + self.rto.timeout(&config.rto);
        }
        if !probe {
            self.schedule_probe(now, config);
        }
        matches!(choice, Choice::New(_)) && std::mem::take(&mut self.tell_reduced)
    }

    fn note_use(&mut self) {
        let flight = self.flight();
        self.peak = if self.una >= self.peak.1 {
            (flight, self.next)
        } else {
            (self.peak.0.max(flight), self.peak.1)
        };
    }

    /// True if the window was what limited the sender; otherwise it must not grow (RFC 7661 §4.1;
    /// as in Linux, half of it is enough in slow start).
    fn used_window(&self, mss: u32) -> bool {
        let (peak, cwnd) = (self.peak.0, self.window.cwnd);
        peak + mss > cwnd || self.window.in_slow_start() && 2 * peak >= cwnd
    }

    /// A tail loss probe's timer (RFC 8985 §7.2).
    fn schedule_probe(&mut self, now: Time, config: &TcpConfig) {
        let quiet = self.phase == Phase::Open && !self.board.has_sacked();
        let wanted = config.recovery.rack && quiet && self.rack.probe.is_none();
        self.rack.probe_due = Time::MAX;
        if !wanted || self.board.is_empty() {
            return;
        }
        let alone = self.board.len() == 1;
        let wait = Rack::probe_timeout(self.rto.srtt(), alone, config.longest_ack_delay());
        let due = now + wait;
        if due < self.rto_due {
            self.rack.probe_due = due;
        }
    }

    /// An acknowledgement. True if it acknowledges anything new.
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
        if marked && ack > self.reduced_until && self.phase == Phase::Open {
            self.control.on_mark(&mut self.window, config.mss());
            self.reduced_until = self.next;
            self.tell_reduced = true;
        }
        // RFC 5681 §2, and RFC 6675 §2 where there are blocks.
        let plain = newly == 0 && !segment.occupies() && !self.board.is_empty();
        let duplicate = plain && if config.recovery.sack { sacked } else { true };
        let grows = newly > 0 && !marked;
        match self.phase {
            Phase::Open => self.on_ack_open(now, (newly, duplicate, grows), config),
            Phase::Recovery => self.on_ack_recovering(now, (newly, duplicate), config),
            Phase::Loss => self.on_ack_after_timeout(now, (newly, grows), config),
        }
        self.judge_probe(segment, config);
        if newly > 0 {
            self.restart_timers(now, config);
        }
        newly > 0
    }

    /// Takes what an acknowledgement covers off the scoreboard, and measures its round trip; true
    /// if it brought news of something beyond a gap.
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
            // RFC 6582 §3.2 step 1: not again for what a timeout sent again.
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

    /// Loses what the blocks or the times say; true if that was anything.
    fn find_losses(&mut self, now: Time, config: &TcpConfig) -> bool {
        if config.recovery.rack {
            let recovering = self.phase != Phase::Open;
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
        self.phase = Phase::Recovery;
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
            (self.phase, self.dupacks) = (Phase::Open, 0);
            self.must_resend = false;
        } else if config.recovery.sack {
            self.find_losses(now, config);
        } else if newly > 0 {
            // Partial acknowledgement: the next hole, and the window deflated by what left.
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
            (self.phase, self.dupacks, self.limited) = (Phase::Open, 0, 0);
        }
    }

    /// What became of a probe (RFC 8985 §7.4).
    fn judge_probe(&mut self, segment: &Segment, config: &TcpConfig) {
        let Some(probe) = self.rack.probe.filter(|probe| self.una >= probe.end) else { return };
        if !probe.repeats || segment.flags.has(Flags::DSACK) {
            self.rack.probe = None;
        } else if self.una > probe.end {
            // It repaired a loss, which counts as congestion.
            self.rack.probe = None;
            if self.phase == Phase::Open {
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
        let partial = self.phase == Phase::Recovery && !config.recovery.sack;
        if !(partial && self.partial) {
            self.rto_due = now + self.rto.timeout(&config.rto);
        }
        self.partial = partial;
        self.schedule_probe(now, config);
    }

    /// The first of this side's timers.
    #[inline]
    pub fn due(&self) -> Time {
        self.rto_due.min(self.rack.due).min(self.rack.probe_due)
    }

    /// Acts on timers that are due; true if the retransmission timer was.
    pub fn expire(&mut self, now: Time, config: &TcpConfig) -> bool {
        if self.rack.due <= now && self.find_losses(now, config) && self.phase == Phase::Open {
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
        self.rto.back_off();
        if self.phase != Phase::Loss {
            let flight = self.flight();
            self.control.on_loss(&mut self.window, flight, mss);
        }
        self.control.on_timeout();
        self.board.lose_all();
        (self.window.cwnd, self.window.credit) = (mss, 0);
        self.phase = Phase::Loss;
        (self.recover, self.reduced_until) = (Some(self.next), self.next);
        (self.dupacks, self.limited) = (0, 0);
        (self.must_resend, self.must_probe) = (true, false);
        self.rto_due = now + self.rto.timeout(&config.rto);
        (self.rack.due, self.rack.probe_due, self.rack.probe) = (Time::MAX, Time::MAX, None);
    }
}
