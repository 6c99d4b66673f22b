//! Where results lie: one file per simulation, named by what decides it, and the list of what a
//! plan consists of.
//!
//! | path | holds |
//! |---|---|
//! | `plan.toml` | the resolved plan: running it again gives the same results |
//! | `repro.toml` | in its place, of a reproduction: the command, and what it simulated |
//! | `manifest.json` | title, version, program, and each simulation's name, seed and key |
//! | `cells/KEY.json` | the simulation and its outcome |
//! | `summary.csv`, `slowdown.csv`, `.parquet` | all outcomes as tables, once all are there |
//! | `ledger.csv`, `.parquet` | where messages' time went, of those with `measures.ledger` |
//! | `checks.json` | the verdicts of a reproduction |
//!
//! A file is complete or absent: it is written beside its place and renamed. So a run may be
//! interrupted at any time and resumed, and folders of several machines are merged by copying.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use homa_sim::scenario::ScenarioOutcome;
use homa_workload::text;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::embedded::MODEL;
use crate::error::LabError;

/// The version in results and reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The resolved plan in a folder of results.
pub const PLAN_FILE: &str = "plan.toml";

/// The record of a reproduction in its folder.
pub const REPRO_FILE: &str = "repro.toml";

/// Other files that results write beside `cells`; a folder with any other file is not a folder of
/// results.
const BESIDE: [&str; 6] =
    [PLAN_FILE, REPRO_FILE, "manifest.json", "summary.csv", "checks.json", "index.html"];

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// The result of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Version of this software.
    pub version: String,
    /// Identity of the simulator, as [`model`] gives it.
    pub program: String,
    /// The simulation.
    pub cell: Cell,
    /// What came out.
    pub outcome: ScenarioOutcome,
}

/// What a folder of results is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Title of the plan.
    pub title: String,
    /// Version of this software.
    pub version: String,
    /// Identity of the simulator.
    pub program: String,
    /// The simulations of the plan, in its order.
    pub cells: Vec<Listed>,
}

/// A simulation in a [`Manifest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What sets it apart.
    pub axes: Vec<(String, String)>,
    /// Its seed.
    pub seed: u64,
    /// Name of its file.
    pub key: String,
}

impl Store {
    /// Opens a folder, making it when it is not there. One that is no folder of results is refused
    /// when it holds a file that results would replace.
    pub fn create(root: &Path) -> Result<Self, LabError> {
        let cells = root.join("cells");
        if !cells.is_dir() {
            let theirs = BESIDE.iter().map(|name| root.join(name)).find(|path| path.exists());
            if let Some(path) = theirs {
                return Err(LabError::Taken { path });
            }
        }
        std::fs::create_dir_all(&cells).map_err(|error| LabError::file(&cells, error))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Opens a folder that is there.
    pub fn open(root: &Path) -> Result<Self, LabError> {
        let cells = root.join("cells");
        std::fs::read_dir(&cells).map_err(|error| LabError::file(&cells, error))?;
        Ok(Self { root: root.to_owned() })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True when the simulation of that key has a result.
    pub fn has(&self, key: &str) -> bool {
        self.cell_path(key).is_file()
    }

    /// Whether the file under a key is readable and holds the result of that simulation by that
    /// program.
    pub fn fits(&self, key: &str, cell: &Cell, program: &str) -> bool {
        let stored = self.read(key);
        stored.is_ok_and(|it| it.program == program && it.cell.scenario == cell.scenario)
    }

    /// The result of the simulation of that key.
    pub fn read(&self, key: &str) -> Result<Stored, LabError> {
        read_json(&self.cell_path(key))
    }

    /// Stores a result.
    pub fn write(&self, key: &str, stored: &Stored) -> Result<(), LabError> {
        write_json(&self.cell_path(key), stored)
    }

    /// What the folder is about.
    pub fn manifest(&self) -> Result<Manifest, LabError> {
        read_json(&self.root.join("manifest.json"))
    }

    /// Says what the folder is about; `text` is of the file `name`, [`PLAN_FILE`] or
    /// [`REPRO_FILE`].
    pub fn describe(&self, manifest: &Manifest, name: &str, text: &str) -> Result<(), LabError> {
        write_atomically(&self.root.join(name), text.as_bytes())?;
        write_json(&self.root.join("manifest.json"), manifest)
    }

    fn cell_path(&self, key: &str) -> PathBuf {
        self.root.join("cells").join(format!("{key}.json"))
    }
}

impl Stored {
    /// What a program of this version made of a simulation.
    pub fn new(cell: &Cell, program: &str, outcome: ScenarioOutcome) -> Self {
        let (version, program) = (VERSION.to_owned(), program.to_owned());
        Self { version, program, cell: cell.clone(), outcome }
    }

    /// Alarms that every reader of the result must see, with the name of the simulation in lists.
    pub fn alarms(&self) -> impl Iterator<Item = String> {
        let alarms = self.outcome.alarms().into_iter();
        alarms.map(|alarm| format!("{}: {alarm}", self.cell.label()))
    }
}

impl Manifest {
    /// Of a plan's simulations, run by the program of that identity.
    pub fn new(title: &str, program: &str, cells: &[Cell]) -> Self {
        let listed = cells.iter().map(|cell| Listed {
            axes: cell.axes.clone(),
            seed: cell.scenario.seed,
            key: cell.key(program),
        });
        Self {
            title: title.to_owned(),
            version: VERSION.to_owned(),
            program: program.to_owned(),
            cells: listed.collect(),
        }
    }
}

/// The simulator by its sources (homa-proto, homa-sim, homa-workload): results of another model are
/// not taken for its own, and a change of what only shows them runs nothing again.
pub fn model() -> &'static str {
    MODEL
}

/// Reads a document.
pub fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, LabError> {
    let text = text::read(path).map_err(|error| LabError::file(path, error))?;
    serde_json::from_str(&text).map_err(|error| LabError::result(path, error))
}

/// Writes a document, complete or not at all.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_string_pretty(document);
    let text = text.map_err(|error| LabError::result(path, error))?;
    write_atomically(path, (text + "\n").as_bytes())
}

/// Writes a file, complete or not at all.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Machines may write the same file at once, and in containers every process is the first.
    let unique = RandomState::new().build_hasher().finish();
    let beside = path.with_file_name(format!(".{name}.{unique:016x}"));
    let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // A partial file is useless, and the disk may be full.
        let _ = std::fs::remove_file(&beside);
        LabError::file(path, error)
    })
}
