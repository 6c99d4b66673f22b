//! The loop over trials, rates and rows of a pattern on the rack. [`decide`] chooses the next step;
//! this file takes it, shows progress, and prints the result in one piece.
//!
//! [`decide`]: super::decide

use std::time::{Duration, Instant};

use homa_testbed::{Isolation, RunPlan, TestbedError};

use super::args::Args;
use super::config::{Config, Network, command_line};
use super::decide::{Asked, History, Next, RateRound, RowSource, budget, expected, next, verdict};
use super::marking::PlannedRow;
use super::results::report::{BenchReport, Judged, Source, print_broken};
use super::results::table;
use super::rows::Rows;
use super::setup::{GRACE, Racks, plan};
use super::trial;
use super::units::rate;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Progress, json, line};

/// Least time for stragglers after the last arrival of a row.
const LEAST_GRACE: Duration = Duration::from_secs(5);

/// Advice if there can be no rack, or if a row on it fails.
const LACKS: &str = "`homa doctor` shows what this machine lacks for a rack";

/// A round's rows so far.
struct Measured<R: Rows> {
    args: Args,
    config: Config,
    /// Lines above the table.
    head: Vec<String>,
    of: R,
    rows: Vec<Option<Judged<R::Row>>>,
    /// Why a row has no figures at all.
    missing: Vec<Option<String>>,
    checks: Vec<String>,
}

/// A command on the rack.
struct Session<'a, R: Rows, M: Fn(&Args) -> Result<R, Failure>> {
    args: &'a Args,
    make: M,
    planned: Vec<PlannedRow>,
    asked: Asked,
    history: History,
    rounds: Vec<Measured<R>>,
    broken: Vec<String>,
    /// Why rows are simulated, if they are.
    why: String,
    began: Instant,
}

/// Measures the rows of a pattern, which `make` offers for the link rate and duration of its
/// arguments, and prints the answer. `simulable`: the simulator can answer instead.
pub fn run<R: Rows>(
    args: &Args,
    simulable: bool,
    make: impl Fn(&Args) -> Result<R, Failure>,
) -> Outcome {
    // An offer that is too large is refused before any rate is tried.
    make(args)?;
    let planned = args.rows();
    let asked = Asked {
        link: args.link,
        rows: trial::families(&planned),
        duration: args.duration,
        anyway: args.anyway,
        simulable,
    };
    let mut session = Session {
        args,
        make,
        planned,
        asked,
        history: History::default(),
        rounds: Vec::new(),
        broken: Vec::new(),
        why: String::new(),
        began: Instant::now(),
    };
    let answer = match homa_testbed::isolate() {
        Ok(inside) => {
            let progress = Progress::ticking(session.expected());
            let answer = session.measure(&inside, &progress)?;
            progress.finish();
            answer
        }
        Err(error) if simulable => {
            session.refuse(error.to_string());
            RowSource::Simulated(args.link())
        }
        Err(error) => return Err(Failure::new(error, "`homa doctor` names the setting")),
    };
    session.answer(answer)
}

