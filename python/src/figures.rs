//! Pages of folders of results, and published figures simulated again.

use std::path::PathBuf;

use homa_lab::chart::svg;
use homa_lab::error::LabError;
use homa_lab::report::{Choice, Quantity, write};
use homa_lab::repro::plan::ReproPlan;
use homa_lab::repro::{How, Numbers, Reproduction, plans, run, select};
use homa_lab::store::Store;
use homa_lab::sweep::Options;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::raised;
use crate::sweep::cores;
use crate::watch::Watch;

/// Writes the pages of a folder of results; returns their paths, `index.html` first.
#[pyfunction]
pub fn report(
    py: Python<'_>,
    folder: PathBuf,
    metrics: Vec<String>,
    x: Option<String>,
    only: Vec<(String, String)>,
) -> PyResult<Vec<PathBuf>> {
    let metrics =
        metrics.iter().map(|metric| metric.parse::<Quantity>().map_err(|e| e.to_string()));
    let metrics = metrics.collect::<Result<_, String>>().map_err(PyValueError::new_err)?;
    let choice = Choice { metrics, x, only };
    py.detach(|| write(&folder, &choice)).map_err(|error| raised(py, error))
}

/// A figure as JSON.
#[derive(Serialize)]
struct Figure<'a> {
    title: &'a str,
    source: &'a str,
    failed: bool,
    #[serde(flatten)]
    numbers: Numbers<'a>,
    charts: Vec<String>,
}

/// Simulates figures again, in a folder in which a stopped run is resumed; a list as JSON.
#[pyfunction]
#[pyo3(signature = (ids, quick, compared, folder, threads=None, progress=None))]
pub fn repro(
    py: Python<'_>,
    ids: Vec<String>,
    quick: bool,
    compared: bool,
    folder: PathBuf,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut watch = Watch::new(progress);
    let stop = watch.stop();
    let options = Options { keep_going: true, stop, ..Options::on(threads.unwrap_or_else(cores)) };
    let done = py.detach(|| {
        let how = How { ids, quick, compared };
        let mut plans = select(&how.ids)?;
        if compared {
            plans.iter_mut().for_each(ReproPlan::keep_compared);
        }
        let store = Store::create(&folder)?;
        let done = run(&plans, &how, &store, &options, &mut |progress| {
            watch.tell(progress.done, &progress.label);
        })?;
        write(&folder, &Choice::default())?;
        Ok(done)
    });
    let done: Vec<Reproduction> = watch.end(py, done)?;
    json(&done.iter().map(figure).collect::<Vec<_>>())
}

fn figure(one: &Reproduction) -> Figure<'_> {
    Figure {
        title: &one.title,
        source: &one.source,
        failed: one.failed(),
        numbers: one.numbers(),
        charts: one.charts.iter().map(|chart| svg(chart, true)).collect(),
    }
}

/// The figures that can be simulated again: id and title.
#[pyfunction]
pub fn repro_list(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    let all = plans().map_err(|fault| raised(py, LabError::Plan(fault)))?;
    Ok(all.into_iter().map(|plan| (plan.id, plan.title)).collect())
}

fn json(document: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(document).map_err(|error| PyValueError::new_err(error.to_string()))
}
