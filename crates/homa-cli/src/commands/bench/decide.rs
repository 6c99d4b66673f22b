//! The decisions of `homa bench` on the rack, without a clock, a rack or a result: which link rate
//! is tried and measured, which row is measured again, where the answer comes from, and the exit
//! code. [`next`] is a pure function of what was asked, what happened so far and the time left.
//!
//! Invariants: only the rack's checks of itself decide, never a latency. A run whose `--duration`
//! is not given ends within three minutes, and always with an answer: measured if at least one
//! valid row of each kind that was asked for (Homa, TCP) is there, otherwise simulated.

use std::time::Duration;

use crate::failure::Verdict;

/// Rate of every link if none is asked for and no trial has chosen one, bits per second.
pub const LINK: u64 = 100_000_000;

/// Link rates that are tried if none is asked for, fastest first, bits per second. A pause of 1 ms
/// costs a link of 12.5 Mbit/s one full frame, which is why there is no slower one.
pub const RATES: [u64; 4] = [LINK, LINK / 2, LINK / 4, LINK / 8];
/// Time in which RPCs arrive for each row, if none is asked for and time allows it.
pub const ARRIVALS: Duration = Duration::from_secs(8);
/// The least of it.
const SHORTEST_ARRIVALS: Duration = Duration::from_secs(3);
/// Time for everything between the start and the answer.
const BUDGET: Duration = Duration::from_secs(165);
/// Share of the time left that the first pass over the rows may take; the rest is for rows that are
/// measured again.
const FIRST_PASS: f64 = 0.7;
/// A trial is comfortable if no number takes up more than this part of its limit.
const MARGIN: f64 = 0.6;

/// The two kinds of rows that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Homa with any options.
    Homa,
    /// Kernel TCP with any options.
    Tcp,
}

/// The request: the options that take part in the decisions.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `--link`.
    pub link: Option<u64>,
    /// The kind of each row, in order.
    pub rows: Vec<Family>,
    /// `--duration`.
    pub duration: Option<Duration>,
    /// `--anyway`: rows need not be valid, so none is measured again.
    pub anyway: bool,
    /// Whether the simulator can give these rows: it has no incast and no workflows of the bench.
    pub simulable: bool,
}

/// How well the machine emulated a rack in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Within every limit, with a margin.
    Comfortable,
    /// Within every limit.
    Tight,
    /// Beyond a limit under load, for a moment.
    Disturbed,
    /// Beyond a limit without any load, several times in a row.
    Unusable,
}

impl Fit {
    /// Judges a trial by the number that is nearest to its limit, as a part of that limit.
    pub fn of_strain(strain: f64) -> Self {
        match strain {
            _ if strain <= MARGIN => Self::Comfortable,
            _ if strain <= 1.0 => Self::Tight,
            _ => Self::Disturbed,
        }
    }
}

/// All rows at one rate, with the same arrivals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateRound {
    /// Rate of every link.
    pub link: u64,
    /// Time in which RPCs arrive.
    pub arrivals: Duration,
    /// For each row, whether each of its runs was valid: none, one or two.
    pub runs: Vec<Vec<bool>>,
}

impl RateRound {
    /// Whether a row has a valid run.
    pub fn valid(&self, row: usize) -> bool {
        self.runs[row].last() == Some(&true)
    }

    /// Whether a row of this kind is valid.
    fn has_valid(&self, rows: &[Family], family: Family) -> bool {
        rows.iter().enumerate().any(|(row, kind)| *kind == family && self.valid(row))
    }

    /// Whether the round has a valid row of each kind that was asked for.
    fn comparable(&self, rows: &[Family]) -> bool {
        rows.iter().all(|family| self.has_valid(rows, *family))
    }
}

/// The trials and runs so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The machine cannot have a rack at all.
    pub refused: bool,
    /// Trials by rate.
    pub trials: Vec<(u64, Fit)>,
    /// Rounds, the last one possibly unfinished.
    pub rounds: Vec<RateRound>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try a rack with links of this rate.
    Try(u64),
    /// Begin a round.
    Begin {
        /// Rate of every link.
        link: u64,
        /// Time in which RPCs arrive.
        arrivals: Duration,
    },
    /// Measure a row of the last round, for the first or the second time.
    Measure(usize),
    /// Stop and answer.
    Answer(RowSource),
}

/// The source of the answer's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// From this round, some of its rows possibly not valid.
    Measured(usize),
    /// From the simulator, for links of this rate.
    Simulated(u64),
}

