//! Scenarios that cannot be run, and what to change.

use std::borrow::Cow;
use std::fmt;

use homa_workload::nearest::choices;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There is no such scheme.
    UnknownScheme {
        /// Path of the field that names it: `scheme` or `beside.scheme`.
        field: &'static str,
        /// The name that the plan gives.
        name: String,
        /// The existing names.
        known: Vec<&'static str>,
    },
    /// A field has a value that cannot be simulated.
    Field {
        /// Path of the field, as a plan writes it.
        field: Cow<'static, str>,
        /// What it must satisfy, after "must".
        must: String,
    },
    /// A field does not go with the rest of the scenario.
    Unfit {
        /// Path of the field, as a plan writes it.
        field: Cow<'static, str>,
        /// Why, and what to do: a sentence that does not name the field again.
        why: String,
    },
    /// A file cannot be read or understood.
    File {
        /// Path of the file.
        path: String,
        /// The reason, with the line in the file.
        reason: String,
    },
    /// The scheme or the engine does not support this.
    Unsupported {
        /// The unsupported feature.
        what: String,
    },
    /// The caller stopped the run; the scenario is valid.
    Stopped,
}

impl ScenarioError {
    /// A field whose value is invalid.
    pub fn field(field: &'static str, must: impl Into<String>) -> Self {
        Self::Field { field: field.into(), must: must.into() }
    }

    /// A field that does not go with the rest, and why.
    pub fn unfit(field: &'static str, why: impl Into<String>) -> Self {
        Self::Unfit { field: field.into(), why: why.into() }
    }

    /// The invalid field, as a plan writes it; several of one table as `load.a, b and c`. `None` if
    /// the error does not concern a field.
    pub fn at(&self) -> Option<&str> {
        match self {
            Self::UnknownScheme { field, .. } => Some(field),
            Self::Field { field, .. } | Self::Unfit { field, .. } => Some(field),
            Self::File { .. } | Self::Unsupported { .. } | Self::Stopped => None,
        }
    }

    /// The reason, for a message that has already named the field.
    pub fn reason(&self) -> String {
        match self {
            Self::UnknownScheme { name, known, .. } => {
                format!("unknown scheme `{name}`; {}", choices(name, known.iter().copied()))
            }
            Self::Field { must, .. } => format!("must {must}"),
            Self::Unfit { why, .. } => why.clone(),
            Self::File { path, reason } => format!("{path}: {reason}"),
            Self::Unsupported { what } => format!("cannot be simulated: {what}"),
            Self::Stopped => "stopped before its end".to_owned(),
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason();
        match self {
            Self::Field { field, .. } => write!(f, "`{field}` {reason}"),
            Self::Unfit { field, .. } => write!(f, "`{field}`: {reason}"),
            _ => f.write_str(&reason),
        }
    }
}

impl std::error::Error for ScenarioError {}
