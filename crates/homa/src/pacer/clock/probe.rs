//! Probing: whether a link could send more than the clock allows.
//!
//! A report shows the bytes that were left at the last interrupt. If those are fewer than leave
//! until the next query, the link is idle without our noticing. If interrupts and queries keep
//! their distance, measuring alone would confirm forever that the link is as fast as we send.
//! Therefore one round of reports in nine sends a quarter more, as in BBR (Cardwell et al., ACM
//! Queue 2016). The bytes that left, divided by the longest time that they can have taken, are a
//! lower bound of the rate. A larger bound replaces the rate at once; the next probe follows
//! immediately with twice the excess, up to a doubling per round. A probe that finds nothing costs
//! a queue of a quarter of a round, which is counted, and thus drained before more is sent.
//!
//! A known rate is probed, too, because nothing else shows that it is too low; it stays unless more
//! than it has left. Links on which a round takes longer than [`ROUND_MAX`] are not probed: packets
//! then take longer than our lateness, so an idle link is noticed. Rounds in which the application
//! had little to send find nothing, and a probe that finds nothing lowers no rate.

use homa_proto::{Duration, Time};

use super::{AccountReport, FRAME, LATE_MAX, PacingClock};

/// First and largest excess of a probe over the rate (BBR: 1.25, and a doubling at the start).
const EXCESS: [f64; 2] = [0.25, 1.0];
/// Rounds between two probes.
const WAIT: u32 = 8;
/// A round takes at least this many reports, full packets, and times the uncertainty of one report,
/// so that the excess is several times the uncertainty.
const REPORTS: u32 = 2;
const FRAMES: f64 = 8.0;
const CERTAIN: u64 = 32;
/// See the module's documentation.
const ROUND_MAX: Duration = Duration::micros(500);
/// A link that is never idle and sends less than this share of the rate is not probed.
const BUSY: f64 = 0.75;

/// See the module's documentation.
#[derive(Debug)]
pub struct Probing {
    round: Option<ProbeRound>,
    /// The rate before the current probe.
    pub base: Option<f64>,
    began: Time,
    /// Relative excess of the next probe over the rate.
    excess: f64,
    /// Rounds until the next probe.
    wait: u32,
}

/// Reports that together give a lower bound of the rate.
#[derive(Clone, Copy, Debug)]
struct ProbeRound {
    since: Time,
    done: f64,
    reports: u32,
    uncertain: Duration,
}

impl Probing {
    /// An unknown rate is probed at once.
    pub fn new(known_rate: bool) -> Self {
        let wait = if known_rate { WAIT } else { 0 };
        Self { round: None, base: None, began: Time::ZERO, excess: EXCESS[0], wait }
    }

    /// Begins a new round with the next report.
    pub(super) fn forget_round(&mut self) {
        self.round = None;
    }
}

impl PacingClock {
    /// Processes a report.
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
        // The first packet may have begun to leave much earlier.
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
                // Packets are reported one by one, and take longer than our lateness.
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
        // Bytes that the link did not take after all are still queued, as far as they are on the
        // account.
        let extra = (self.rate - rate) * self.at.since(self.probing.began).0 as f64;
        let most = self.account.outstanding().max(self.backlog);
        self.backlog = (self.backlog + extra).min(most);
        self.set(rate);
        (self.probing.excess, self.probing.wait) = (EXCESS[0], WAIT);
    }
}