/// All the time that a command may take.
pub fn budget(asked: &Asked) -> Duration {
    match asked.duration {
        None => BUDGET,
        // A user who asks for long rows gets each of them twice if need be.
        Some(time) => BUDGET + time.saturating_sub(ARRIVALS) * 2 * asked.rows.len() as u32,
    }
}

/// About how long a row takes.
pub fn row_time(link: u64, arrivals: Duration) -> Duration {
    // Set-up and warm-up; idle round trips and stragglers take longer over slower links.
    let slow = (LINK as f64 / link as f64).max(1.0);
    arrivals + Duration::from_millis(1_500) + Duration::from_millis(1_200).mul_f64(slow)
}

/// Decides what to do next, with this much of the [`budget`] left.
pub fn next(asked: &Asked, history: &History, left: Duration) -> Next {
    if history.refused {
        return Next::Answer(simulated(asked));
    }
    match history.rounds.last() {
        Some(round) => within(asked, history, round, left),
        None => first_round(asked, &history.trials, left),
    }
}

/// Chooses the rate of the first round.
fn first_round(asked: &Asked, trials: &[(u64, Fit)], left: Duration) -> Next {
    let begin = |link| Next::Begin { link, arrivals: arrivals(asked, link, left) };
    let Some(&(link, fit)) = trials.last() else {
        return match asked.link {
            Some(link) if asked.anyway => begin(link),
            link => Next::Try(link.unwrap_or(RATES[0])),
        };
    };
    if fit == Fit::Comfortable {
        return begin(link);
    }
    if let (None, Some(link)) = (asked.link, lower(link)) {
        return Next::Try(link);
    }
    // No rate is comfortable. A moment's trial is not the last word if the rack is usable at all,
    // because each row is measured for longer, and again if it is disturbed.
    let tight = trials.iter().rev().find(|(_, fit)| *fit == Fit::Tight);
    match (tight, fit) {
        (Some(&(link, _)), _) => begin(link),
        (None, Fit::Unusable) if asked.simulable && !asked.anyway => Next::Answer(simulated(asked)),
        (None, _) => begin(link),
    }
}

/// Chooses the next row of a round, another round, or the answer.
fn within(asked: &Asked, history: &History, round: &RateRound, left: Duration) -> Next {
    let time = row_time(round.link, round.arrivals);
    let lacks = |family| !round.has_valid(&asked.rows, family);
    let spare = |row: usize| if lacks(asked.rows[row]) { 1 } else { 2 };
    for (row, runs) in round.runs.iter().enumerate() {
        let unmeasured = round.runs.iter().skip(row).filter(|runs| runs.is_empty()).count() as u32;
        match runs[..] {
            [] if left >= time || row == 0 => return Next::Measure(row),
            [] => break,
            [false] if asked.anyway => {}
            // The rows that follow come first, unless this kind has no valid row yet.
            [false] if left >= time * (unmeasured * spare(row) + 1) => return Next::Measure(row),
            [false, false] if asked.link.is_none() => {
                // A row that was disturbed twice at this rate may be fine at a lower one, and rows
                // are compared at the same rate only.
                if let Some(link) = lower(round.link) {
                    let rows = asked.rows.len() as u32;
                    let least = asked.duration.unwrap_or(SHORTEST_ARRIVALS);
                    if left >= row_time(link, least) * rows {
                        return Next::Begin { link, arrivals: arrivals(asked, link, left) };
                    }
                }
            }
            _ => {}
        }
    }
    // A kind without a valid row gets what time is left.
    let disturbed = |(row, runs): (usize, &Vec<bool>)| {
        !asked.anyway && runs[..] == [false] && lacks(asked.rows[row]) && left >= time
    };
    match round.runs.iter().enumerate().position(disturbed) {
        Some(row) => Next::Measure(row),
        None => Next::Answer(answer(asked, &history.rounds)),
    }
}

/// Takes the last round that has a valid row of each kind.
fn answer(asked: &Asked, rounds: &[RateRound]) -> RowSource {
    match rounds.iter().rposition(|round| round.comparable(&asked.rows)) {
        Some(round) => RowSource::Measured(round),
        // With --anyway, or without a simulation, rows that are not valid are better than none.
        None if asked.anyway || !asked.simulable => RowSource::Measured(rounds.len() - 1),
        None => simulated(asked),
    }
}

/// The simulator needs no real time, so that it can have the rate that was asked for.
fn simulated(asked: &Asked) -> RowSource {
    RowSource::Simulated(asked.link.unwrap_or(RATES[0]))
}