impl<R: Rows, M: Fn(&Args) -> Result<R, Failure>> Session<'_, R, M> {
    /// Time left of the budget.
    fn left(&self) -> Duration {
        budget(&self.asked).saturating_sub(self.began.elapsed())
    }

    /// About how long it takes from now on.
    fn expected(&self) -> Duration {
        expected(&self.asked, &self.history, trial::EXPECTED, self.left())
    }

    /// There can be no rack.
    fn refuse(&mut self, why: String) {
        self.history.refused = true;
        self.why = why;
    }

    /// Tries and measures until there is an answer.
    fn measure(&mut self, inside: &Isolation, progress: &Progress) -> Result<RowSource, Failure> {
        let mut racks = Racks::new(inside);
        loop {
            progress.expect(self.expected());
            match next(&self.asked, &self.history, self.left()) {
                Next::Try(link) => self.try_rate(link, &mut racks, progress)?,
                Next::Begin { link, arrivals } => self.begin(link, arrivals)?,
                Next::Measure(row) => self.measure_row(row, &mut racks, progress)?,
                Next::Answer(answer) => return Ok(answer),
            }
        }
    }

    fn try_rate(
        &mut self,
        link: u64,
        racks: &mut Racks<'_>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        progress.step(&format!("trying links of {}", rate(link)));
        let args = trial::arguments(self.args, link);
        let rows = match self.asked.link {
            // Only the check without load: the rate was asked for.
            Some(_) => Vec::new(),
            None => trial::demanding(&self.planned),
        };
        let of = (self.make)(&args)?;
        match trial::run(&args, racks, (self.planned[0], &rows), &of) {
            Ok(trial) => {
                progress.suspend(|| eprintln!("{}", trial.sentence()));
                self.history.trials.push((link, trial.fit));
                let found = trial.found.as_deref().unwrap_or("its check failed");
                self.why = format!("over links of {}, {found}", rate(link));
            }
            Err(error) if self.asked.simulable => self.refuse(error.to_string()),
            Err(error) => return Err(Failure::new(error, LACKS)),
        }
        Ok(())
    }

    /// Begins a round.
    fn begin(&mut self, link: u64, arrivals: Duration) -> Result<(), Failure> {
        let args = Args { link: Some(link), duration: Some(arrivals), ..self.args.clone() };
        let rows = self.planned.len();
        self.history.rounds.push(RateRound { link, arrivals, runs: vec![Vec::new(); rows] });
        self.rounds.push(Measured {
            config: Config::new(&args, Network::Rack),
            head: Vec::new(),
            of: (self.make)(&args)?,
            rows: (0..rows).map(|_| None).collect(),
            missing: vec![Some("the time for this command was over".into()); rows],
            checks: Vec::new(),
            args,
        });
        Ok(())
    }

    /// Measures a row of the last round.
    fn measure_row(
        &mut self,
        row: usize,
        racks: &mut Racks<'_>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let grace = match self.asked.duration {
            // A straggler must not take the time of the rows that follow.
            None => GRACE.min(self.left()).max(LEAST_GRACE),
            Some(_) => GRACE,
        };
        let (Some(measured), Some(round)) =
            (self.rounds.last_mut(), self.history.rounds.last_mut())
        else {
            return Ok(());
        };
        let planned = self.planned[row];
        let label = planned.label();
        let again = if round.runs[row].is_empty() { "" } else { ", once more" };
        progress.step(&format!("{label}{again}: {} of {}", row + 1, self.planned.len()));
        match measured.row(planned, racks, grace)? {
            Ok(judged) => {
                let broken = measured.of.broken(&judged.row);
                if judged.valid || !judged.cut_short {
                    self.broken.extend(broken);
                }
                if let Some(reason) = &judged.reason {
                    progress.suspend(|| eprintln!("{label} was disturbed: {reason}"));
                    self.why = format!("{label} over links of {}: {reason}", rate(round.link));
                }
                round.runs[row].push(judged.valid);
                measured.rows[row] = Some(judged);
                measured.missing[row] = None;
            }
            Err(error) if self.asked.simulable => {
                progress.suspend(|| eprintln!("{label} failed: {error}"));
                self.why = format!("{label} failed on the rack: {error}");
                round.runs[row].push(false);
                measured.missing[row] = Some(error.to_string());
            }
            Err(error) => return Err(Failure::new(error, LACKS)),
        }
        Ok(())
    }

    /// Prints the answer.
    fn answer(mut self, answer: RowSource) -> Outcome {
        let (measured, why) = match answer {
            RowSource::Measured(round) => (self.rounds.swap_remove(round), None),
            RowSource::Simulated(link) => {
                (self.simulate(link)?, Some(std::mem::take(&mut self.why)))
            }
        };
        let valid = measured.rows.iter().all(|row| row.as_ref().is_some_and(|row| row.valid));
        let simulated = why.is_some();
        let broken = !self.broken.is_empty();
        print(self.args, measured, why, (valid, &self.broken))?;
        Ok(verdict(self.args.strict, broken, valid, simulated))
    }

    /// All rows from the simulator, over links of this rate.
    fn simulate(&self, link: u64) -> Result<Measured<R>, Failure> {
        let args =
            Args { link: Some(link), duration: Some(self.args.duration()), ..self.args.clone() };
        let of = (self.make)(&args)?;
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        for &planned in &self.planned {
            let row = of.simulated(planned)?.map(Judged::simulated);
            let no = "the simulator has no such row".to_owned();
            missing.push(row.is_none().then_some(no));
            rows.push(row);
        }
        let config = Config::new(&args, Network::Rack);
        Ok(Measured { args, config, head: Vec::new(), of, rows, missing, checks: Vec::new() })
    }
}

