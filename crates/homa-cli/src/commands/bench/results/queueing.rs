//! Queueing at the switch's ports to hosts while a row was measured, as counted by the switch.

use homa_testbed::{Queueing as Seen, RunReport};
use serde::Serialize;

use crate::commands::bench::units::{kilobytes, time};

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Queueing {
    /// How long a frame of the lowest priority would have waited, looked at every millisecond:
    /// mean.
    pub probe_mean_us: Option<f64>,
    /// Median.
    pub probe_p50_us: Option<f64>,
    /// 99th percentile.
    pub probe_p99_us: Option<f64>,
    /// Wire bytes that an arriving frame found waiting, in the mean.
    pub mean_bytes: Option<f64>,
    /// The most.
    pub max_bytes: u32,
    /// Frames that the switch marked.
    pub frames_marked: u64,
}

impl Queueing {
    /// Of a run, at the ports to these hosts.
    pub fn of_run(run: &RunReport, hosts: std::ops::Range<usize>) -> Self {
        let ports = run.switch.queueing.get(hosts).unwrap_or_default();
        let seen = Seen::merged(ports);
        let probes = seen.probes_us();
        let tenth = |value: f64| (value * 10.0).round() / 10.0;
        let probe = |index: usize| probes.map(|probes| tenth(probes[index]));
        Self {
            probe_mean_us: probe(0),
            probe_p50_us: probe(1),
            probe_p99_us: probe(2),
            mean_bytes: seen.mean_bytes().map(f64::round),
            max_bytes: seen.max_bytes(),
            frames_marked: run.switch.marked,
        }
    }

    /// For people, below its row.
    pub fn line(&self) -> String {
        format!(
            "    ports to hosts: probes wait {} in the mean, {} at p99; arriving frames find {}, \
             at most {}; {} frames marked",
            time(self.probe_mean_us),
            time(self.probe_p99_us),
            kilobytes(self.mean_bytes.unwrap_or(0.0)),
            kilobytes(f64::from(self.max_bytes)),
            self.frames_marked,
        )
    }
}
