//! Running many simulations: one thread per core, whatever is already stored is skipped, the
//! heaviest first.
//!
//! A simulation's result depends on its scenario alone, so neither the number of threads nor the
//! order nor the division into shards changes a byte of the tables.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use homa_sim::experiment::{Observers, run_watched};
use homa_sim::scenario::{ScenarioError, ScenarioOutcome};

use crate::cell::Cell;
use crate::error::LabError;
use crate::plan::Plan;
use crate::results;
use crate::store::{Listed, Manifest, PLAN_FILE, Store, Stored, model};
use crate::table::Table;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Simulations at a time; if fewer are left to run, each may use several threads.
    pub threads: usize,
    /// Which part of the plan.
    pub shard: Shard,
    /// Identity of the simulator, see [`crate::store::model`].
    pub program: String,
    /// A simulation that cannot be run does not keep the others from running.
    pub keep_going: bool,
    /// If set, ends the sweep soon with [`LabError::Stopped`]; finished results are kept.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// All simulations of a plan by this program, this many at a time.
    pub fn on(threads: usize) -> Self {
        Self {
            threads,
            shard: Shard::ALL,
            program: model().to_owned(),
            keep_going: false,
            stop: Arc::default(),
        }
    }
}

/// The longest time between two looks at the progress.
const BEAT: Duration = Duration::from_millis(100);

/// Every n-th simulation of a plan, so that n machines share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `count`.
    pub index: usize,
    /// Number of shards.
    pub count: usize,
}

impl Shard {
    /// The whole plan.
    pub const ALL: Self = Self { index: 1, count: 1 };

    /// True when the simulation at this place in the plan is one of the shard's.
    pub const fn has(self, place: usize) -> bool {
        place % self.count == self.index - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, count)| {
            Some(Self { index: index.parse().ok()?, count: count.parse().ok()? })
        });
        match parsed {
            Some(shard) if (1..=shard.count).contains(&shard.index) => Ok(shard),
            _ => Err("write a shard as k/n with k from 1 to n, such as 3/8".into()),
        }
    }
}

/// How far a sweep is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Simulations to run.
    pub cells: usize,
    /// Of these, finished.
    pub finished: usize,
    /// Found stored, and not run again.
    pub stored: usize,
    /// Found stored, but damaged or of another simulation: run again.
    pub unfit: usize,
    /// Share of the work done, 0 to 1, by the packets expected.
    pub done: f64,
    /// Name of the simulation that was heard of last.
    pub label: String,
}

/// A message of a worker.
enum News {
    Step { job: usize, done: f64 },
    Finished { job: usize },
    Failed { job: usize, error: LabError },
}

/// Runs the shard's simulations that have no result yet; `show` receives the progress at least ten
/// times a second. Simulations that differ only in name run once. Returns those that were refused,
/// if they do not end the sweep.
pub fn run(
    cells: &[Cell],
    store: &Store,
    options: &Options,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<LabError>, LabError> {
    let (keyed, progress) = pending(cells, store, options);
    show(&progress);
    let (next, stop) = (AtomicUsize::new(0), &options.stop);
    let (news, heard) = mpsc::channel();
    let at_once = options.threads.clamp(1, keyed.len().max(1));
    // If there are fewer simulations than threads, each has several for the partitions of its
    // network.
    let each = (options.threads / at_once).max(1);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let (news, next, keyed) = (news.clone(), &next, &keyed);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some((key, cell)) = keyed.get(job) else { break };
                    let last = match work((job, key, cell), (store, each), options, &news) {
                        Ok(()) => News::Finished { job },
                        Err(error) => News::Failed { job, error },
                    };
                    // The receiver may have ended after a failure elsewhere.
                    let _ = news.send(last);
                }
            });
        }
        drop(news);
        let refused = listen(&heard, (&keyed, progress), options.keep_going, show);
        match stop.load(Ordering::Relaxed) {
            true => refused.and(Err(LabError::Stopped)),
            false => refused.inspect_err(|_| stop.store(true, Ordering::Relaxed)),
        }
    })
}