impl<R: Rows> Measured<R> {
    /// Measures a row: the row, or why the rack failed.
    fn row(
        &mut self,
        planned: PlannedRow,
        racks: &mut Racks<'_>,
        grace: Duration,
    ) -> Result<Result<Judged<R::Row>, TestbedError>, Failure> {
        let (rack, idle) = match racks.of_row(&self.args, planned) {
            Ok(rack) => rack,
            Err(error) => return Ok(Err(error)),
        };
        if self.head.is_empty() {
            self.config = Config::of_rack(&self.args, rack);
            self.head = table::rack_lines(&self.args, Some(rack));
        }
        let plan = plan(&self.args, planned.transport, self.of.pattern(), grace);
        let run =
            match homa_testbed::run(rack, &RunPlan { idle_sizes: self.of.idle_sizes(), ..plan }) {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
        let mut found = idle.clone();
        found.extend(run.verdict.clone());
        self.checks.push(format!("    {}: {found}", planned.label()));
        Ok(Ok(Judged {
            row: self.of.row(&run, planned, rack)?,
            valid: found.valid(),
            reason: found.failed().next().map(|failed| failed.detail.clone()),
            source: Source::Measured,
            cut_short: grace < GRACE && run.lost > 0,
        }))
    }
}

/// Prints a round: its document, or the table and what follows it.
fn print<R: Rows>(
    asked: &Args,
    measured: Measured<R>,
    why: Option<String>,
    (valid, broken): (bool, &[String]),
) -> Result<(), Failure> {
    let Measured { args, config, mut head, of, rows, missing, checks } = measured;
    let planned = args.rows();
    let absent: Vec<String> = planned
        .iter()
        .zip(&missing)
        .filter_map(|(row, why)| {
            Some(format!("{} was not measured: {}.", row.label(), why.as_ref()?))
        })
        .collect();
    let labels: Vec<String> = planned
        .iter()
        .zip(&rows)
        .filter(|(_, row)| row.is_some())
        .map(|(row, _)| row.label())
        .collect();
    let rows: Vec<Judged<R::Row>> = rows.into_iter().flatten().collect();
    // A chart that was asked for is drawn in either format.
    let summary = of.summary(&rows)?;
    if asked.format == Format::Json {
        absent.iter().for_each(|text| eprintln!("{text}"));
        print_broken(broken, asked.format);
        return json(&BenchReport { config, valid, why_simulated: why, transports: &rows });
    }
    if head.is_empty() {
        head = table::rack_lines(&args, None);
    }
    head.iter().for_each(line);
    line(of.offered());
    line("");
    table::print(&of, &labels, &rows);
    line("");
    table::legend(&planned, &rows).iter().for_each(line);
    for (label, row) in labels.iter().zip(&rows) {
        let below = of.below(&row.row, args.verbose);
        if !below.is_empty() {
            line(format!("  {label}:"));
            below.iter().for_each(line);
        }
    }
    if args.verbose && !checks.is_empty() {
        line("  Checks of the rack:");
        checks.iter().for_each(line);
    }
    absent.iter().for_each(line);
    if let Some(why) = &why {
        line(format!(
            "All rows are simulated, not measured. The rack could not be trusted here: {why}."
        ));
    }
    for (label, row) in labels.iter().zip(&rows) {
        if let Some(reason) = &row.reason {
            line(format!("{label} is not valid, because {reason}."));
        }
    }
    print_broken(broken, asked.format);
    line("");
    summary.iter().for_each(line);
    line(format!("Repeat: {}", command_line(&args)));
    Ok(())
}
