//! The main job: the same RPCs over each transport on one rack, at random times and of the sizes of
//! a workload.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use homa_testbed::check::SHORT_BYTES;
use homa_testbed::{Isolation, Pattern, Rack, RunReport};
use homa_workload::arrivals::{Arrival, schedule};
use homa_workload::bins::SizeBins;

use super::args::Args;
use super::decide::{Asked, History, Next, budget, next};
use super::marking::PlannedRow;
use super::results::report::{Judged, TransportResult};
use super::results::{chart, summary, table};
use super::rows::Rows;
use super::setup::{OFFER_HINT, Racks, idle_sizes, offer, rack_config};
use super::trial::{self, Trial};
use super::units::rate;
use super::{incast, measure, twin, workflow};
use crate::failure::{Failure, Hint, Outcome};
use crate::output::{Format, TextTable};

const CHART_HINT: &str = "choose another --chart file";
/// The chart's file if none is named.
const CHART: &str = "homa-bench.svg";

/// Checks the arguments of every pattern on the rack, then runs the one that was asked for.
pub fn run(args: &Args) -> Outcome {
    args.check_congestion_control()?;
    args.network.check(args.duration())?;
    rack_config(args).validate().hint("`homa bench --help` has units and defaults")?;
    if args.twin {
        twin::check(args)?;
    }
    if let Some(path) = &args.chart {
        // An hour later would be late to find out.
        check_writable(path).with_context(|| cannot_write(path)).hint(CHART_HINT)?;
    }
    match (args.incast, args.fan_out) {
        (Some(outstanding), _) => incast::run(args, outstanding),
        (None, Some(parts)) => workflow::run(args, parts),
        (None, None) => {
            offer(args)?;
            measure::run(args, true, Loaded::new)
        }
    }
}

/// The RPCs that are offered over links of one rate.
pub struct Loaded {
    args: Args,
    arrivals: Vec<Vec<Arrival>>,
    idle_sizes: Vec<u32>,
    bins: SizeBins,
    /// Sizes of the RPCs that count as short, ascending, bytes.
    short: Vec<u32>,
}

impl Loaded {
    /// Draws the RPCs.
    pub fn new(args: &Args) -> Result<Self, Failure> {
        let (offer, sizes) = offer(args)?;
        let arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
        Ok(Self {
            args: args.clone(),
            idle_sizes: idle_sizes(&sizes),
            bins: SizeBins::percent(&sizes),
            short: table::short_sizes(&arrivals),
            arrivals,
        })
    }

    /// Draws the figure. The file's name, or why a default one is not there.
    fn draw(&self, rows: &[Judged<TransportResult>]) -> Result<Option<PathBuf>, Failure> {
        let args = &self.args;
        let path = match (&args.chart, args.format) {
            (Some(path), _) => path.clone(),
            (None, Format::Table) => PathBuf::from(CHART),
            (None, Format::Json) => return Ok(None),
        };
        let simulated = rows.iter().any(|row| !row.measured());
        let subtitle = format!(
            "{}{} echo RPCs, {:.0} % load, {} hosts x {}, {} B of buffer a port, {:.0} s a row, \
             seed {}",
            if simulated { "simulated: " } else { "" },
            args.workload.to_string().to_uppercase(),
            args.load * 100.0,
            args.hosts(),
            rate(args.link()),
            args.buffer,
            args.duration().as_secs_f64(),
            args.seed
        );
        match (fs::write(&path, chart::svg(rows, &subtitle)), &args.chart) {
            (Ok(()), _) => Ok(Some(path)),
            (Err(error), None) => {
                eprintln!(
                    "no chart: {}: {error}; name another file with --chart",
                    cannot_write(&path)
                );
                Ok(None)
            }
            (written, Some(_)) => {
                written.with_context(|| cannot_write(&path)).hint(CHART_HINT)?;
                Ok(Some(path))
            }
        }
    }
}

impl Rows for Loaded {
    type Row = TransportResult;

