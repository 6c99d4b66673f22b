//! The choice of a path: a sender puts an entropy value (EV) into every packet, and each switch on
//! the way up hashes it (UET 1.0; rules as in `uet-htsim` 40ccb05, `uec_mp.cpp`; REPS, EuroSys
//! 2026).
//!
//! | choice | rule |
//! |---|---|
//! | oblivious | all EVs once per round, in an order that a random mask gives |
//! | bitmap | the same, but an EV with a penalty is passed over, which lowers the penalty |
//! | REPS | the EV of an acknowledgement without a mark, oldest first; else a random one |
//! | mixed | an EV as under REPS, else by the bitmap |
//!
//! Under REPS a timeout freezes the buffer: for a while its EVs are used in turn, fresh or not.
//! Invariant: EVs are below 2^16. Left out: EVs that are kept across flows.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_workload::rng::Rng;

/// How paths are chosen; see the module's description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UetPaths {
    /// In turn.
    Oblivious,
    /// In turn, without those that have a penalty.
    Bitmap,
    /// Those of unmarked acknowledgements (REPS).
    Reps,
    /// Those of unmarked acknowledgements, else by the bitmap.
    #[default]
    Mixed,
}

/// How a packet with an EV fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathReport {
    /// It arrived without a mark, or was trimmed on its last hop, which no EV avoids.
    Good,
    /// It was marked.
    Marked,
    /// It was trimmed.
    Trimmed,
    /// Nothing was heard of it.
    Lost,
}

impl PathReport {
    /// The penalty of its EV.
    const fn penalty(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Marked => 1,
            Self::Trimmed => 4,
            Self::Lost => MOST_PENALTY,
        }
    }
}

const MOST_PENALTY: u8 = 15;
/// EVs that REPS remembers.
const BUFFER: usize = 8;
/// Time for which REPS is frozen, at least; and random EVs after it.
const FROZEN_NS: u64 = 10_000_000;
const EXPLORED: u32 = 16;

/// The EVs of a flow.
#[derive(Clone, Debug)]
pub(super) struct Entropy {
    paths: UetPaths,
    /// One less than the number of EVs, which is a power of two.
    mask: u16,
    /// The bits above those that number the EVs.
    upper: u16,
    /// Order of the present round.
    order: u16,
    next: u16,
    /// By EV; empty until the first penalty.
    penalties: Vec<u8>,
    /// EVs that have a penalty.
    punished: u16,
    /// EVs of unmarked acknowledgements, oldest first (mixed).
    good: VecDeque<u16>,
    reps: Reps,
}

/// REPS's buffer.
#[derive(Clone, Debug, Default)]
struct Reps {
    /// EVs, oldest first, and whether each has not been used since it was acknowledged.
    buffer: VecDeque<(u16, bool)>,
    /// The buffer is frozen at least until then.
    frozen: Option<Time>,
    /// How many random EVs are still to be used.
    explore: u32,
}

impl Entropy {
    /// For a flow with `count` EVs, a power of two of at most 2^15.
    pub fn new(paths: UetPaths, count: u16, rng: &mut Rng) -> Self {
        let mask = count.next_power_of_two().max(1) - 1;
        let mut entropy = Self {
            paths,
            mask,
            upper: rng.next_u64() as u16 & !mask,
            order: 0,
            next: 0,
            penalties: Vec::new(),
            punished: 0,
            good: VecDeque::new(),
            reps: Reps::default(),
        };
        entropy.order = entropy.random(rng);
        entropy
    }

    fn random(&self, rng: &mut Rng) -> u16 {
        rng.uniform_below(u32::from(self.mask) + 1) as u16
    }

    /// The EV of the next packet.
    pub fn next(&mut self, now: Time, rng: &mut Rng) -> u16 {
        let low = match self.paths {
            UetPaths::Oblivious => self.advance(rng),
            UetPaths::Bitmap => self.by_bitmap(rng),
            UetPaths::Reps => match self.reps.next(now) {
                Some(ev) => ev,
                None => self.random(rng),
            },
            UetPaths::Mixed => match self.good.pop_front() {
                Some(ev) => ev,
                None => self.by_bitmap(rng),
            },
        };
        self.upper | low
    }

