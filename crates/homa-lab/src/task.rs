//! One simulation as a text that another process or machine can run: the unit of external executors
//! (Dask, Ray, MPI, a pool of processes).
//!
//! A task has the simulation and the tables it reads, so that a worker needs no files of the plan's
//! author. Its result returns as text and is stored under the task's key beside the plan. A worker
//! with a different simulator refuses the task, because its result would be stored under our
//! version.
//!
//! Left out: the transport of tasks, their order, and the recovery of lost ones.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use homa_sim::scenario::Scenario;
use homa_workload::text;
use serde::{Deserialize, Serialize};

use crate::cell::{Cell, named_files, path_of};
use crate::error::LabError;
use crate::store::{Store, Stored, model};
use crate::sweep::{Options, pending, perform};

/// The largest tables that tasks carry, bytes; longer ones must be on the worker under the same
/// path.
const MAX_CARRIED: u64 = 4_000_000;

/// A simulation that has no result yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// Name of its result.
    pub key: String,
    /// Name for people.
    pub label: String,
    /// Share of the work of all, 0 to 1, by the packets expected.
    pub share: f64,
    /// What [`perform_task`] takes.
    pub task: String,
}

#[derive(Serialize, Deserialize)]
struct Task {
    program: String,
    cell: Cell,
    tables: Vec<Carried>,
}

/// A file that the scenario names.
#[derive(Serialize, Deserialize)]
struct Carried {
    path: String,
    /// Absent if it is too long to be carried.
    text: Option<String>,
}

/// The tasks of what has no result in the store, the heaviest first.
pub fn tasks(cells: &[Cell], store: &Store) -> Result<Vec<Pending>, LabError> {
    let (keyed, _) = pending(cells, store, &Options::on(1));
    let total: f64 = keyed.iter().map(|(_, cell)| cell.weight()).sum();
    let task = |(key, cell): (String, &Cell)| {
        let tables = cell.inputs().iter().map(|path| carried(path)).collect::<Result<_, _>>()?;
        let task = Task { program: model().to_owned(), cell: cell.clone(), tables };
        let task = serde_json::to_string(&task).map_err(|error| garbled(&error))?;
        Ok(Pending { key, label: cell.label(), share: cell.weight() / total, task })
    };
    keyed.into_iter().map(task).collect()
}

fn garbled(error: &serde_json::Error) -> LabError {
    LabError::Task(format!("no task or result of this version of homa: {error}"))
}

fn carried(path: &Path) -> Result<Carried, LabError> {
    let failed = |error| LabError::file(path, error);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let read = || text::read(path).map_err(failed);
    let text = if bytes <= MAX_CARRIED { Some(read()?) } else { None };
    Ok(Carried { path: path.display().to_string(), text })
}

/// Runs a task until its end, or until `stop` is set; `show` receives the share done. Returns the
/// input of [`store_result`].
pub fn perform_task(
    task: &str,
    stop: &AtomicBool,
    show: &mut dyn FnMut(f64),
) -> Result<String, LabError> {
    let Task { program, cell, tables } =
        serde_json::from_str(task).map_err(|error| garbled(&error))?;
    if program != model() {
        let own = model();
        return Err(LabError::Task(format!(
            "this worker's simulator is {own}, the sweep's is {program}: install the same version \
             of homa on both"
        )));
    }
    let unpacked = Unpacked::new(&tables)?;
    let here = Cell { scenario: unpacked.applied(&cell.scenario), axes: cell.axes.clone() };
    let mut stored = perform((&here, 1), &program, stop, show)?;
    // Tables have the names that they have beside the plan.
    if let Some(name) = unpacked.original(&stored.outcome.workload) {
        stored.outcome.workload = name;
    }
    stored.cell = cell;
    serde_json::to_string(&stored).map_err(|error| garbled(&error))
}

/// Stores what came back of a task.
pub fn store_result(store: &Store, key: &str, result: &str) -> Result<(), LabError> {
    let stored: Stored = serde_json::from_str(result).map_err(|error| garbled(&error))?;
    if stored.cell.key(&stored.program) != key {
        return Err(LabError::Task(format!("what came back is no result of the task {key}")));
    }
    store.write(key, &stored)
}

/// Carried tables as files of this machine, for as long as the value lives.
struct Unpacked {
    folder: Option<PathBuf>,
    /// Original and own path.
    paths: Vec<(String, String)>,
}

impl Unpacked {
    /// Writes those that are not here with the same content.
    fn new(tables: &[Carried]) -> Result<Self, LabError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut unpacked = Self { folder: None, paths: Vec::new() };
        for (number, Carried { path, text }) in tables.iter().enumerate() {
            let Some(text) = text else { continue };
            if text::read(path.as_ref()).is_ok_and(|own| own == *text) {
                continue;
            }
            let folder = unpacked.folder.get_or_insert_with(|| {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                std::env::temp_dir().join(format!("homa-task-{}-{count}", std::process::id()))
            });
            std::fs::create_dir_all(&*folder).map_err(|error| LabError::file(folder, error))?;
            let own = folder.join(format!("{number}.csv"));
            std::fs::write(&own, text).map_err(|error| LabError::file(&own, error))?;
            unpacked.paths.push((path.clone(), own.display().to_string()));
        }
        Ok(unpacked)
    }

    /// A scenario that names the own files.
    fn applied(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        for named in named_files(&mut scenario) {
            let path = path_of(named);
            if let Some((_, own)) = self.paths.iter().find(|(original, _)| original == path) {
                let words = named.len() - path.len();
                named.replace_range(words.., own);
            }
        }
        scenario
    }

    /// What names an own file, with the path of the original.
    fn original(&self, named: &str) -> Option<String> {
        let own = path_of(named);
        let (original, _) = self.paths.iter().find(|(_, path)| path == own)?;
        Some(format!("{}{original}", &named[..named.len() - own.len()]))
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // It is a temporary file, which other programs may have removed.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
