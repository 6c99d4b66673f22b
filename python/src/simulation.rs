//! One simulation and what came of it.

use std::path::PathBuf;

use homa_lab::chart::svg;
use homa_lab::error::LabError;
use homa_lab::plan::Plan;
use homa_lab::report::{Choice, charts};
use homa_lab::results;
use homa_lab::store::{Listed, Store, Stored, model};
use homa_lab::sweep::keep;
use homa_sim::experiment::{Replay, run_sampled};
use homa_sim::scenario::ScenarioError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raised;
use crate::given::Given;
use crate::table::Table;
use crate::watch::Watch;

/// What came of a simulation.
#[pyclass(frozen, module = "homa._native")]
pub struct Simulation {
    stored: Stored,
    resolved: String,
    samples: Py<Table>,
}

/// Simulates the one simulation that `given` (JSON) describes; with `out`, its results are kept in
/// that folder.
#[pyfunction]
#[pyo3(signature = (given, progress=None, out=None))]
pub fn simulate(
    py: Python<'_>,
    given: &str,
    progress: Option<Py<PyAny>>,
    out: Option<PathBuf>,
) -> PyResult<Simulation> {
    let mut watch = Watch::new(progress);
    let done = py.detach(|| {
        let plan = Given::read(given)?.single()?;
        let store = out.as_deref().map(Store::create).transpose()?;
        let replay = run(&plan, &mut watch)?;
        if let Some(store) = store {
            keep(&plan, &replay.outcome, &store)?;
            homa_lab::report::write(store.root(), &Choice::default())?;
        }
        Ok((plan, replay))
    });
    let (plan, Replay { outcome, samples, slowdowns }) = watch.end(py, done)?;
    let samples = Py::new(py, Table::of_samples(&samples, slowdowns))?;
    let stored = Stored::new(&plan.cells[0], model(), outcome);
    Ok(Simulation { stored, resolved: plan.resolved, samples })
}

/// A result as pickle keeps it.
pub fn json_of(stored: &Stored) -> PyResult<String> {
    serde_json::to_string(stored).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A result that was kept.
pub fn stored_of(json: &str) -> PyResult<Stored> {
    serde_json::from_str(json).map_err(|error| {
        PyValueError::new_err(format!("no result of this version of homa: {error}"))
    })
}

fn run(plan: &Plan, watch: &mut Watch) -> Result<Replay, LabError> {
    let (cell, stop) = (&plan.cells[0], watch.stop());
    let done = run_sampled(&cell.scenario, &stop, &mut |progress| {
        watch.tell(progress.done, &format!("{} messages", progress.delivered));
    });
    done.map_err(|error| match error {
        ScenarioError::Stopped => LabError::Stopped,
        source => LabError::Scenario { label: cell.label(), source },
    })
}

#[pymethods]
impl Simulation {
    /// A simulation as pickle keeps it: its result as JSON, its plan, its messages.
    #[new]
    fn new(stored: &str, resolved: String, samples: Py<Table>) -> PyResult<Self> {
        Ok(Self { stored: stored_of(stored)?, resolved, samples })
    }

    /// What [`Simulation::new`] takes: pickle and copy call it.
    fn __getnewargs__(&self, py: Python<'_>) -> PyResult<(String, String, Py<Table>)> {
        Ok((json_of(&self.stored)?, self.resolved.clone(), self.samples.clone_ref(py)))
    }

    /// The document of `homa sim --format json`.
    fn json(&self) -> String {
        serde_json::to_string(&self.stored.outcome).unwrap_or_default()
    }

    /// The plan with every default written out.
    #[getter]
    fn plan(&self) -> &str {
        &self.resolved
    }

    /// The row of `summary.csv`.
    fn summary(&self) -> Table {
        Table::of(&results::summary(std::slice::from_ref(&self.stored)))
    }

    /// The rows of `slowdown.csv`.
    fn buckets(&self) -> Table {
        Table::of(&results::slowdown(std::slice::from_ref(&self.stored)))
    }

    /// The rows of `ledger.csv`, if one was kept.
    fn ledger(&self) -> Option<Table> {
        results::ledger(std::slice::from_ref(&self.stored)).as_ref().map(Table::of)
    }

    /// One row per measured message.
    fn samples(&self, py: Python<'_>) -> Py<Table> {
        self.samples.clone_ref(py)
    }

    /// Drawings as SVG documents.
    fn charts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let Stored { cell, program, .. } = &self.stored;
        let seed = cell.scenario.seed;
        let listed = Listed { axes: cell.axes.clone(), seed, key: cell.key(program) };
        let drawn = charts(&[(listed, self.stored.clone())], &Choice::default());
        let drawn = drawn.map_err(|error| raised(py, error))?;
        Ok(drawn.iter().map(|chart| svg(chart, true)).collect())
    }
}