    /// The next EV of the round.
    fn advance(&mut self, rng: &mut Rng) -> u16 {
        let ev = (self.next ^ self.order) & self.mask;
        if self.next == self.mask {
            (self.next, self.order) = (0, self.random(rng));
        } else {
            self.next += 1;
        }
        ev
    }

    /// The next EV of the round without a penalty. Only the first that is passed over has its
    /// penalty lowered; if all have one, it is used nevertheless.
    fn by_bitmap(&mut self, rng: &mut Rng) -> u16 {
        let mut ev = self.advance(rng);
        if self.penalty(ev) == 0 {
            return ev;
        }
        let all = self.punished > self.mask;
        let penalty = &mut self.penalties[usize::from(ev)];
        *penalty -= 1;
        self.punished -= u16::from(*penalty == 0);
        // Without this, each packet would cost a look at every EV.
        if all {
            return ev;
        }
        for _ in 0..=self.mask {
            ev = self.advance(rng);
            if self.penalty(ev) == 0 {
                break;
            }
        }
        ev
    }

    fn penalty(&self, ev: u16) -> u8 {
        self.penalties.get(usize::from(ev)).copied().unwrap_or(0)
    }

    /// A packet with this EV was heard of, or timed out.
    pub fn report(&mut self, now: Time, ev: u16, report: PathReport) {
        let low = ev & self.mask;
        match self.paths {
            UetPaths::Oblivious => {}
            UetPaths::Bitmap => self.punish(low, report),
            UetPaths::Reps => self.reps.report(now, low, report),
            UetPaths::Mixed => {
                self.punish(low, report);
                if report == PathReport::Good {
                    self.good.push_back(low);
                }
            }
        }
    }

    fn punish(&mut self, ev: u16, report: PathReport) {
        if report.penalty() == 0 {
            return;
        }
        if self.penalties.is_empty() {
            self.penalties = vec![0; usize::from(self.mask) + 1];
        }
        let penalty = &mut self.penalties[usize::from(ev)];
        self.punished += u16::from(*penalty == 0);
        *penalty = (*penalty + report.penalty()).min(MOST_PENALTY);
    }
}

impl Reps {
    fn next(&mut self, now: Time) -> Option<u16> {
        self.thaw(now);
        if self.explore > 0 {
            self.explore -= 1;
            return None;
        }
        if self.frozen.is_some() {
            let (ev, _) = self.buffer.pop_front()?;
            self.buffer.push_back((ev, false));
            return Some(ev);
        }
        let (ev, fresh) = self.buffer.iter_mut().find(|(_, fresh)| *fresh)?;
        *fresh = false;
        Some(*ev)
    }

    fn report(&mut self, now: Time, ev: u16, report: PathReport) {
        if report == PathReport::Lost && self.frozen.is_none() && self.explore == 0 {
            self.frozen = Some(Time(now.0.saturating_add(FROZEN_NS)));
        }
        self.thaw(now);
        if report == PathReport::Good {
            if self.buffer.len() == BUFFER {
                self.buffer.pop_front();
            }
            self.buffer.push_back((ev, true));
        }
    }

    fn thaw(&mut self, now: Time) {
        if self.frozen.is_some_and(|until| now > until) {
            self.frozen = None;
            self.buffer.clear();
            self.explore = EXPLORED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Time = Time(0);

    fn flow(paths: UetPaths, count: u16) -> (Entropy, Rng) {
        let mut rng = Rng::stream(3, "entropy");
        (Entropy::new(paths, count, &mut rng), rng)
    }

    /// The low bits of the next EVs.
    fn take((flow, rng): &mut (Entropy, Rng), n: usize) -> Vec<u16> {
        (0..n).map(|_| flow.next(AT, rng) & flow.mask).collect()
    }

    #[test]
    fn each_round_uses_each_ev_once_and_rounds_differ() {
        let mut flow = flow(UetPaths::Oblivious, 16);
        let rounds: Vec<Vec<u16>> = (0..30).map(|_| take(&mut flow, 16)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16).collect::<Vec<_>>());
        }
        assert!(rounds.iter().any(|round| *round != rounds[0]));
        let upper: Vec<u16> =
            (0..40).map(|_| flow.0.next(AT, &mut flow.1) & !flow.0.mask).collect();
        assert!(upper.iter().all(|bits| *bits == flow.0.upper));
    }

