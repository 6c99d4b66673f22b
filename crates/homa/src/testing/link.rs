//! What the path between two hosts does to datagrams, and the draws that decide it.

use std::time::Duration;

/// The path between two hosts, in each direction. It starts with a latency of 1 ms and no faults.
///
/// Time advances in steps of 1 ms, because the timers of tokio do: a datagram arrives at the first
/// step that is not before its latency has passed. Datagrams of one step arrive in the order of
/// their latencies.
///
/// ```
/// use std::time::Duration;
///
/// use homa::testing::LinkConditions;
///
/// let (least, most) = (Duration::from_millis(1), Duration::from_millis(5));
/// let wan = LinkConditions::default().latency_between(least, most).lost(0.01);
/// let slow = wan.bandwidth(100_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct LinkConditions {
    least: Duration,
    most: Duration,
    lost: f64,
    duplicated: f64,
    bandwidth: Option<u64>,
}

impl Default for LinkConditions {
    fn default() -> Self {
        let latency = Duration::from_millis(1);
        Self { least: latency, most: latency, lost: 0.0, duplicated: 0.0, bandwidth: None }
    }
}

impl LinkConditions {
    /// Sets the time that every datagram takes. The order of datagrams is kept.
    pub fn latency(self, latency: Duration) -> Self {
        Self { least: latency, most: latency, ..self }
    }

    /// Sets the range from which the time of each datagram is drawn, so that later ones may
    /// overtake earlier ones.
    pub fn latency_between(self, least: Duration, most: Duration) -> Self {
        Self { least, most: most.max(least), ..self }
    }

    /// Sets the share of datagrams that are lost, from 0 to 1.
    pub fn lost(self, share: f64) -> Self {
        Self { lost: share, ..self }
    }

    /// Sets the share of datagrams that arrive twice, from 0 to 1. Each copy has a latency.
    pub fn duplicated(self, share: f64) -> Self {
        Self { duplicated: share, ..self }
    }

    /// Sets the rate, bits per second, at which datagrams leave one after another. Default: no
    /// limit. The queue in front of it is not limited.
    pub fn bandwidth(self, bits_per_second: u64) -> Self {
        Self { bandwidth: Some(bits_per_second.max(1)), ..self }
    }

    /// The latencies of the copies of a datagram that arrive.
    pub(super) fn copies(&self, draws: &mut Draws) -> impl Iterator<Item = Duration> + use<> {
        let copies = match (draws.chance(self.lost), draws.chance(self.duplicated)) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let latencies = [(); 2].map(|()| draws.between(self.least, self.most));
        latencies.into_iter().take(copies)
    }

    /// How long the wire is busy with a datagram of `bytes` bytes.
    pub(super) fn busy(&self, bytes: usize) -> Duration {
        let seconds = |rate: u64| 8.0 * bytes as f64 / rate as f64;
        self.bandwidth.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(seconds(rate)))
    }
}

/// Random numbers from a seed (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + (most - least).mul_f64(self.share())
    }
}
