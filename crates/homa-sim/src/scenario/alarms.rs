//! What nobody who reads a result may miss, as sentences: fabrics that locked up, pauses without an
//! end in sight, frames lost where none should be, and what a scenario asks for against its sense.

use super::outcome::{Outcome, Pauses};

/// A pause that lasts as long has no other cause than a storm: no receiver is slow for so long.
const STORM_US: f64 = 100_000.0;

impl Outcome {
    /// These sentences, the worst first. Empty: there is nothing to tell.
    pub fn alarms(&self) -> Vec<String> {
        let pauses = self.pauses.iter();
        let mut told: Vec<String> = pauses.filter_map(Pauses::alarm).collect();
        let lost = self.drops.overflow;
        if self.pauses.is_some() && lost > 0 {
            told.push(format!(
                "WARNING: {lost} frames found full buffers although switches pause their senders: \
                 pauses come too late for what was sent (`options.switch.pause`, \
                 `options.switch.priorities`)"
            ));
        }
        told.extend(self.warnings.iter().map(|warning| format!("WARNING: {warning}")));
        told
    }
}

impl Pauses {
    /// A deadlock, or else a storm.
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
