//! A clock that says when the link will be idle, and completions that correct it.
//!
//! What was handed down leaves at the rate of the link. A card reports it late, many packets at a
//! time, so that between two reports only the clock knows how long the queue is. A report tells:
//! * more has left than the clock believes: the clock is slow. What the clock believed to be queued
//!   is gone, and its rate grows, by more each time in a row;
//! * less has left than the clock believes, by more than the time since the last question explains:
//!   the clock is fast, and its queue is what lies there;
//! * and as long as something of what lay there at each question still lies there at the next, the
//!   link was never idle: what left meanwhile is its rate.
//!
//! Where several send by the link, each at its part of a rate that it was told, packets leave
//! faster than that one by one: then reports only tell that the clock is fast.
//!
//! A rate that we were told is doubted only after several reports in a row, and believed again when
//! a measurement agrees with it. Without one, what may lie on the account is bounded as well, by
//! what a report takes off it (as in Linux' dynamic queue limits): a shaper's queue would else fill
//! before the first report.

use homa_proto::{Duration, FULL_FRAME, Rate, Time};

mod probe;

use super::account::{Account, AccountReport};
use probe::Probing;

const FRAME: f64 = FULL_FRAME as f64;
/// Rate to begin with where none is known.
const GUESS: Rate = Rate::gbps(1);
/// Bounds of what is believed.
const RATES: [f64; 2] = [1e-4, 200.0];
/// A lateness counts in full when it happens and loses this fraction each time there is room.
const LATE_FORGOTTEN: u64 = 32;
/// Lateness beyond this, and beyond a packet's time, is a pause of the thread, and not to be made
/// up for by a longer queue.
const LATE_MAX: Duration = Duration::micros(20);
/// What a link at the rate we were told may keep on the account before the first report.
const SILENCE: Duration = Duration::micros(250);
/// First and largest step of the rate, as a share of it.
const STEPS: [f64; 2] = [1.0 / 16.0, 1.0];
/// Reports in a row that contradict the rate we were told before it is doubted; doubled, up to the
/// second, each time the doubt was wrong.
const DOUBTS: [u32; 2] = [4, 1024];
/// A measurement this close to the rate we were told confirms it.
const CLOSE: f64 = 1.0 / 8.0;
/// A measurement takes so many reports, and so many times the uncertainty of one.
const REPORTS: u32 = 8;
const CERTAIN: u64 = 16;
/// Bounds of the time between questions while blocked by the account.
const RETRY_MIN: Duration = Duration::micros(2);
const RETRY_MAX: Duration = Duration::millis(1);
/// Between reports, before any came.
const FIRST_GAP: Duration = Duration::micros(100);

/// See the module's documentation.
#[derive(Debug)]
pub struct PacingClock {
    account: Account,
    /// The kernel tells what is on the account.
    counted: bool,
    known_rate: Option<f64>,
    /// Bytes per nanosecond, for all that send.
    rate: f64,
    /// Engines that share the link equally now, this one included.
    senders: f64,
    /// Others stopped sending: the next report says what is left of a queue that was reckoned at
    /// our part of the rate.
    left_alone: bool,
    /// The rate was measured, or found too low.
    learned: bool,
    /// Bytes below us by the clock, at a time.
    backlog: f64,
    at: Time,
    /// How late we come when there is room again: the worst, slowly forgotten.
    late: Duration,
    /// When to look at the account although the clock holds packets back.
    glance: Option<Time>,
    step: f64,
    slow: u32,
    doubts: u32,
    /// The clock was found fast since the measurement began.
    fast: bool,
    /// Bytes that reports leave on the account after they left.
    hidden: f64,
    /// The account was what held packets back since the last report.
    full: bool,
    window: Option<RateWindow>,
    probing: Probing,
    /// Lead that comes back when it is corrected: how late reports come, not a queue.
    phase: f64,
    /// The lead that was corrected last, zero if that was before the last window, and what had been
    /// handed down: reports of it say nothing of the correction.
    corrected: f64,
    settled: f64,
    /// The last report, and the usual time between two.
    reported: Time,
    gap: Duration,
}