/// The fastest rate of [`RATES`] below `link`.
fn lower(link: u64) -> Option<u64> {
    RATES.into_iter().find(|rate| *rate < link)
}

/// Time in which RPCs arrive for each row of a round that begins with this much time left.
fn arrivals(asked: &Asked, link: u64, left: Duration) -> Duration {
    if let Some(duration) = asked.duration {
        return duration;
    }
    let share = left.mul_f64(FIRST_PASS) / asked.rows.len().max(1) as u32;
    let beside = row_time(link, Duration::ZERO);
    share.saturating_sub(beside).clamp(SHORTEST_ARRIVALS, ARRIVALS)
}

/// About how long it takes from a decision to the answer, if nothing disturbs the machine.
pub fn expected(asked: &Asked, history: &History, trial: Duration, left: Duration) -> Duration {
    let row = |round: &RateRound| row_time(round.link, round.arrivals);
    match history.rounds.last() {
        Some(round) => row(round) * round.runs.iter().filter(|runs| runs.is_empty()).count() as u32,
        None => {
            let link = history.trials.last().map_or(asked.link.unwrap_or(LINK), |trial| trial.0);
            let time = row_time(link, arrivals(asked, link, left));
            trial + time * asked.rows.len() as u32
        }
    }
}

/// The exit code. `broken`: Homa broke a promise (lost an RPC or executed one twice).
pub fn verdict(strict: bool, broken: bool, all_valid: bool, simulated: bool) -> Verdict {
    match broken || strict && (!all_valid || simulated) {
        true => Verdict::CheckFailed,
        false => Verdict::Passed,
    }
}

#[cfg(test)]
mod tests {
    use super::Family::{Homa, Tcp};
    use super::Fit::{Comfortable, Disturbed, Tight, Unusable};
    use super::*;

    const M: u64 = 1_000_000;

    fn asked() -> Asked {
        let rows = vec![Homa, Homa, Tcp, Tcp, Tcp];
        Asked { link: None, rows, duration: None, anyway: false, simulable: true }
    }

    fn seconds(time: u64) -> Duration {
        Duration::from_secs(time)
    }

    /// Plays a machine: `fit` judges trials, `valid` each run by rate, row and number.
    fn play(
        asked: &Asked,
        fit: impl Fn(u64) -> Fit,
        valid: impl Fn(u64, usize, usize) -> bool,
    ) -> (RowSource, History, Duration) {
        let (mut history, mut spent) = (History::default(), Duration::ZERO);
        for _ in 0..100 {
            match next(asked, &history, budget(asked).saturating_sub(spent)) {
                Next::Try(link) => {
                    history.trials.push((link, fit(link)));
                    spent += seconds(6 + 2 * LINK / link);
                }
                Next::Begin { link, arrivals } => {
                    let runs = vec![Vec::new(); asked.rows.len()];
                    history.rounds.push(RateRound { link, arrivals, runs });
                }
                Next::Measure(row) => {
                    let round = history.rounds.last_mut().expect("begun");
                    let runs = &mut round.runs[row];
                    runs.push(valid(round.link, row, runs.len()));
                    spent += row_time(round.link, round.arrivals);
                }
                Next::Answer(answer) => return (answer, history, spent),
            }
        }
        panic!("no answer: {history:?}");
    }

    #[test]
    fn a_quiet_machine_measures_every_row_once_at_the_full_rate() {
        let (answer, history, spent) = play(&asked(), |_| Comfortable, |_, _, _| true);
        assert_eq!(answer, RowSource::Measured(0));
        let [round] = &history.rounds[..] else { panic!("{history:?}") };
        assert_eq!((round.link, round.arrivals), (100 * M, ARRIVALS));
        assert!(round.runs.iter().all(|runs| runs[..] == [true]), "{round:?}");
        assert!(spent < seconds(70), "{spent:?}");
    }

