//! The record of a reproduction, written beside its results as `repro.toml`: the command, and each
//! simulation with every default written out. It is not a plan, so `homa sweep` refuses it.

use serde::Serialize;
use toml::Table;

use super::How;
use super::plan::Planned;
use crate::error::LabError;
use crate::store::{PLAN_FILE, REPRO_FILE, Store, VERSION};

const HEAD: &str = "# What this command simulated. It is a record, no plan for `homa sweep`: a \
                    scenario is run\n# again by `homa sim` when it stands alone, as [scenario] in \
                    a plan.\n";

#[derive(Serialize)]
struct Record<'a> {
    command: String,
    version: &'a str,
    program: &'a str,
    quick: bool,
    compared: bool,
    run: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    /// As the manifest has them: figure, run, and what varies.
    name: String,
    scheme: &'a str,
    key: String,
    scenario: Table,
}

/// The record of these simulations.
pub(super) fn record(planned: &[&Planned], how: &How, program: &str) -> Result<String, LabError> {
    let wrong = |error: toml::ser::Error| LabError::result(REPRO_FILE.as_ref(), error);
    let record = Record {
        command: how.command(),
        version: VERSION,
        program,
        quick: how.quick,
        compared: how.compared,
        run: planned
            .iter()
            .map(|planned| run(planned, program))
            .collect::<Result<_, _>>()
            .map_err(wrong)?,
    };
    Ok(HEAD.to_owned() + &toml::to_string(&record).map_err(wrong)?)
}

fn run<'a>(planned: &'a Planned, program: &str) -> Result<Run<'a>, toml::ser::Error> {
    Ok(Run {
        name: planned.cell.label(),
        scheme: &planned.variant,
        key: planned.cell.key(program),
        scenario: Table::try_from(&planned.cell.scenario)?,
    })
}

/// Removes the plan of one comment line that earlier versions wrote.
pub(super) fn forget_old(store: &Store) -> Result<(), LabError> {
    let path = store.root().join(PLAN_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.starts_with("# homa repro ") && text.lines().count() == 1 => {
            std::fs::remove_file(&path).map_err(|error| LabError::file(&path, error))
        }
        _ => Ok(()),
    }
}