    fn pattern(&self) -> Pattern<'_> {
        let duration = self.args.duration();
        Pattern::Open { arrivals: &self.arrivals, request_bytes: None, duration }
    }

    fn idle_sizes(&self) -> &[u32] {
        &self.idle_sizes
    }

    fn row(
        &self,
        run: &RunReport,
        planned: PlannedRow,
        rack: &Rack,
    ) -> Result<TransportResult, Failure> {
        let mut row = TransportResult::of_run(run, planned.marks, rack.config(), &self.bins);
        row.idle_us = table::typical(&self.short).and_then(|bytes| Some(run.idle.at(bytes)? / 1e3));
        if self.args.twin {
            let measured = (Some(&run.idle), rack.tcp_rto_min());
            let forecast = twin::forecast(&self.args, planned, &self.arrivals, measured)?;
            let short = &row.short;
            let undisturbed = short.undisturbed.as_ref().and_then(|calm| calm.p99_us);
            row.twin = forecast.map(|twin| twin.beside(short.p50_us, short.p99_us, undisturbed));
        }
        Ok(row)
    }

    fn simulated(&self, planned: PlannedRow) -> Result<Option<TransportResult>, Failure> {
        let sizes = &self.idle_sizes;
        let simulated = twin::row(&self.args, planned, &self.arrivals, sizes)?;
        Ok(simulated.map(|row| {
            let offered = self.arrivals.iter().map(Vec::len).sum();
            TransportResult::simulated(planned, offered, (&row.records, &row.idle), &self.bins)
        }))
    }

    fn broken(&self, row: &TransportResult) -> Vec<String> {
        row.broken()
    }

    fn table(&self) -> TextTable {
        table::loaded(self.short.len())
    }

    fn offered(&self) -> String {
        table::load_line(&self.args, "of every link, the same arrivals for each row")
    }

    fn cells(&self, row: &TransportResult) -> Vec<String> {
        table::cells(row)
    }

    fn below(&self, row: &TransportResult, verbose: bool) -> Vec<String> {
        table::below(&self.args, row, table::typical(&self.short), verbose)
    }

    fn summary(&self, rows: &[Judged<TransportResult>]) -> Result<Vec<String>, Failure> {
        let mut sentences = Vec::new();
        if self.short.is_empty() {
            sentences.push(format!("No RPC of this workload is as small as {SHORT_BYTES} B."));
        }
        sentences.extend(summary::about(&self.args, rows));
        if let Some(path) = self.draw(rows)? {
            sentences.push(format!("Chart: {}", path.display()));
        }
        Ok(sentences)
    }
}

/// Tries the link rates that `homa bench` without options would try on this machine. Returns the
/// trials and the rate at which it would measure; `None` if it would simulate.
pub fn find(args: &Args, inside: &Isolation) -> Result<(Vec<Trial>, Option<u64>), Failure> {
    let planned = args.rows();
    let rows = trial::families(&planned);
    let asked = Asked { link: None, rows, duration: None, anyway: false, simulable: true };
    let (mut racks, mut history, mut trials) = (Racks::new(inside), History::default(), Vec::new());
    loop {
        match next(&asked, &history, budget(&asked)) {
            Next::Try(link) => {
                let args = trial::arguments(args, link);
                let rows = (planned[0], &trial::demanding(&planned)[..]);
                let trial = trial::run(&args, &mut racks, rows, &Loaded::new(&args)?);
                let trial = trial.hint("`homa bench` simulates its rows instead")?;
                history.trials.push((link, trial.fit));
                trials.push(trial);
            }
            Next::Begin { link, .. } => return Ok((trials, Some(link))),
            _ => return Ok((trials, None)),
        }
    }
}

/// Whether a file can be written, without making it: a run that fails leaves none behind.
fn check_writable(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map(drop),
    }
    // A file beside it is made and removed, which shows that its folder takes files.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&beside)?;
    fs::remove_file(&beside)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_tried_without_being_made_or_changed() {
        let folder = std::env::temp_dir().join(format!("homa-chart-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (new, old) = (folder.join("new.svg"), folder.join("old.svg"));
        check_writable(&new).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "something was left behind");
        fs::write(&old, "kept").unwrap();
        check_writable(&old).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        for never in [folder.clone(), folder.join("none/new.svg"), folder.join("new.svg/")] {
            assert!(check_writable(&never).is_err(), "{}", never.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
