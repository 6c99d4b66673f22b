//! `homa sweep`: every combination of a plan's axes and seeds.

use std::path::{Path, PathBuf};

use homa_lab::error::LabError;
use homa_lab::plan::Plan;
use homa_lab::report::Choice;
use homa_lab::settings::assignment;
use homa_lab::store::{PLAN_FILE, Store};
use homa_lab::sweep::{Options, Progress, Shard, run_plan};
use toml::Value;

use super::sim::plan_failure;
use super::work::{Work, say_when_ended, write_page};
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::line;

/// Arguments of `homa sweep`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plan with axes; every combination runs once per seed:

  title = \"What load does to W3\"
  seeds = [1, 2, 3]
  [scenario]
  traffic = { pattern = \"all-to-all\", workload = \"w3\" }
  [axes]
  \"load.fraction\" = [0.5, 0.8]
  \"options.overcommitment\" = [2, 4]

If interrupted, rerun the same command to resume. To share a plan among machines, run `--shard 1/3`,
`2/3`, `3/3`, copy the cells folders into one, and run once more without --shard.")]
pub struct Args {
    /// The plan.
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Run only every N-th simulation, starting with the K-th.
    #[arg(long, value_name = "K/N", default_value = "1/1")]
    shard: Shard,
    /// Folder for the results: plan, cells, tables (CSV, Parquet), HTML page. [default: the plan's
    /// name without `.toml`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of simulations to run at a time. [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Any key of the scenario, such as fabric.host_link=25Gbps; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, Value)>,
}

/// One simulation per core, or as many as asked for.
pub fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

/// Shows a sweep's progress.
pub fn show(work: &mut Work, progress: &Progress) {
    let what = format!(
        "{} of {} simulations ({} found) {}",
        progress.finished, progress.cells, progress.stored, progress.label
    );
    work.show(progress.done, &what);
}

/// Says what an earlier run left, before any work.
fn say_found(progress: &Progress, folder: &Path) {
    let Progress { cells, stored, unfit, .. } = *progress;
    if stored > 0 {
        let all = stored + cells;
        eprintln!("found {stored} of {all} simulations in {}: {cells} to run", folder.display());
    }
    if unfit > 0 {
        eprintln!("{unfit} results are damaged, or of another simulation: they are run again");
    }
}

/// Warnings shown before a sweep, and alarms after it; the page has more.
const TOLD: usize = 10;

/// Alarms of the simulations that a user must see: fabrics that locked up, lost frames, warnings.
fn tell(store: &Store) -> Result<(), Failure> {
    let remedy = "run the same command again";
    let mut told = 0;
    for listed in store.manifest().hint(remedy)?.cells {
        for alarm in store.read(&listed.key).hint(remedy)?.alarms() {
            told += 1;
            if told <= TOLD {
                line(alarm);
            }
        }
    }
    if told > TOLD {
        line(format!("and {} more, of which the page has some", told - TOLD));
    }
    Ok(())
}

/// Warns before the run of results that will be wrong or easily misread.
pub fn warn(plan: &Plan) {
    let foreseen = plan.foreseen();
    for warning in foreseen.iter().take(TOLD) {
        eprintln!("WARNING: {warning}");
    }
    if foreseen.len() > TOLD {
        eprintln!("and {} more", foreseen.len() - TOLD);
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let plan = Plan::read(&args.plan, &args.set).map_err(plan_failure)?;
    let folder = args.out.clone().unwrap_or_else(|| args.plan.with_extension(""));
    let store = Store::create(&folder).hint("choose another --out")?;
    // A plan that was edited in its folder of results has comments that the resolved one lacks; an
    // unchanged one is resumed there.
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    let place = store.root().join(PLAN_FILE);
    let edited = || std::fs::read_to_string(&place).is_ok_and(|text| text != plan.resolved);
    if same(&args.plan, &place) && edited() {
        return Err(anyhow::anyhow!("{} would be overwritten", place.display()))
            .hint("choose another --out, or copy the plan elsewhere");
    }
    let options = Options { shard: args.shard, ..Options::on(threads(args.threads)) };
    say_when_ended(format!(
        "interrupted: what is finished is kept in {}; run the same command to resume",
        folder.display()
    ));
    if store.manifest().is_ok_and(|earlier| earlier.program != options.program) {
        eprintln!(
            "the results in {} are of another version of the simulator: all simulations run again",
            folder.display()
        );
    }
    warn(&plan);
    let mut work = Work::new();
    let mut found: Option<Progress> = None;
    let complete = run_plan(&plan, &store, &options, &mut |progress| {
        if found.is_none() {
            say_found(progress, &folder);
        }
        found = Some(progress.clone());
        show(&mut work, progress);
    });
    let found = found.unwrap_or_default();
    work.finish();
    let complete = complete.map_err(|error| {
        let hint = match &error {
            LabError::File { .. } => "make room, or choose another --out; what is finished is kept",
            LabError::Result { .. } => "remove that file: its simulation is run again",
            _ => "correct the plan; what is finished is kept",
        };
        Failure::new(error, hint)
    })?;
    let Progress { finished, stored, .. } = found;
    let s = if finished == 1 { "" } else { "s" };
    let what = format!("{finished} simulation{s} run, {stored} found from before");
    if complete {
        write_page(&folder, &Choice::default())?;
        line(format!("{what}; tables in {}", folder.display()));
        tell(&store)?;
    } else {
        line(format!("{what}; other shards are missing in {}", folder.display()));
    }
    Ok(Verdict::Passed)
}
