//! Round trips on the idle rack: the denominators of slowdown.

use std::io;
use std::time::Duration;

use homa_workload::quantile::{Percentile, Sorted};

use super::group::HostGroup;
use crate::sys;

/// Most round trips of a size.
const MOST: u64 = 15;
/// Time to spend on a size, so that long messages over slow links do not take for ever.
const TIME_PER_SIZE: Duration = Duration::from_millis(600);

/// Median round trip by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleTimes {
    /// Bytes and nanoseconds, by bytes.
    points: Vec<(u32, u64)>,
}

impl IdleTimes {
    /// Takes measured medians, in ascending order of bytes.
    pub fn new(points: Vec<(u32, u64)>) -> Self {
        Self { points }
    }

    /// Measures each size: the median of 1 to 15 calls of `round_trip`, which gets the bytes and
    /// its number from 0 and returns nanoseconds. A size that takes long is measured less often.
    pub fn measure<E>(
        sizes: &[u32],
        mut round_trip: impl FnMut(u32, usize) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let mut points = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            let mut times = vec![round_trip(bytes, 0)?];
            let most = TIME_PER_SIZE.as_nanos() as u64 / times[0].max(1);
            for nth in 1..most.min(MOST) {
                times.push(round_trip(bytes, nth as usize)?);
            }
            let times = Sorted::new(times);
            points.push((bytes, times.percentile(Percentile::P50).unwrap_or_default()));
        }
        Ok(Self::new(points))
    }

    /// The measurements: bytes and nanoseconds.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }

    /// The round trip of a message of `bytes`, nanoseconds: measured or interpolated linearly in
    /// bytes (beyond the ends, the nearest measurement). `None` when nothing was measured.
    pub fn at(&self, bytes: u32) -> Option<f64> {
        let after = self.points.partition_point(|&(size, _)| size < bytes);
        let (last, first) = (self.points.last()?, self.points.first()?);
        let Some(&(high, high_ns)) = self.points.get(after) else { return Some(last.1 as f64) };
        let Some(&(low, low_ns)) = after.checked_sub(1).and_then(|i| self.points.get(i)) else {
            return Some(first.1 as f64);
        };
        let share = f64::from(bytes - low) / f64::from(high - low);
        Some(low_ns as f64 + share * (high_ns as f64 - low_ns as f64))
    }
}

impl HostGroup<'_> {
    /// Measures the round trip of each size from one of the group's hosts, one RPC at a time, the
    /// peers in turn.
    pub(crate) fn idle_times(&mut self, client: usize, sizes: &[u32]) -> io::Result<IdleTimes> {
        let peers: Vec<_> = self.clients[client].host.peers().collect();
        IdleTimes::measure(sizes, |bytes, nth| {
            let start = sys::monotonic_ns();
            let end = self.exchange(client, peers[nth % peers.len()], bytes, 1)?;
            Ok(end.saturating_sub(start))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_are_interpolated_linearly_in_bytes() {
        let times = IdleTimes::new(vec![(100, 1_000), (200, 3_000), (1_000, 3_800)]);
        assert_eq!(times.at(1), Some(1_000.0));
        assert_eq!(times.at(100), Some(1_000.0));
        assert_eq!(times.at(150), Some(2_000.0));
        assert_eq!(times.at(600), Some(3_400.0));
        assert_eq!(times.at(1_000_000), Some(3_800.0));
        assert_eq!(IdleTimes::default().at(5), None);
    }
}
