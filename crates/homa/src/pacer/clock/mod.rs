//! A clock that computes when the link will be idle, and completions that correct it.
//!
//! Packets leave at the rate of the link. A card reports them late and many at a time, so between
//! two reports only the clock shows how long the queue is. A report shows one of these:
//! * more has left than the clock expected, so the clock is slow. The queue that it expected is
//!   gone, and its rate grows, by more each time in a row;
//! * less has left than the clock expected, by more than the time since the last query explains, so
//!   the clock is fast, and its queue is set to the bytes still queued;
//! * some bytes that were queued at each query are still queued at the next. The link was never
//!   idle, and the bytes that left in this time are its rate.
//!
//! If several engines send by the link, each at its part of a known rate, single packets leave
//! faster than that part. Reports then only show that the clock is fast.
//!
//! A known rate is doubted only after several reports in a row, and trusted again when a
//! measurement agrees with it. Without a known rate, the bytes on the account are limited, too, by
//! the amount that one report removes (as in Linux's dynamic queue limits). Otherwise a shaper's
//! queue would fill before the first report.

use homa_proto::{Duration, FULL_FRAME, Rate, Time};

mod probe;

use super::account::{Account, AccountReport};
use probe::Probing;

const FRAME: f64 = FULL_FRAME as f64;
/// Initial rate if none is known.
const GUESS: Rate = Rate::gbps(1);
/// Bounds of the rate, bytes per nanosecond.
const RATES: [f64; 2] = [1e-4, 200.0];
/// A lateness counts in full at first, and loses this fraction each time there is budget.
const LATE_FORGOTTEN: u64 = 32;
/// Longer lateness, if it is also longer than a packet's time, is a pause of the thread. A longer
/// queue should not compensate for it.
const LATE_MAX: Duration = Duration::micros(20);
/// The bytes that a link of known rate may keep on the account before the first report, as time.
const SILENCE: Duration = Duration::micros(250);
/// First and largest step of the rate, relative to it.
const STEPS: [f64; 2] = [1.0 / 16.0, 1.0];
/// Consecutive reports that must contradict a known rate before it is doubted. The number doubles,
/// up to the second value, each time that the doubt was wrong.
const DOUBTS: [u32; 2] = [4, 1024];
/// A measurement this close to the known rate confirms it.
const CLOSE: f64 = 1.0 / 8.0;
/// A measurement takes at least this many reports, and this many times the uncertainty of one.
const REPORTS: u32 = 8;
const CERTAIN: u64 = 16;
/// Bounds of the time between queries while the account is the limit.
const RETRY_MIN: Duration = Duration::micros(2);
const RETRY_MAX: Duration = Duration::millis(1);
/// Expected time between reports before the first one.
const FIRST_GAP: Duration = Duration::micros(100);

/// See the module's documentation.
#[derive(Debug)]
pub struct PacingClock {
    account: Account,
    /// The account is meaningful: the kernel charges what we pass down.
    counted: bool,
    known_rate: Option<f64>,
    /// Bytes per nanosecond, of all engines together.
    rate: f64,
    /// Engines that share the link equally now, including this one.
    senders: f64,
    /// The others stopped sending, so the next report corrects a queue that was computed with our
    /// part of the rate.
    left_alone: bool,
    /// The rate was measured, or found too low.
    learned: bool,
    /// Bytes queued below at time `at`, by the clock.
    backlog: f64,
    at: Time,
    /// How late we come when there is budget again: the worst case, slowly forgotten.
    late: Duration,
    /// When to query the account although the clock allows no packet.
    glance: Option<Time>,
    step: f64,
    slow: u32,
    doubts: u32,
    /// The clock was found fast since the measurement began.
    fast: bool,
    /// Bytes that reports leave on the account although they have left.
    hidden: f64,
    /// Since the last report, the account was the limit.
    full: bool,
    window: Option<RateWindow>,
    probing: Probing,
    /// A lead that returns after it is corrected: the lateness of reports, not a queue.
    phase: f64,
    /// The last corrected lead (zero if before the last window), and the total passed down at that
    /// time: reports about earlier bytes say nothing about the correction.
    corrected: f64,
    settled: f64,
    /// Time of the last report, and the usual time between reports.
    reported: Time,
    gap: Duration,
}

