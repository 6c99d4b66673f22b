//! From a description to its outcome.

use super::{Outcome, Scenario, ScenarioError};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Between 0 and 1, by the stop rule.
    pub done: f64,
    /// Simulated seconds so far.
    pub simulated_seconds: f64,
    /// Messages submitted so far.
    pub submitted: u64,
    /// Measured messages that arrived so far.
    pub delivered: u64,
    /// Packet-hops so far.
    pub packet_hops: u64,
}

/// Runs a scenario; calls `progress` from time to time.
pub fn run(
    scenario: &Scenario,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, ScenarioError> {
    let _ = progress;
    Err(ScenarioError::Unsupported { what: format!("scheme {} without a fabric", scenario.scheme) })
}