/// Receives the results of the jobs until all have ended, or the first fails. Returns those that
/// were refused.
fn listen(
    heard: &mpsc::Receiver<News>,
    (keyed, mut progress): (&[(String, &Cell)], Progress),
    keep_going: bool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<LabError>, LabError> {
    let weights: Vec<f64> = keyed.iter().map(|(_, cell)| cell.weight()).collect();
    let total: f64 = weights.iter().sum();
    let mut shares = vec![0.0; keyed.len()];
    let mut refused = Vec::new();
    loop {
        match heard.recv_timeout(BEAT) {
            Ok(News::Step { job, done }) => {
                shares[job] = done;
                progress.label = keyed[job].1.label();
            }
            Ok(News::Finished { job }) => {
                shares[job] = 1.0;
                progress.finished += 1;
                progress.label = keyed[job].1.label();
            }
            Ok(News::Failed { job, error: error @ LabError::Scenario { .. } }) if keep_going => {
                shares[job] = 1.0;
                refused.push(error);
            }
            Ok(News::Failed { error, .. }) => return Err(error),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(refused),
        }
        let done: f64 = weights.iter().zip(&shares).map(|(weight, share)| weight * share).sum();
        // Without jobs all is done.
        progress.done = if total > 0.0 { done / total } else { 1.0 };
        show(&progress);
    }
}

/// The shard's simulations that have no result, by key, the heaviest first.
pub(crate) fn pending<'a>(
    cells: &'a [Cell],
    store: &Store,
    options: &Options,
) -> (Vec<(String, &'a Cell)>, Progress) {
    let mine = cells.iter().enumerate().filter(|(place, _)| options.shard.has(*place));
    let mut keyed: Vec<(String, &Cell)> =
        mine.map(|(_, cell)| (cell.key(&options.program), cell)).collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    keyed.dedup_by(|a, b| a.0 == b.0);
    let all = keyed.len();
    let found = keyed.iter().filter(|(key, _)| store.has(key)).count();
    keyed.retain(|(key, cell)| !store.has(key) || !store.fits(key, cell, &options.program));
    keyed.sort_by(|a, b| b.1.weight().total_cmp(&a.1.weight()).then_with(|| a.0.cmp(&b.0)));
    let stored = all - keyed.len();
    let unfit = found - stored;
    let progress = Progress { cells: keyed.len(), stored, unfit, ..Progress::default() };
    (keyed, progress)
}

/// Runs a plan's shard into a folder, and writes the tables once all of the plan is there. Returns
/// whether it is.
pub fn run_plan(
    plan: &Plan,
    store: &Store,
    options: &Options,
    show: &mut dyn FnMut(&Progress),
) -> Result<bool, LabError> {
    let manifest = begin(plan, store, &options.program)?;
    run(&plan.cells, store, options, show)?;
    finish(store, &manifest)
}

/// Says in a folder what a plan's simulations by a program are.
pub fn begin(plan: &Plan, store: &Store, program: &str) -> Result<Manifest, LabError> {
    let manifest = Manifest::new(&plan.title, program, &plan.cells);
    store.describe(&manifest, PLAN_FILE, &plan.resolved)?;
    Ok(manifest)
}

/// Writes the tables once all of a plan is there. Returns whether it is.
pub fn finish(store: &Store, manifest: &Manifest) -> Result<bool, LabError> {
    let complete = manifest.cells.iter().all(|cell| store.has(&cell.key));
    if complete {
        tabulate(store, manifest)?;
    }
    Ok(complete)
}

/// Keeps the outcome of a plan of one simulation, run by this program, in a folder with its tables.
pub fn keep(plan: &Plan, outcome: &ScenarioOutcome, store: &Store) -> Result<(), LabError> {
    let manifest = begin(plan, store, model())?;
    for cell in &plan.cells {
        store.write(&cell.key(model()), &Stored::new(cell, model(), outcome.clone()))?;
    }
    tabulate(store, &manifest)
}

/// The stored simulations of a manifest, in its order.
pub fn stored(store: &Store, manifest: &Manifest) -> Result<Vec<Stored>, LabError> {
    let there = manifest.cells.iter().filter(|listed| store.has(&listed.key));
    let read = |listed: &Listed| {
        let mut stored = store.read(&listed.key)?;
        // The same simulation may stand in several plans, under other names.
        stored.cell.axes.clone_from(&listed.axes);
        Ok(stored)
    };
    there.map(read).collect()
}

/// Writes the tables of all of a manifest's simulations that have results.
pub fn tabulate(store: &Store, manifest: &Manifest) -> Result<(), LabError> {
    let stored = stored(store, manifest)?;
    results::summary(&stored).save(store.root(), "summary")?;
    results::slowdown(&stored).save(store.root(), "slowdown")?;
    match results::ledger(&stored) {
        Some(table) => table.save(store.root(), "ledger"),
        None => Table::remove(store.root(), "ledger"),
    }
}

fn work(
    (job, key, cell): (usize, &str, &Cell),
    (store, threads): (&Store, usize),
    options: &Options,
    news: &mpsc::Sender<News>,
) -> Result<(), LabError> {
    let mut shown = 0.0;
    let stored = perform((cell, threads), &options.program, &options.stop, &mut |done| {
        if done >= shown + 0.01 {
            shown = done;
            let _ = news.send(News::Step { job, done });
        }
    });
    store.write(key, &stored?)
}

/// Runs a simulation on at most this number of threads until its end, or until `stop` is set;
/// `show` receives the share done.
pub(crate) fn perform(
    (cell, threads): (&Cell, usize),
    program: &str,
    stop: &AtomicBool,
    show: &mut dyn FnMut(f64),
) -> Result<Stored, LabError> {
    let (stop, threads) = (Some(stop), Some(threads));
    let observers = Observers { stop, threads, ..Observers::default() };
    match run_watched(&cell.scenario, observers, &mut |progress| show(progress.done)) {
        Ok((outcome, _)) => Ok(Stored::new(cell, program, outcome)),
        Err(ScenarioError::Stopped) => Err(LabError::Stopped),
        Err(source) => Err(LabError::Scenario { label: cell.label(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_partition_the_plan() {
        for count in 1..5 {
            for place in 0..20 {
                let owners = (1..=count).filter(|&index| Shard { index, count }.has(place));
                assert_eq!(owners.count(), 1);
            }
        }
        assert_eq!("3/8".parse(), Ok(Shard { index: 3, count: 8 }));
        for wrong in ["0/8", "9/8", "3", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