    #[test]
    fn every_machine_gets_an_answer_within_three_minutes() {
        // The five tries of the issue are among them: rows of TCP that are never valid at the
        // fastest rate, no row valid at any rate, and an idle rack that fails its check.
        type Machine = (&'static str, fn(u64) -> Fit, fn(u64, usize, usize) -> bool, RowSource);
        let simulated = RowSource::Simulated(100 * M);
        let machines: [Machine; 10] = [
            (
                "TCP is disturbed at 100",
                |_| Comfortable,
                |l, r, _| l < 100 * M || r < 2,
                RowSource::Measured(1),
            ),
            (
                "one row is disturbed once",
                |_| Comfortable,
                |_, r, n| r != 3 || n == 1,
                RowSource::Measured(0),
            ),
            (
                "one TCP row is always disturbed",
                |_| Comfortable,
                |_, r, _| r != 4,
                RowSource::Measured(1),
            ),
            ("nothing is ever valid", |_| Comfortable, |_, _, _| false, simulated),
            ("TCP is never valid", |_| Comfortable, |_, r, _| r < 2, simulated),
            ("the idle rack fails its check", |_| Unusable, |_, _, _| true, simulated),
            ("every trial is disturbed", |_| Disturbed, |_, _, _| true, RowSource::Measured(0)),
            (
                "only 25 is comfortable",
                |l| if l <= 25 * M { Comfortable } else { Tight },
                |_, _, _| true,
                RowSource::Measured(0),
            ),
            ("no rate is comfortable", |_| Tight, |_, _, _| true, RowSource::Measured(0)),
            (
                "disturbed except at 12.5",
                |l| if l < 13 * M { Tight } else { Unusable },
                |_, _, n| n == 1,
                RowSource::Measured(0),
            ),
        ];
        for (name, fit, valid, expected) in machines {
            let (answer, history, spent) = play(&asked(), fit, valid);
            assert_eq!(answer, expected, "{name}: {history:?}");
            assert!(spent < seconds(180), "{name}: {spent:?}");
        }
    }

    #[test]
    fn a_tight_rate_is_measured_if_slower_ones_are_disturbed() {
        let fit = |link| if link == 50 * M { Tight } else { Disturbed };
        let (answer, history, _) = play(&asked(), fit, |_, _, _| true);
        assert_eq!((answer, history.rounds[0].link), (RowSource::Measured(0), 50 * M));
    }

    #[test]
    fn a_rate_that_was_asked_for_is_kept() {
        let asked = Asked { link: Some(50 * M), ..asked() };
        let (answer, history, _) = play(&asked, |_| Tight, |_, row, _| row != 2);
        assert_eq!((answer, history.rounds.len()), (RowSource::Measured(0), 1));
        assert_eq!(history.rounds[0].runs[2], [false, false]);
        let (answer, history, _) = play(&asked, |_| Unusable, |_, _, _| true);
        assert_eq!((answer, history.rounds.len()), (RowSource::Simulated(50 * M), 0));
        let anyway = Asked { anyway: true, ..asked };
        let (answer, history, _) = play(&anyway, |_| Unusable, |_, _, _| false);
        assert_eq!((answer, history.trials.len()), (RowSource::Measured(0), 0));
        assert!(history.rounds[0].runs.iter().all(|runs| runs[..] == [false]), "each row once");
    }

    #[test]
    fn without_a_rack_the_simulator_answers_at_once() {
        let refused = History { refused: true, ..History::default() };
        let answer = Next::Answer(RowSource::Simulated(100 * M));
        assert_eq!(next(&asked(), &refused, BUDGET), answer);
    }

    #[test]
    fn patterns_that_cannot_be_simulated_are_measured_as_they_are() {
        let asked = Asked { simulable: false, ..asked() };
        let (answer, history, _) = play(&asked, |_| Disturbed, |_, _, _| false);
        assert_eq!(answer, RowSource::Measured(history.rounds.len() - 1), "{history:?}");
    }

    #[test]
    fn a_comparison_needs_only_the_kinds_that_were_asked_for() {
        let asked = Asked { rows: vec![Homa], ..asked() };
        let (answer, ..) = play(&asked, |_| Comfortable, |_, _, _| true);
        assert_eq!(answer, RowSource::Measured(0));
    }

    #[test]
    fn only_a_broken_promise_or_strictness_fails_the_command() {
        assert_eq!(verdict(false, false, false, true), Verdict::Passed);
        assert_eq!(verdict(false, false, false, false), Verdict::Passed);
        assert_eq!(verdict(true, false, true, false), Verdict::Passed);
        for (strict, broken, all_valid, simulated) in
            [(false, true, true, false), (true, false, false, false), (true, false, true, true)]
        {
            assert_eq!(verdict(strict, broken, all_valid, simulated), Verdict::CheckFailed);
        }
    }

    #[test]
    fn a_trial_is_comfortable_only_with_a_margin() {
        assert_eq!([0.5, 0.9, 1.1].map(Fit::of_strain), [Comfortable, Tight, Disturbed]);
    }
}
