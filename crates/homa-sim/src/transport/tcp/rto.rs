//! The retransmission timeout (RFC 6298).

use homa_proto::Duration;

use super::config::RtoConfig;

/// Doublings after which a timeout no longer grows, whatever its bounds.
const MAX_DOUBLINGS: u32 = 32;

/// Smoothed round-trip time, its variation, and the timeout derived from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rto {
    /// SRTT, once a round trip was measured.
    srtt: Option<Duration>,
    rttvar: Duration,
    /// Consecutive timeouts.
    doublings: u32,
}

impl Rto {
    /// The smoothed round-trip time.
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Adds a measured round trip of a segment that was sent once (§3, Karn's rule).
    pub fn sample(&mut self, rtt: Duration) {
        let Duration(r) = rtt;
        self.doublings = 0;
        match self.srtt {
            // §2.2
            None => (self.srtt, self.rttvar) = (Some(rtt), Duration(r / 2)),
            // §2.3: the variation first, with the old SRTT.
            Some(Duration(srtt)) => {
                let Duration(rttvar) = self.rttvar;
                self.rttvar = Duration((3 * rttvar + srtt.abs_diff(r)) / 4);
                self.srtt = Some(Duration((7 * srtt + r) / 8));
            }
        }
    }

    /// Backs off after the timer expired (§5.5).
    pub fn backoff(&mut self) {
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
    }

    /// Consecutive timeouts.
    pub fn timeouts(&self) -> u32 {
        self.doublings
    }

    /// The timeout: SRTT + max(G, 4 RTTVAR) (§2.3), rounded up to clock ticks, within its bounds
    /// (§2.4, §2.5), and doubled for each consecutive timeout.
    pub fn timeout(&self, config: &RtoConfig) -> Duration {
        let tick = config.granularity.0.max(1);
        let base = match self.srtt {
            None => config.initial.0,
            Some(srtt) => srtt.0 + tick.max(4 * self.rttvar.0),
        };
        let base = base.next_multiple_of(tick).max(config.min.0);
        let doubled = u128::from(base) << self.doublings;
        Duration(u64::try_from(doubled).unwrap_or(u64::MAX).min(config.max.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: RtoConfig = RtoConfig {
        initial: Duration::secs(1),
        min: Duration::micros(200),
        max: Duration::secs(60),
        granularity: Duration::micros(10),
    };

    #[test]
    fn the_timeout_follows_section_2() {
        let mut rto = Rto::default();
        assert_eq!(rto.timeout(&CONFIG), Duration::secs(1));
        // First: SRTT = 100, RTTVAR = 50, RTO = 100 + 4 * 50 us.
        rto.sample(Duration::micros(100));
        assert_eq!(rto.timeout(&CONFIG), Duration::micros(300));
        // RTTVAR = 3/4 * 50 + 1/4 * |100 - 180| = 57.5, SRTT = 7/8 * 100 + 1/8 * 180 = 110;
        // 340 us.
        rto.sample(Duration::micros(180));
        assert_eq!(rto.srtt(), Some(Duration::micros(110)));
        assert_eq!(rto.timeout(&CONFIG), Duration::micros(340));
    }

    #[test]
    fn ticks_and_bounds() {
        let mut rto = Rto::default();
        rto.sample(Duration::nanos(123_456));
        // 123,456 + 4 * 61,728 = 370,368 ns.
        assert_eq!(rto.timeout(&CONFIG), Duration::micros(380));
        let coarse = RtoConfig { granularity: Duration::millis(10), ..CONFIG };
        assert_eq!(rto.timeout(&coarse), Duration::millis(20), "G counts as variation");
        let steady = (0..60).fold(rto, |mut rto, _| {
            rto.sample(Duration::micros(50));
            rto
        });
        assert_eq!(steady.timeout(&CONFIG), Duration::micros(200), "not below the minimum");
    }

    #[test]
    fn timeouts_double_until_a_round_trip_is_measured() {
        let mut rto = Rto::default();
        rto.sample(Duration::micros(100));
        for expected in [600, 1_200, 2_400] {
            rto.backoff();
            assert_eq!(rto.timeout(&CONFIG), Duration::micros(expected));
        }
        (0..40).for_each(|_| rto.backoff());
        assert_eq!(rto.timeout(&CONFIG), Duration::secs(60));
        rto.sample(Duration::micros(100));
        assert!(rto.timeout(&CONFIG) < Duration::micros(300));
    }
}