    #[test]
    fn penalties_make_an_ev_miss_rounds() {
        for (report, missed) in
            [(PathReport::Marked, 1), (PathReport::Trimmed, 4), (PathReport::Lost, 15)]
        {
            let mut flow = flow(UetPaths::Bitmap, 8);
            flow.0.report(AT, 5, report);
            let until = (1..).find(|_| flow.0.penalties[5] == 0 || take(&mut flow, 1) == [5]);
            assert!(until.is_some() && flow.0.penalties[5] == 0);
            // Every time it is passed over, the penalty falls by one.
            flow.0.report(AT, 5, report);
            assert_eq!(flow.0.penalties[5], missed);
            let used = take(&mut flow, 7 * usize::from(missed));
            assert!(!used.contains(&5), "{report:?}");
        }
        let mut flow = flow(UetPaths::Bitmap, 8);
        (0..20).for_each(|_| flow.0.report(AT, 5, PathReport::Trimmed));
        assert_eq!(flow.0.penalties[5], MOST_PENALTY);
        flow.0.report(AT, 5, PathReport::Good);
        assert_eq!(flow.0.penalties[5], MOST_PENALTY);
    }

    #[test]
    fn with_penalties_everywhere_a_draw_lowers_one() {
        let mut flow = flow(UetPaths::Bitmap, 4);
        (0..4).for_each(|ev| flow.0.report(AT, ev, PathReport::Marked));
        let mut used = take(&mut flow, 1);
        assert_eq!(flow.0.penalties.iter().map(|&penalty| u32::from(penalty)).sum::<u32>(), 3);
        // Each draw takes one step of the round, so that four draws use each EV.
        (0..2).for_each(|_| flow.0.report(AT, used[0], PathReport::Marked));
        assert_eq!(flow.0.punished, 4);
        for _ in 0..3 {
            let ev = take(&mut flow, 1)[0];
            flow.0.report(AT, ev, PathReport::Marked);
            used.push(ev);
        }
        used.sort_unstable();
        assert_eq!(used, [0, 1, 2, 3]);
        assert_eq!(flow.0.punished, 4);
    }

    #[test]
    fn mixed_uses_acknowledged_evs_first() {
        let mut flow = flow(UetPaths::Mixed, 64);
        for ev in [40, 41] {
            flow.0.report(AT, ev, PathReport::Good);
        }
        flow.0.report(AT, 42, PathReport::Marked);
        assert_eq!(take(&mut flow, 2), [40, 41]);
        let mut rest = take(&mut flow, 63);
        rest.sort_unstable();
        assert!(!rest.contains(&42) && rest.len() == 63);
    }

    #[test]
    fn reps_uses_an_ev_once_unless_frozen() {
        let mut flow = flow(UetPaths::Reps, 32_768);
        for ev in 100..110 {
            flow.0.report(AT, ev, PathReport::Good);
        }
        // The buffer holds eight.
        assert_eq!(take(&mut flow, 8), (102..110).collect::<Vec<_>>());
        assert!(take(&mut flow, 20).iter().any(|ev| !(102..110).contains(ev)));
        flow.0.report(AT, 0, PathReport::Lost);
        assert_eq!(take(&mut flow, 10)[..3], [102, 103, 104]);
        let thawed = Time(FROZEN_NS + 1);
        let later: Vec<u16> =
            (0..16).map(|_| flow.0.next(thawed, &mut flow.1) & flow.0.mask).collect();
        assert!(later.iter().any(|ev| !(102..110).contains(ev)));
        assert!(flow.0.reps.frozen.is_none() && flow.0.reps.explore == 0);
    }

    #[test]
    fn one_ev_is_always_the_same() {
        for paths in [UetPaths::Oblivious, UetPaths::Bitmap, UetPaths::Reps, UetPaths::Mixed] {
            let (mut flow, mut rng) = flow(paths, 1);
            let first = flow.next(AT, &mut rng);
            flow.report(AT, first, PathReport::Marked);
            assert!((0..20).all(|_| flow.next(AT, &mut rng) == first), "{paths:?}");
        }
    }
}
