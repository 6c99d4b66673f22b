//! Errors of the laboratory. Each says how to mend it.

use std::path::{Path, PathBuf};

use homa_sim::scenario::ScenarioError;
use homa_workload::nearest::{choice, choices};

/// Why a plan cannot be read, run or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A plan says something that cannot be understood.
    #[error("{0}")]
    Plan(#[from] PlanFault),
    /// A file or folder is not as needed.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A folder for results holds a file that they would replace and that is not theirs.
    #[error("{} is no result of ours and would be overwritten", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// A stored result is damaged or no result at all.
    #[error("{}: {reason}", path.display())]
    Result {
        /// Its path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A simulation refused its scenario.
    #[error("{label}: {source}")]
    Scenario {
        /// Which simulation.
        label: String,
        /// Why.
        source: ScenarioError,
    },
    /// A plan of several simulations in place of one.
    #[error("the plan has {cells} simulations")]
    Several {
        /// How many.
        cells: usize,
    },
    /// A task cannot be run by this program, or its result is not one.
    #[error("{0}")]
    Task(String),
    /// Stopped on request; finished results are kept.
    #[error("stopped before its end")]
    Stopped,
    /// The selection from a folder of results cannot be drawn.
    #[error("{0}")]
    Choice(String),
    /// An argument names nothing there is.
    #[error("unknown {what} `{name}`; {}", choice(name, known.iter().map(String::as_str)))]
    Unknown {
        /// The kind of the thing.
        what: &'static str,
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
}

impl LabError {
    /// A failed access to `path`.
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// A damaged result at `path`.
    pub fn result(path: &Path, reason: impl ToString) -> Self {
        Self::Result { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// A mistake in a plan: its place, its key, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct PlanFault {
    /// The plan's file, `--set` for the command line, or `the scenario` if there is no plan.
    pub file: String,
    /// Line from 1; 0 when no single line is at fault.
    pub line: usize,
    /// The key at fault, as a dotted path from the top of the plan; empty for syntax errors.
    pub key: String,
    /// The mistake and the allowed values.
    pub message: String,
}

impl PlanFault {
    /// A name that is none of those known, given for `key` of a plan without lines.
    pub fn unknown(file: &str, key: &str, (name, known): (&str, &[String])) -> Self {
        let choices = choices(name, known.iter().map(String::as_str));
        let message = format!("unknown value `{name}`; {choices}");
        Self { file: file.to_owned(), line: 0, key: key.to_owned(), message }
    }

    /// The values or keys that the message lists as allowed; empty if it does not list any.
    pub fn allowed(&self) -> Vec<&str> {
        let listed = self.message.split_once("allowed: ").map_or("", |(_, after)| after);
        // What follows, such as the simulation it happened in, is in parentheses.
        let listed = listed.split(" (").next().unwrap_or_default();
        listed
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// The message for people: of a name with a near one, without the list of all.
    pub fn said(&self) -> String {
        let Some((slip, listed)) = self.message.split_once("? allowed: ") else {
            return self.message.clone();
        };
        let after = listed.find(" (").map_or("", |at| &listed[at..]);
        format!("{slip}?{after}")
    }

    fn text(&self) -> String {
        let message = short_numbers(&self.said());
        let place = match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}", self.file),
        };
        match self.key.as_str() {
            "" => format!("{place}: {message}"),
            key if self.file == "--set" => format!("--set {key}: {message}"),
            // An option that has a key.
            _ if self.file.starts_with("--") => format!("{place}: {message}"),
            key => format!("{place}: `{key}`: {message}"),
        }
    }
}

/// Digits shown of a number that has hundreds.
const DIGITS: usize = 40;

/// The text with numbers of more than 40 digits cut short: `10000…(300 digits)`.
pub fn short_numbers(text: &str) -> String {
    let (mut short, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[start..];
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        short += &rest[..start];
        match end > DIGITS {
            true => short += &format!("{}…({end} digits)", &number[..5]),
            false => short += &number[..end],
        }
        rest = &number[end..];
    }
    short + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_values_are_those_that_the_message_lists() {
        let fault = |message: &str| PlanFault {
            file: "plan.toml".into(),
            line: 1,
            key: "load.basis".into(),
            message: message.into(),
        };
        let one = fault("unknown value `bits`; allowed: `paper`, `wire`, `payload`");
        assert_eq!(one.allowed(), ["paper", "wire", "payload"]);
        let one = fault("unknown scheme `swift`; allowed: homa, tcp (in scheme=swift seed=1)");
        assert_eq!(one.allowed(), ["homa", "tcp"]);
        assert!(fault("must be above 0").allowed().is_empty());
    }

    #[test]
    fn a_slip_is_told_the_near_name_and_another_name_all() {
        let known = ["homa", "tcp"].map(str::to_owned);
        let near = PlanFault::unknown("plan.toml", "scheme", ("hama", &known));
        assert_eq!(
            near.to_string(),
            "plan.toml: `scheme`: unknown value `hama`; did you mean `homa`?"
        );
        assert_eq!(near.allowed(), ["homa", "tcp"]);
        let message = format!("{} (in scheme=hama)", near.message);
        let inside = PlanFault { message, ..near };
        assert!(inside.to_string().ends_with("did you mean `homa`? (in scheme=hama)"), "{inside}");
        let far = PlanFault::unknown("plan.toml", "scheme", ("swift", &known));
        assert!(far.to_string().ends_with("unknown value `swift`; allowed: homa, tcp"), "{far}");
    }

    #[test]
    fn a_number_of_hundreds_of_digits_is_cut_short_and_others_stay() {
        let long = "9".repeat(300);
        assert_eq!(short_numbers(&format!("`{long}.0` µs")), "`99999…(300 digits).0` µs");
        for text in ["", "load 0.8", "seed=9223372036854775807", "no number"] {
            assert_eq!(short_numbers(text), text);
        }
    }
}
