//! The last value of a run's axis that passes: the highest load that is sustained, the most RPCs
//! outstanding that still fill a link.

use homa_sim::scenario::Traffic;

use super::metric::{response_rate, with_headers};
use super::tolerance::Measured;
use crate::store::Stored;

/// The condition to pass, and the number that is read from the last run that passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AtLimit {
    /// Loads that do not diverge: what the receivers' links carry.
    Utilisation,
    /// The same in application bytes.
    Goodput,
    /// Closed loops whose responses take at least this many Gbit/s with headers: RPCs outstanding.
    Concurrent(f64),
}

impl AtLimit {
    /// True when an outcome is below the limit.
    pub fn passes(self, stored: &Stored) -> bool {
        match self {
            Self::Utilisation | Self::Goodput => !stored.outcome.backlog.diverges,
            Self::Concurrent(least) => {
                response_rate(stored, with_headers).is_some_and(|measured| measured.value >= least)
            }
        }
    }

    /// False when an outcome does not show whether it passes: its traffic was too short.
    fn is_known(self, stored: &Stored) -> bool {
        let backlog = &stored.outcome.backlog;
        match self {
            Self::Utilisation | Self::Goodput => {
                backlog.needs_seconds.is_none() || backlog.is_sustained().is_some()
            }
            Self::Concurrent(_) => true,
        }
    }

    /// Position of an outcome along the axis.
    fn place(self, stored: &Stored) -> f64 {
        match (self, &stored.cell.scenario.traffic) {
            (Self::Concurrent(_), Traffic::Incast { concurrent, .. }) => f64::from(*concurrent),
            _ => stored.outcome.load,
        }
    }

    /// The number that is read from an outcome below the limit, and from the first above it.
    fn read(self, stored: &Stored) -> [f64; 2] {
        let outcome = &stored.outcome;
        match self {
            Self::Utilisation => [outcome.utilisation, outcome.loads.paper].map(|all| all * 100.0),
            // As published: of messages that arrive in part, too.
            Self::Goodput => [outcome.utilisation, outcome.loads.paper]
                .map(|all| all * 100.0 * outcome.loads.payload / outcome.loads.paper),
            Self::Concurrent(_) => [self.place(stored); 2],
        }
    }

    /// Reads it at the last value of the axis that passes; `None` without a value, or if a run was
    /// too short to tell. The interval extends to the first value that fails: for loads to the
    /// offered load there, because the carried load depends on how long the backlog has grown. If
    /// even the first value fails, the interval has no lower end.
    pub fn of(self, along: &[&Stored]) -> Option<Measured> {
        if !along.iter().all(|stored| self.is_known(stored)) {
            return None;
        }
        let mut sorted = along.to_vec();
        sorted.sort_by(|a, b| self.place(a).total_cmp(&self.place(b)));
        let passing = sorted.iter().take_while(|stored| self.passes(stored)).count();
        let above = sorted.get(passing).map(|stored| self.read(stored)[1]);
        match passing.checked_sub(1) {
            Some(last) => {
                let last = self.read(sorted[last])[0];
                Some(Measured::between(last, [Some(last), above]))
            }
            None => above.map(|above| Measured::between(above, [None, Some(above)])),
        }
    }
}
