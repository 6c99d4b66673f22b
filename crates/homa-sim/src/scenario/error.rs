//! Scenarios that cannot be run, and what to change.

use std::fmt;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There is no such scheme.
    UnknownScheme {
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// A field has a value that cannot be simulated.
    Field {
        /// Path of the field, as a plan writes it.
        field: &'static str,
        /// What it must satisfy.
        must: String,
    },
    /// A file cannot be read or understood.
    File {
        /// Its path.
        path: String,
        /// What is wrong, with the line.
        reason: String,
    },
    /// The scheme or the engine cannot do this (yet).
    Unsupported {
        /// What.
        what: String,
    },
    /// Nothing is wrong with it: somebody ended the run.
    Stopped,
}

impl ScenarioError {
    /// A field that must be otherwise.
    pub fn field(field: &'static str, must: impl Into<String>) -> Self {
        Self::Field { field, must: must.into() }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme { name, known } => {
                write!(f, "unknown scheme `{name}`: use one of {}", known.join(", "))
            }
            Self::Field { field, must } => write!(f, "`{field}` must {must}"),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
            Self::Unsupported { what } => write!(f, "cannot be simulated: {what}"),
            Self::Stopped => write!(f, "stopped before its end"),
        }
    }
}

impl std::error::Error for ScenarioError {}
