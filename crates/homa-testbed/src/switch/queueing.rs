//! Queueing at a port: the bytes that arriving frames found, and how long a frame would have waited
//! at any time.
//!
//! The probes are looks at the port every millisecond: nothing is sent, so that they delay nothing,
//! and they see what a frame of the lowest level would, the rest of the frame in service included.

use homa_sim::SimDuration;
use homa_workload::quantile::{Percentile, Sorted};

/// Most probes that are kept: a quarter of an hour of them.
const MOST: usize = 1 << 20;

/// See the module's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    frames: u64,
    found_bytes: u64,
    max_bytes: u32,
    /// Nanoseconds.
    waits: Vec<u32>,
}

impl Queueing {
    /// Records the wire bytes that an arriving frame finds waiting.
    pub(crate) fn arrives(&mut self, found: u32) {
        self.frames += 1;
        self.found_bytes += u64::from(found);
        self.max_bytes = self.max_bytes.max(found);
    }

    /// A probe would wait that long.
    pub(crate) fn probe(&mut self, wait: SimDuration) {
        if self.waits.len() < MOST {
            self.waits.push(u32::try_from(wait.0 / 1_000).unwrap_or(u32::MAX));
        }
    }

    /// Several ports as one.
    pub fn merged<'a>(ports: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for port in ports {
            all.frames += port.frames;
            all.found_bytes += port.found_bytes;
            all.max_bytes = all.max_bytes.max(port.max_bytes);
            all.waits.extend_from_slice(&port.waits);
        }
        all
    }

    /// Wire bytes that an arriving frame found waiting, in the mean; `None` without frames.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.found_bytes as f64 / self.frames as f64)
    }

    /// The most that one found.
    pub fn max_bytes(&self) -> u32 {
        self.max_bytes
    }

    /// How long probes would have waited, microseconds: mean, median and 99th percentile.
    pub fn probes_us(&self) -> Option<[f64; 3]> {
        let waits: Vec<f64> = self.waits.iter().map(|&ns| f64::from(ns) / 1e3).collect();
        let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
        let sorted = Sorted::new(waits);
        let at = |percentile| sorted.percentile(percentile);
        Some([mean, at(Percentile::P50)?, at(Percentile::P99)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_count_together_by_their_frames_and_probes() {
        let mut busy = Queueing::default();
        for found in [0, 3_000] {
            busy.arrives(found);
            busy.probe(SimDuration::micros(u64::from(found) / 10));
        }
        let mut idle = Queueing::default();
        assert_eq!((idle.mean_bytes(), idle.probes_us()), (None, None));
        (0..2).for_each(|_| idle.probe(SimDuration::ZERO));
        let both = Queueing::merged([&busy, &idle]);
        assert_eq!((both.mean_bytes(), both.max_bytes()), (Some(1_500.0), 3_000));
        assert_eq!(both.probes_us(), Some([75.0, 0.0, 300.0]));
    }
}