/// Consecutive reports during which the link was never idle.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    since: Time,
    done: f64,
    reports: u32,
    uncertain: Duration,
    /// Most bytes of one report.
    most: f64,
    /// Smallest lead of the clock over the reports, bytes.
    lead: f64,
}

fn per_nano(rate: Rate) -> f64 {
    rate.0.max(1) as f64 / 8e9
}

impl PacingClock {
    pub fn new(known_rate: Option<Rate>) -> Self {
        let rate = known_rate.unwrap_or(GUESS);
        Self {
            account: Account::new(),
            counted: true,
            known_rate: known_rate.map(per_nano),
            rate: per_nano(rate),
            senders: 1.0,
            left_alone: false,
            learned: false,
            backlog: 0.0,
            at: Time::ZERO,
            late: rate.time_for(FULL_FRAME.into()),
            glance: None,
            step: STEPS[0],
            slow: 0,
            doubts: DOUBTS[0],
            fast: false,
            hidden: 0.0,
            full: false,
            window: None,
            probing: Probing::new(known_rate.is_some()),
            phase: 0.0,
            corrected: 0.0,
            settled: 0.0,
            reported: Time::ZERO,
            gap: FIRST_GAP,
        }
    }

    /// The account becomes meaningful: `charged` is the charge of `sent` bytes, and nothing else is
    /// on it.
    pub fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        self.account.begin(now, sent, charged);
        self.counted = true;
        (self.window, self.glance, self.full, self.reported) = (None, None, false, now);
        if self.known_rate.is_none() {
            (self.backlog, self.at) = (self.account.outstanding(), now);
        }
    }

    /// The account is meaningless, because packets are not charged or the kernel does not report
    /// them.
    pub fn disregard(&mut self) {
        self.counted = false;
        (self.window, self.glance, self.full) = (None, None, false);
    }

    /// `charged` is the charge right after a batch. Returns the number of batches until the next
    /// query.
    pub fn charged(&mut self, now: Time, bytes: u32, charged: u32) -> u32 {
        if self.counted {
            self.account.measure(now, charged);
        } else {
            self.begin(now, bytes, charged);
        }
        self.account.enough()
    }

    /// Changes the known rate.
    pub fn set_rate(&mut self, known_rate: Option<Rate>) {
        self.known_rate = known_rate.map(per_nano);
        match self.known_rate {
            Some(rate) => {
                self.set(rate);
                (self.slow, self.doubts) = (0, DOUBTS[0]);
            }
            // A learned rate is our part, no matter how many engines send.
            None => self.senders = 1.0,
        }
    }

    /// The rate in use, if it differs from the known rate.
    pub fn estimate(&self) -> Option<Rate> {
        let rate = self.probing.base.unwrap_or(self.rate);
        let doubted = self.known_rate != Some(rate);
        (doubted && self.learned).then_some(Rate((rate * 8e9) as u64))
    }

    /// Sets the number of engines that share the link equally, including this one; false if it did
    /// not change. Measurements assume a fixed number, so they start again.
    pub fn set_senders(&mut self, now: Time, senders: u32) -> bool {
        let senders = f64::from(senders);
        if self.senders == senders {
            return false;
        }
        self.pass(now);
        self.senders = senders;
        self.rate = self.probing.base.take().unwrap_or(self.rate);
        (self.window, self.slow) = (None, 0);
        self.left_alone = senders == 1.0;
        self.probing.forget_round();
        true
    }

    /// When the queue and one more packet will have left.
    pub fn idle_after_next(&self) -> Time {
        self.at + self.time_for(self.backlog + FRAME)
    }

    /// When the queue will have left.
    pub fn idle_at(&self) -> Time {
        self.at + self.time_for(self.backlog)
    }

    /// Bytes that leave in a time.
    pub fn bytes_in(&self, time: Duration) -> f64 {
        self.rate * time.0 as f64 / self.senders
    }

    /// True if a packet takes longer than our lateness.
    fn is_slow(&self) -> bool {
        self.limit() < 2.5 * FRAME
    }

    fn time_for(&self, bytes: f64) -> Duration {
        Duration((bytes.max(0.0) * self.senders / self.rate).ceil() as u64)
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(RATES[0], RATES[1]);
        self.window = None;
        self.probing.base = None;
    }

    fn pass(&mut self, now: Time) {
        self.backlog = (self.backlog - self.bytes_in(now.since(self.at))).max(0.0);
        self.at = now;
    }

    /// Bytes that may be queued: a packet, the bytes that leave while we are late, and another
    /// packet if those are more than one.
    fn limit(&self) -> f64 {
        let late = self.bytes_in(self.late.min(self.time_for(FRAME).max(LATE_MAX)));
        FRAME + late + (late - FRAME).clamp(0.0, FRAME) / 2.0
    }

    /// Bytes that may be on the account.
    fn account_limit(&self) -> f64 {
        if !self.counted {
            return f64::INFINITY;
        }
        let silence = if self.known_rate.is_some() { self.bytes_in(SILENCE) } else { 0.0 };
        self.limit().max(2.0 * FRAME) + self.hidden.max(silence)
    }

    /// Notes how late we came after there was budget again.
    pub fn came(&mut self, late: Duration) {
        // More lateness makes no difference, and need not be remembered for longer.
        let late = late.min(self.time_for(FRAME).max(LATE_MAX));
        self.late = late.max(Duration(self.late.0 - self.late.0 / LATE_FORGOTTEN));
    }

    /// Wire bytes that may be pulled, and when there may be budget for a packet.
    pub fn budget(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) -> (u32, Time) {
        self.pass(now);
        let glance = self.glance.take_if(|at| *at <= now).is_some();
        let full = self.account_limit() - self.account.outstanding() < 2.0 * FRAME;
        // On a slow link, a query is cheap compared with a packet.
        let enough = if self.is_slow() { FULL_FRAME } else { 2 * FULL_FRAME };
        let due = self.account.unasked >= enough || glance || full;
        if due && self.counted && self.account.asked != now && self.account.given != now {
            match queued() {
                Some(charged) => self.check(now, charged),
                None => self.disregard(),
            }
        }
        let free = self.limit() - self.backlog;
        let unused = self.account_limit() - self.account.outstanding();
        (free.min(unused).max(0.0) as u32, self.wake(now, unused))
    }

    fn wake(&mut self, now: Time, unused: f64) -> Time {
        let idle = now + self.time_for(self.backlog + FRAME - self.limit());
        if unused < FRAME {
            self.full = true;
            let retry = Duration((self.gap.0 / 8).clamp(RETRY_MIN.0, RETRY_MAX.0));
            let report = self.reported + Duration(self.gap.0 / 8 * 7);
            return idle.max(report).max(now + retry);
        }
        // A little of the last packet should still be queued.
        let glance = now + self.time_for(self.backlog - FRAME / 8.0);
        let useful = self.counted && self.account.outstanding() > 0.0 && self.is_slow();
        if useful && now < glance && glance < idle {
            self.glance = Some(glance);
            return glance;
        }
        idle.max(now + Duration(1))
    }

    /// Adds bytes that were passed down.
    pub fn sent(&mut self, now: Time, bytes: u32) {
        self.pass(now);
        self.backlog += f64::from(bytes);
        self.account.sent(now, bytes);
    }

    /// Processes the current charge.
    fn check(&mut self, now: Time, charged: u32) {
        let answer = self.account.answer(now, charged);
        if answer.left == 0.0 {
            if let Some(window) = &mut self.window {
                window.uncertain = window.uncertain.max(answer.since);
            }
            return;
        }
        let outstanding = self.account.outstanding();
        if std::mem::take(&mut self.left_alone) {
            self.backlog = self.backlog.min(outstanding);
        }
        // How much more has left than the clock expected. It may expect the bytes that leave
        // between queries.
        let ahead = self.backlog - outstanding;
        let doubt = self.account.doubt();
        // Each engine that sends may have two packets before ours.
        let slack = 2.0 * FRAME * self.senders + doubt + self.bytes_in(answer.since);
        let idle = outstanding == 0.0 && ahead > FRAME / 64.0;
        let alone = self.senders == 1.0;
        if alone && (idle || ahead > FRAME / 4.0 + doubt) {
            self.was_slow(outstanding);
        } else {
            self.step = (self.step * 0.75).max(STEPS[0]);
            if ahead < -slack {
                self.backlog = outstanding - slack;
                self.slow = 0;
                self.fast = true;
            }
        }
        if self.full && !answer.busy {
            self.hidden = 2.0 * self.hidden + self.limit();
        }
        self.full = false;
        if alone {
            self.measure(now, &answer);
            self.probe(now, &answer);
        }
        let gap = now.since(self.reported).0.min(RETRY_MAX.0);
        self.gap = Duration(self.gap.0 - self.gap.0 / 4 + gap / 4);
        self.reported = now;
    }

    fn was_slow(&mut self, outstanding: f64) {
        self.slow = self.slow.saturating_add(1);
        if self.known_rate.is_some() && self.slow < self.doubts {
            return;
        }
        self.backlog = outstanding;
        self.set(self.rate * (1.0 + self.step));
        self.step = (2.0 * self.step).min(STEPS[1]);
        self.learned = true;
    }

    /// Measures the rate while the link is never idle.
    fn measure(&mut self, now: Time, answer: &AccountReport) {
        if self.probing.base.is_some() {
            return;
        }
        let done = self.account.done;
        let Some(window) = self.window.as_mut().filter(|_| answer.busy) else {
            if done < self.settled {
                return;
            }
            let uncertain = answer.since;
            self.window = Some(RateWindow {
                since: now,
                done,
                reports: 0,
                uncertain,
                most: 0.0,
                lead: f64::MAX,
            });
            self.fast = false;
            return;
        };
        window.reports += 1;
        window.uncertain = window.uncertain.max(answer.since);
        window.most = window.most.max(answer.left);
        let lead = self.account.outstanding() - self.account.doubt() - self.backlog;
        window.lead = window.lead.min(lead);
        let took = now.since(window.since);
        if window.reports < REPORTS || took.0 < CERTAIN * window.uncertain.0 {
            return;
        }
        let window = *window;
        let rate = (done - window.done) / took.0 as f64;
        let doubt = self.account.doubt() / took.0 as f64;
        let least = (done - window.done) / (took + window.uncertain).0 as f64 - doubt;
        let fast = std::mem::take(&mut self.fast);
        let queue = self.correct(&window);
        self.hidden = (window.most - FRAME / 3.0).max(0.0);
        self.learned = true;
        match self.known_rate {
            Some(known_rate) if (rate - known_rate).abs() < CLOSE * known_rate + doubt => {
                if self.rate != known_rate {
                    self.doubts = (2 * self.doubts).min(DOUBTS[1]);
                }
                self.slow = 0;
                self.set(known_rate);
            }
            // A lower rate is only right if the clock was ahead of the reports; otherwise we sent
            // too little.
            _ if least > self.rate || fast || queue > FRAME / 6.0 => self.set(rate),
            _ => self.window = None,
        }
    }

    /// Corrects the clock by its smallest lead over the reports of a window. Returns the
    /// correction.
    fn correct(&mut self, window: &RateWindow) -> f64 {
        let (lead, explained) = (window.lead, self.bytes_in(window.uncertain));
        // A queue would be gone after the last correction, because an idle link cannot send it
        // twice.
        let again = (lead - self.corrected).abs() < self.corrected / 4.0;
        if again && lead > explained / 4.0 && lead < explained + FRAME / 4.0 {
            self.phase = self.phase.max(lead.min(explained));
        } else {
            self.phase = self.phase.min(lead.max(0.0));
        }
        let queue = lead - self.phase - FRAME / 2.0;
        self.corrected = 0.0;
        if queue > 0.0 {
            self.backlog += queue;
            (self.corrected, self.settled) = (lead, self.account.handed);
        }
        queue
    }
}
