//! Warnings that a reader of a result must not miss, as sentences: deadlocks, pauses that last too
//! long, frames lost by lossless switches, messages that never began, and settings that are
//! probably mistakes.

use super::outcome::{Pauses, ScenarioOutcome};

/// A longer pause is a storm, because no receiver is slow for 100 ms.
const STORM_US: f64 = 100_000.0;

impl ScenarioOutcome {
    /// The warnings of this run, the worst first. Empty if there are none.
    pub fn alarms(&self) -> Vec<String> {
        let pauses = self.pauses.iter();
        let mut told: Vec<String> = pauses.filter_map(Pauses::alarm).collect();
        let lost = self.drops.overflow;
        if self.pauses.is_some() && lost > 0 {
            told.push(format!(
                "WARNING: {lost} frames found full buffers although switches pause their senders: \
                 pauses come too late for what was sent (`options.switch.pause` \
                 or `headroom`, `options.switch.priorities`)"
            ));
        }
        if let Some(all) = self.completion.filter(|all| all.arrived < all.messages) {
            told.push(format!(
                "WARNING: {} of {} messages that wait for each other did not arrive: those behind \
                 a message that failed, was lost, or took longer than `stop.drain_limit` do not \
                 begin, and none begins after the end of traffic (under loss, `traffic.exchange` \
                 of a file may be \"echo\", whose requests are repeated)",
                all.messages - all.arrived,
                all.messages
            ));
        }
        told.extend(self.warnings.iter().map(|warning| format!("WARNING: {warning}")));
        told
    }
}

impl Pauses {
    /// Reports a deadlock, otherwise a pause storm, otherwise nothing.
    fn alarm(&self) -> Option<String> {
        if let Some(first) = self.deadlock.first() {
            let circle = self.deadlock.join(" -> ");
            return Some(format!("DEADLOCK: each waits for the next: {circle} -> {first}"));
        }
        (self.longest_us > STORM_US).then(|| {
            "PAUSE STORM: a port was paused for longer than 100 ms; look for a slow link or \
             receiver behind it"
                .to_owned()
        })
    }
}
