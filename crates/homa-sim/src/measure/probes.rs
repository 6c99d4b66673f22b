//! Times of rounds, and waits of probes: their latency beyond that of the same message alone in the
//! network. HULL §5.2 measures the wait at the switch; the rest of the path is the same for every
//! probe.
//!
//! If a probe is lost, its transport retransmits it and, in a stream, delays the probes behind it;
//! the paper's instrument at the switch does not see that. A scenario may therefore name a time
//! after which probes count as lost, separately. It may also name a constant that its instrument
//! adds to every wait.

use homa_workload::interval;
use homa_workload::quantile::{Percentile, Sorted};

use crate::scenario::outcome::{ProbeDelays, Rounds};
use crate::time::SimDuration;

/// Statistics of latencies in the order of arrival, and the number of lost probes; `None` if there
/// are no latencies. `instrument` is added to every wait.
pub fn delays(
    (latencies, lost): (&[SimDuration], u64),
    idle: SimDuration,
    instrument: SimDuration,
) -> Option<ProbeDelays> {
    let wait = |latency: SimDuration| latency.0.saturating_sub(idle.0) + instrument.0;
    let waited = latencies.iter().map(|latency| wait(*latency));
    let waited: Vec<f64> = waited.map(|picos| picos as f64 / 1e6).collect();
    let mean_us = waited.iter().sum::<f64>() / waited.len().max(1) as f64;
    let p99 = interval::correlated(&waited, Percentile::P99);
    let sorted = Sorted::new(waited);
    let at = |percentile| sorted.percentile(percentile);
    Some(ProbeDelays {
        count: sorted.len() as u64,
        lost,
        mean_us,
        p50_us: at(Percentile::P50)?,
        p90_us: at(Percentile::millionths(900_000)?)?,
        p99_us: at(Percentile::P99)?,
        p99_us_ci: [p99.low, p99.high],
    })
}

/// Statistics of rounds; `None` if there are none.
pub fn rounds(took: &[SimDuration]) -> Option<Rounds> {
    let took: Vec<f64> = took.iter().map(|took| took.0 as f64 / 1e6).collect();
    let mean_us = took.iter().sum::<f64>() / took.len().max(1) as f64;
    let max_us = took.iter().copied().fold(0.0, f64::max);
    let sorted = Sorted::new(took);
    Some(Rounds {
        count: sorted.len() as u64,
        mean_us,
        p50_us: sorted.percentile(Percentile::P50)?,
        p95_us: sorted.percentile(Percentile::millionths(950_000)?)?,
        p99_us: sorted.percentile(Percentile::P99)?,
        max_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_ranked() {
        let took: Vec<_> = (1..=200).map(SimDuration::micros).collect();
        let rounds = rounds(&took).unwrap();
        assert_eq!((rounds.count, rounds.mean_us, rounds.p50_us), (200, 100.5, 100.0));
        assert_eq!((rounds.p95_us, rounds.p99_us, rounds.max_us), (190.0, 198.0, 200.0));
        assert_eq!(super::rounds(&[]), None);
    }

    #[test]
    fn the_time_of_the_idle_network_is_not_a_delay() {
        let latencies: Vec<_> = (0..100).map(|n| SimDuration::micros(30 + n)).collect();
        let none = SimDuration::ZERO;
        let delays = |instrument| delays((&latencies, 2), SimDuration::micros(30), instrument);
        let later = delays(SimDuration::micros(2)).unwrap();
        assert_eq!((later.mean_us, later.p50_us), (51.5, 51.0));
        let delays = delays(none).unwrap();
        assert_eq!((delays.count, delays.p50_us, delays.p90_us), (100, 49.0, 89.0));
        assert_eq!(delays.lost, 2);
        assert_eq!((delays.mean_us, delays.p99_us), (49.5, 98.0));
        assert_eq!(super::delays((&[], 0), none, none), None);
    }
}