/// Reports during which the link was never idle.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    since: Time,
    done: f64,
    reports: u32,
    uncertain: Duration,
    /// Most bytes of a report.
    most: f64,
    /// Bytes by which the clock was ahead of the reports, at least.
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

    /// The account means something: of so many bytes, all that may be on it, so much is charged.
    pub fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        self.account.begin(now, sent, charged);
        self.counted = true;
        (self.window, self.glance, self.full, self.reported) = (None, None, false, now);
        if self.known_rate.is_none() {
            (self.backlog, self.at) = (self.account.outstanding(), now);
        }
    }

    /// The account means nothing: what is handed down is not charged for, or nobody tells.
    pub fn disregard(&mut self) {
        self.counted = false;
        (self.window, self.glance, self.full) = (None, None, false);
    }

    /// So much is charged right after a batch.
    /// Returns after how many more batches to ask again.
    pub fn charged(&mut self, now: Time, bytes: u32, charged: u32) -> u32 {
        if self.counted {
            self.account.measure(now, charged);
        } else {
            self.begin(now, bytes, charged);
        }
        self.account.enough()
    }

    /// Takes another rate.
    pub fn set_rate(&mut self, known_rate: Option<Rate>) {
        self.known_rate = known_rate.map(per_nano);
        match self.known_rate {
            Some(rate) => {
                self.set(rate);
                (self.slow, self.doubts) = (0, DOUBTS[0]);
            }
            // One that is learned is our part, however many send.
            None => self.senders = 1.0,
        }
    }

    /// The rate it goes by, where it is not the one it was told.
    pub fn estimate(&self) -> Option<Rate> {
        let rate = self.probing.base.unwrap_or(self.rate);
        let doubted = self.known_rate != Some(rate);
        (doubted && self.learned).then_some(Rate((rate * 8e9) as u64))
    }

    /// From now on this many engines share the link equally, this one included; false if they did
    /// before. Measurements that assume a lone sender start over.
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

    /// When what was handed down and a packet more will have left.
    pub fn idle_after_next(&self) -> Time {
        self.at + self.time_for(self.backlog + FRAME)
    }

    /// When what was handed down will have left.
    pub fn idle_at(&self) -> Time {
        self.at + self.time_for(self.backlog)
    }

    /// Bytes that leave in a time.
    pub fn bytes_in(&self, time: Duration) -> f64 {
        self.rate * time.0 as f64 / self.senders
    }

    /// Single packets last longer than our lateness.
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

    /// Bytes that may be queued: a packet, what leaves while we are late, and on links where this
    /// is more than a packet, another.
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

    /// Notes how late we came to a link that had room again.
    pub fn came(&mut self, late: Duration) {
        // More makes no difference, and need not be remembered for longer.
        let late = late.min(self.time_for(FRAME).max(LATE_MAX));
        self.late = late.max(Duration(self.late.0 - self.late.0 / LATE_FORGOTTEN));
    }

    /// Wire bytes that may be pulled, and when there may be room for a packet.
    pub fn budget(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) -> (u32, Time) {
        self.pass(now);
        let glance = self.glance.take_if(|at| *at <= now).is_some();
        let full = self.account_limit() - self.account.outstanding() < 2.0 * FRAME;
        // On a slow link a question costs nothing beside a packet.
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
        // A little of the last packet should still be there.
        let glance = now + self.time_for(self.backlog - FRAME / 8.0);
        let useful = self.counted && self.account.outstanding() > 0.0 && self.is_slow();
        if useful && now < glance && glance < idle {
            self.glance = Some(glance);
            return glance;
        }
        idle.max(now + Duration(1))
    }

    /// Notes what was handed down.
    pub fn sent(&mut self, now: Time, bytes: u32) {
        self.pass(now);
        self.backlog += f64::from(bytes);
        self.account.sent(now, bytes);
    }

    /// Takes in what is charged now.
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
        // How much more left than the clock believes; it may believe what leaves between questions.
        let ahead = self.backlog - outstanding;
        let doubt = self.account.doubt();
        // Each of those that send may have two packets before ours.
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
            // A slower clock is only right if ours was ahead of the reports: else we sent too
            // little.
            _ if least > self.rate || fast || queue > FRAME / 6.0 => self.set(rate),
            _ => self.window = None,
        }
    }

    /// Corrects the clock by how much it was ahead of all reports of a window. Returns by how much.
    fn correct(&mut self, window: &RateWindow) -> f64 {
        let (lead, explained) = (window.lead, self.bytes_in(window.uncertain));
        // A queue would be gone after the last correction. An idle link cannot have sent it twice.
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
