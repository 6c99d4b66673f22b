//! The simulator's forecast of a measured row (`--twin`), as it stands in the result.

use serde::Serialize;

use crate::commands::bench::units::{kilobytes, time};

/// The forecast of one row. Times are microseconds, of short RPCs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Twin {
    /// Whether the hosts' time comes from idle round trips; else it is assumed.
    pub calibrated: bool,
    /// Time of a message in the software of both hosts together.
    pub host_us: f64,
    /// Short RPCs that were simulated.
    pub count: usize,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// (Forecast - measurement) / measurement of the median; absent without a measurement.
    pub p50_error: Option<f64>,
    /// The same of the 99th percentile.
    pub p99_error: Option<f64>,
    /// The same against RPCs that met no pause of the machine, which the forecast knows nothing of.
    pub p99_undisturbed_error: Option<f64>,
    /// The same RPCs under clairvoyant SRPT.
    pub bound: Bound,
    /// Frames that found a full buffer.
    pub overflow: u64,
    /// Wire bytes that a frame arriving at a port to a host found waiting, in the mean.
    pub mean_queue_bytes: f64,
    /// The most.
    pub max_queue_bytes: u64,
    /// Equal when the same packets moved at the same times.
    pub trace_hash: String,
}

/// The single-bottleneck bound of [`homa_sim::clairvoyant`]: every receiver's link by itself,
/// shortest remaining first, preemptive, no control packets, uplinks never busy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Median latency, us.
    pub p50_us: Option<f64>,
    /// 99th percentile, us.
    pub p99_us: Option<f64>,
}

impl Twin {
    /// The forecast compared with a measured median and 99th percentile, and with the 99th
    /// percentile of the RPCs that met no pause of the machine.
    pub fn beside(
        mut self,
        p50_us: Option<f64>,
        p99_us: Option<f64>,
        undisturbed_us: Option<f64>,
    ) -> Self {
        let error = |forecast: Option<f64>, measured: Option<f64>| {
            Some(forecast? / measured.filter(|&us| us > 0.0)? - 1.0)
        };
        self.p50_error = error(self.p50_us, p50_us);
        self.p99_error = error(self.p99_us, p99_us);
        self.p99_undisturbed_error = error(self.p99_us, undisturbed_us);
        self
    }

    /// For people, below its row.
    pub fn lines(&self) -> [String; 3] {
        let with_error = |us: Option<f64>, error: Option<f64>| match error {
            Some(error) => format!("{} ({:+.0} %)", time(us), error * 100.0),
            None => time(us),
        };
        let undisturbed = self.p99_undisturbed_error.map_or(String::new(), |error| {
            format!(" ({:+.0} % of those that met no pause)", error * 100.0)
        });
        let from = if self.calibrated { "from the idle rows" } else { "assumed" };
        [
            format!(
                "    twin: p50 {}, p99 {}{undisturbed}, simulated; hosts take {:.1} us a message \
                 ({from})",
                with_error(self.p50_us, self.p50_error),
                with_error(self.p99_us, self.p99_error),
                self.host_us,
            ),
            format!(
                "    twin: arriving frames find {} at ports to hosts, at most {}; {} dropped",
                kilobytes(self.mean_queue_bytes),
                kilobytes(self.max_queue_bytes as f64),
                self.overflow,
            ),
            format!(
                "    bound: p50 {}, p99 {} (clairvoyant preemptive SRPT on each receiver's link \
                 alone)",
                time(self.bound.p50_us),
                time(self.bound.p99_us),
            ),
        ]
    }
}
