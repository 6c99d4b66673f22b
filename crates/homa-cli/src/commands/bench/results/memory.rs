//! Memory of the process while a row was measured, as it stands in the result.

use homa_testbed::{RackConfig, UNNOTICED_GROWTH};
use serde::Serialize;

/// Resident memory of this process: all hosts, the switch and the records of RPCs.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// When the load began, bytes.
    pub start_bytes: u64,
    /// The most until it ended, bytes.
    pub peak_bytes: u64,
    /// Mean over the second quarter of the time in which RPCs arrive, bytes; `None`, as what
    /// follows, if the load was too short for samples.
    pub early_bytes: Option<u64>,
    /// The same over the last quarter.
    pub late_bytes: Option<u64>,
    /// Growth from the one to the other that is allowed, bytes.
    pub allowed_bytes: Option<u64>,
    /// Whether it did not grow by more.
    pub flat: Option<bool>,
    /// Frames were lost or doubled on purpose, for long enough to see that it does not grow.
    pub judged: bool,
}

impl Memory {
    /// Reduces a run on the rack.
    pub fn of_run(held: homa_testbed::Memory, rack: &RackConfig) -> Self {
        let faulty = rack.faults.loss + rack.faults.duplication > 0.0;
        Self {
            start_bytes: held.start_bytes,
            peak_bytes: held.peak_bytes,
            early_bytes: held.trend.map(|trend| trend.early_bytes),
            late_bytes: held.trend.map(|trend| trend.late_bytes),
            allowed_bytes: held.trend.map(|trend| trend.allowed_bytes()),
            flat: held.trend.map(|trend| trend.flat()),
            judged: faulty && held.trend.is_some_and(|trend| trend.is_long()),
        }
    }

    /// For people: whether it grew, and which bound decided; absent without samples.
    pub fn trend(&self) -> Option<String> {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let (early, allowed) = (mb(self.early_bytes?), self.allowed_bytes?);
        let grown = mb(self.late_bytes?) - early;
        let found = match self.flat? {
            true => String::from("flat ok"),
            false => format!("GREW {grown:.1} MB"),
        };
        let bound = match allowed > UNNOTICED_GROWTH {
            true => format!("10 %: {:.1} MB", mb(allowed)),
            false => format!("{:.1} MB", mb(allowed)),
        };
        Some(format!(
            "{found} (from {early:.1} MB in the second quarter of the load to the last {grown:+.1} \
             MB; decided by {bound}{})",
            if self.judged { "" } else { "; too short to count" }
        ))
    }
}
