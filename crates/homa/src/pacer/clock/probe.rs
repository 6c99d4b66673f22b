//! Probing: whether a link could send more than we let it.
//!
//! A report says what was left at the last interrupt. If that is less than leaves until we look,
//! the link idles unseen, and where interrupts and our looks keep their distance, measuring alone
//! confirms for ever that the link is as fast as we send. So one round of reports in nine lets a
//! quarter more out, as in BBR (Cardwell et al., ACM Queue 2016). Bytes that left, by the time they
//! took at most, are a lower bound of the rate: it replaces the rate at once, and the next probe,
//! at once as well, goes for twice as much, up to a doubling per round. A probe that finds nothing
//! costs a queue of a quarter of a round, which is counted and so drained before more is sent.
//!
//! A rate that we were told is probed, too, since nothing else shows that it is too low, and stands
//! unless more than it has left. Links on which a round takes longer than [`ROUND_MAX`] are not:
//! there packets last longer than we are late, and an idle link is seen. Rounds in which the
//! application had little to send find nothing, and a probe that finds nothing lowers no rate.

use homa_proto::{Duration, Time};

use super::{AccountReport, FRAME, LATE_MAX, PacingClock};

/// First and largest excess of a probe over the rate (BBR: 1.25, and a doubling at the start).
const EXCESS: [f64; 2] = [0.25, 1.0];
/// Rounds between two probes.
const WAIT: u32 = 8;
/// A round takes so many reports, full packets, and times the uncertainty of one report: the excess
/// is several times what is uncertain.
const REPORTS: u32 = 2;
const FRAMES: f64 = 8.0;
const CERTAIN: u64 = 32;
/// See the module's documentation.
const ROUND_MAX: Duration = Duration::micros(500);
/// A link that is never idle and sends less than this share of the rate is not probed for more.
const BUSY: f64 = 0.75;

/// See the module's documentation.
#[derive(Debug)]
pub struct Probing {
    round: Option<ProbeRound>,
    /// The rate before the probe that goes on.
    pub base: Option<f64>,
    began: Time,
    /// By how much the next probe exceeds the rate, as a share.
    excess: f64,
    /// Rounds until the next probe.
    wait: u32,
}

/// Reports that together tell how fast the link is at least.
#[derive(Clone, Copy, Debug)]
struct ProbeRound {
    since: Time,
    done: f64,
    reports: u32,
    uncertain: Duration,
}

impl Probing {
    /// A rate that nobody told is probed first of all.
    pub fn new(known_rate: bool) -> Self {
        let wait = if known_rate { WAIT } else { 0 };
        Self { round: None, base: None, began: Time::ZERO, excess: EXCESS[0], wait }
    }

    /// The next report begins a round.
    pub(super) fn forget_round(&mut self) {
        self.round = None;
    }
}

impl PacingClock {
    /// Takes in a report.
    pub(super) fn probe(&mut self, now: Time, answer: &AccountReport) {
        let done = self.account.done;
        let next = ProbeRound { since: now, done, reports: 0, uncertain: answer.since };
        let Some(round) = &mut self.probing.round else {
            self.probing.round = Some(next);
            return;
        };
        round.reports += 1;
        let round = *round;
        let (took, left) = (now.since(round.since), done - round.done);
        // The first packet may have been on its way for long.
        let certain = left - FRAME - self.account.doubt() / 4.0;
        let least = certain / (took + round.uncertain).0 as f64;
        let over = round.reports >= REPORTS
            && took.0 >= CERTAIN * round.uncertain.0
            && left >= FRAMES * FRAME;
        let rate = left / took.0 as f64;
        match self.probing.base {
            Some(base) if !self.fast && least > base * (1.0 + self.probing.excess / 4.0) => {
                self.learned = true;
                self.probing.excess = (2.0 * self.probing.excess).min(EXCESS[1]);
                self.start_probe(least);
            }
            _ if !over => return,
            Some(base) => self.end_probe(if least > base { rate } else { base }),
            None if self.probing.wait > 0 => self.probing.wait -= 1,
            None => {
                let quick = rate * ROUND_MAX.0 as f64 >= FRAMES * FRAME;
                let slower = answer.busy && rate < BUSY * self.rate;
                // Packets that are reported one by one and last longer than we are late.
                let seen = left < 1.5 * FRAME * f64::from(round.reports)
                    && self.bytes_in(self.late) < FRAME / 4.0
                    && self.time_for(FRAME) > Duration(LATE_MAX.0 / 2);
                if quick && !slower && !seen && !self.fast {
                    self.start_probe(self.rate);
                }
            }
        }
        self.probing.round = Some(next);
    }

    fn start_probe(&mut self, base: f64) {
        let excess = self.probing.excess;
        self.set(base * (1.0 + excess));
        (self.probing.base, self.probing.began) = (Some(base), self.at);
        self.fast = false;
        self.hidden += (self.hidden * excess).max(FRAME);
    }

    fn end_probe(&mut self, rate: f64) {
        // What the link did not take after all is still there, as far as it is on the account.
        let extra = (self.rate - rate) * self.at.since(self.probing.began).0 as f64;
        let most = self.account.outstanding().max(self.backlog);
        self.backlog = (self.backlog + extra).min(most);
        self.set(rate);
        (self.probing.excess, self.probing.wait) = (EXCESS[0], WAIT);
    }
}
