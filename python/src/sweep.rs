//! Every combination of a plan's axes and seeds: here on all cores, or as tasks of an executor.

use std::path::{Path, PathBuf};

use homa_lab::chart::svg;
use homa_lab::error::LabError;
use homa_lab::plan::Plan;
use homa_lab::report::{Choice, charts};
use homa_lab::results;
use homa_lab::store::{Listed, Manifest, Store, Stored, model};
use homa_lab::sweep::{self, Options};
use homa_lab::task;
use pyo3::prelude::*;

use crate::errors::raised;
use crate::given::Given;
use crate::simulation::{json_of, stored_of};
use crate::table::Table;
use crate::watch::Watch;

/// A plan and the folder of its results.
#[pyclass(frozen, module = "homa._native")]
pub struct Sweep {
    plan: Plan,
    store: Store,
    manifest: Manifest,
}

/// The results of a sweep, which pickle keeps.
#[pyclass(frozen, module = "homa._native")]
pub struct SweepResults {
    folder: PathBuf,
    title: String,
    resolved: String,
    stored: Vec<Stored>,
}

/// A simulation that has no result yet: key, name, share of all work, text.
type Task = (String, String, f64, String);

#[pymethods]
impl Sweep {
    /// A sweep of a plan (JSON), in a folder that is created if it is missing.
    #[new]
    fn new(py: Python<'_>, given: &str, folder: PathBuf) -> PyResult<Self> {
        let made = py.detach(|| {
            let plan = Given::read(given)?.plan()?;
            let store = Store::create(&folder)?;
            let manifest = sweep::begin(&plan, &store, model())?;
            Ok(Self { plan, store, manifest })
        });
        made.map_err(|error| raised(py, error))
    }

    /// Runs the simulations without a result, this many at a time; absent: one per core.
    #[pyo3(signature = (threads=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut watch = Watch::new(progress);
        let threads = threads.unwrap_or_else(cores);
        let options = Options { stop: watch.stop(), ..Options::on(threads) };
        let done = py.detach(|| {
            sweep::run(&self.plan.cells, &self.store, &options, &mut |progress| {
                watch.tell(progress.done, &progress.label);
            })
        });
        watch.end(py, done).map(drop)
    }

    /// What has no result, the heaviest first.
    fn tasks(&self, py: Python<'_>) -> PyResult<Vec<Task>> {
        let listed = py.detach(|| task::tasks(&self.plan.cells, &self.store));
        let tasks = listed.map_err(|error| raised(py, error))?;
        Ok(tasks.into_iter().map(|one| (one.key, one.label, one.share, one.task)).collect())
    }

    /// Stores what came back of a task.
    fn store(&self, py: Python<'_>, key: &str, result: &str) -> PyResult<()> {
        let stored = py.detach(|| task::store_result(&self.store, key, result));
        stored.map_err(|error| raised(py, error))
    }

    /// Writes tables and page once all results are there; returns the results.
    fn finish(&self, py: Python<'_>) -> PyResult<SweepResults> {
        let finished = py.detach(|| {
            if sweep::finish(&self.store, &self.manifest)? {
                homa_lab::report::write(self.store.root(), &Choice::default())?;
            }
            Ok(SweepResults {
                folder: self.store.root().to_owned(),
                title: self.plan.title.clone(),
                resolved: self.plan.resolved.clone(),
                stored: sweep::stored(&self.store, &self.manifest)?,
            })
        });
        finished.map_err(|error: LabError| raised(py, error))
    }
}

#[pymethods]
impl SweepResults {
    /// Results as pickle keeps them: folder, title, plan, and each result as JSON.
    #[new]
    fn new(
        folder: PathBuf,
        title: String,
        resolved: String,
        stored: Vec<String>,
    ) -> PyResult<Self> {
        let stored = stored.iter().map(|json| stored_of(json)).collect::<PyResult<_>>()?;
        Ok(Self { folder, title, resolved, stored })
    }

    /// What [`SweepResults::new`] takes: pickle and copy call it.
    fn __getnewargs__(&self) -> PyResult<(PathBuf, String, String, Vec<String>)> {
        let stored = self.stored.iter().map(json_of).collect::<PyResult<_>>()?;
        Ok((self.folder.clone(), self.title.clone(), self.resolved.clone(), stored))
    }

    /// The folder of results.
    #[getter]
    fn folder(&self) -> &Path {
        &self.folder
    }

    /// The title of the plan.
    #[getter]
    fn title(&self) -> &str {
        &self.title
    }

    /// The plan with every default written out.
    #[getter]
    fn plan(&self) -> &str {
        &self.resolved
    }

    /// Number of simulations.
    fn __len__(&self) -> usize {
        self.stored.len()
    }

    /// The rows of `summary.csv`.
    fn summary(&self) -> Table {
        Table::of(&results::summary(&self.stored))
    }

    /// The rows of `slowdown.csv`.
    fn buckets(&self) -> Table {
        Table::of(&results::slowdown(&self.stored))
    }

    /// The rows of `ledger.csv`, if any were kept.
    fn ledger(&self) -> Option<Table> {
        results::ledger(&self.stored).as_ref().map(Table::of)
    }

    /// Drawings as SVG documents.
    fn charts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let drawn = py.detach(|| {
            let listed = |stored: &Stored| {
                let (cell, seed) = (&stored.cell, stored.cell.scenario.seed);
                let key = cell.key(&stored.program);
                (Listed { axes: cell.axes.clone(), seed, key }, stored.clone())
            };
            let runs: Vec<_> = self.stored.iter().map(listed).collect();
            charts(&runs, &Choice::default())
        });
        let drawn = drawn.map_err(|error| raised(py, error))?;
        Ok(drawn.iter().map(|chart| svg(chart, true)).collect())
    }
}

/// Default number of simulations at a time.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a task of a sweep on this machine; returns what the sweep stores.
#[pyfunction]
pub fn perform_task(py: Python<'_>, task: &str) -> PyResult<String> {
    let mut watch = Watch::new(None);
    let stop = watch.stop();
    let done = py.detach(|| task::perform_task(task, &stop, &mut |done| watch.tell(done, "")));
    watch.end(py, done)
}
