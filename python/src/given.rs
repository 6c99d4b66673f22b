//! What a caller wants simulated, as the JSON that `package/homa/_given.py` makes of it: a plan's
//! file or its tables, and keywords that change it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use homa_lab::changes::Changes;
use homa_lab::document::Document;
use homa_lab::error::{LabError, PlanFault};
use homa_lab::plan::Plan;
use serde::Deserialize;
use toml::Value;

use crate::errors::DICTIONARY;

/// See the module's description. Keys without a value are left out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The bytes of a path.
    file: Option<Vec<u8>>,
    tables: Option<toml::Table>,
    scheme: Option<String>,
    workload: Option<String>,
    load: Option<f64>,
    messages: Option<u64>,
    seed: Option<u64>,
    flows: Option<String>,
    #[serde(default)]
    set: Vec<(String, Value)>,
}

impl Given {
    /// Understands the JSON.
    pub fn read(json: &str) -> Result<Self, LabError> {
        serde_json::from_str(json).map_err(|error| fault(error.to_string()))
    }

    /// The plan, which may be of any number of simulations.
    pub fn plan(self) -> Result<Plan, LabError> {
        let document = self.document()?;
        self.changes().plan(document.as_ref())
    }

    /// The plan, which must be of one.
    pub fn single(self) -> Result<Plan, LabError> {
        let document = self.document()?;
        self.changes().single(document.as_ref()).map_err(|error| match error {
            LabError::Several { cells } => {
                fault(format!("has {cells} simulations: homa.sweep runs them"))
            }
            error => error,
        })
    }

    fn document(&self) -> Result<Option<Document>, LabError> {
        match (&self.file, &self.tables) {
            (Some(file), _) => Document::read(Path::new(OsStr::from_bytes(file))).map(Some),
            (None, Some(tables)) => {
                let text = toml::to_string(tables).map_err(|error| fault(error.to_string()))?;
                Ok(Some(Document::new(DICTIONARY, text)))
            }
            (None, None) => Ok(None),
        }
    }

    fn changes(self) -> Changes {
        let Self { scheme, workload, load, messages, seed, flows, set, .. } = self;
        Changes { scheme, workload, load, messages, seed, flows, set }
    }
}

/// A plan that no key of it is to blame for.
fn fault(message: String) -> LabError {
    let (file, key) = (DICTIONARY.to_owned(), String::new());
    LabError::Plan(PlanFault { file, line: 0, key, message })
}
