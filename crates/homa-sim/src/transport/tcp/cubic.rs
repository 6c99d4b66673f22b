//! CUBIC (RFC 9438): after a loss the window is a cubic function of the time since then, or the
//! window that Reno would have, whichever is larger.
//!
//! Windows are counted in segments here. Left out: HyStart++ (RFC 9406), which reacts to delays of
//! milliseconds, and the reversal of spurious reductions (§4.9).

use homa_proto::{Duration, Time};

use super::congestion::{Acked, CongestionWindow};

/// Scaling constant, segments per second cubed (§5).
const C: f64 = 0.4;
/// The factor that reduces a window after a loss (§4.6).
const BETA: f64 = 0.7;
/// Segments per round trip by which an AIMD flow with the same decrease grows to get Reno's rate
/// (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State that CUBIC keeps between losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cubic {
    /// W_max: the window at the plateau.
    w_max: f64,
    /// Seconds from the start of the epoch to the plateau.
    k: f64,
    /// The window of a Reno-friendly flow.
    w_est: f64,
    /// The window before the last reduction.
    cwnd_prior: f64,
    /// When congestion avoidance started.
    epoch: Option<Time>,
    /// The epoch starts after a timeout.
    after_timeout: bool,
}

impl Cubic {
    /// Starts an epoch of congestion avoidance (§4.2).
    fn begin(&mut self, now: Time, cwnd: f64) {
        self.epoch = Some(now);
        self.w_est = cwnd;
        if self.after_timeout || self.w_max < cwnd {
            // §4.8, and a first epoch without an earlier loss.
            (self.w_max, self.k) = (cwnd, 0.0);
            self.cwnd_prior = self.cwnd_prior.max(cwnd);
        } else {
            self.k = libm::cbrt((self.w_max - cwnd) / C);
        }
        self.after_timeout = false;
    }

    /// W_cubic(t), equation 1.
    fn at(&self, seconds: f64) -> f64 {
        let t = seconds - self.k;
        C * t * t * t + self.w_max
    }

    /// An acknowledgement in congestion avoidance (§4.2 to §4.5).
    pub fn grow(&mut self, window: &mut CongestionWindow, bytes: u32, acked: &Acked) {
        let mss = f64::from(acked.mss);
        let cwnd = f64::from(window.cwnd) / mss;
        if self.epoch.is_none() {
            self.begin(acked.now, cwnd);
        }
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let since = acked.now.since(self.epoch.unwrap_or(acked.now));
        let segments = f64::from(bytes) / mss;
        // §4.3: Reno's increase once the old window is reached.
        let alpha = if self.w_est < self.cwnd_prior { ALPHA } else { 1.0 };
        self.w_est += alpha * segments / cwnd;
        let next = if self.at(seconds(since.0)) < self.w_est {
            cwnd.max(self.w_est)
        } else {
            let target = self.at(seconds(since.0 + acked.srtt.0)).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) / cwnd * segments
        };
        window.cwnd = (next * mss) as u32;
    }

    /// The window after a loss or mark (§4.6, §4.7), bytes.
    pub fn reduced(&mut self, cwnd: u32, flight: u32, mss: u32) -> u32 {
        let segments = f64::from(cwnd) / f64::from(mss);
        // Fast convergence: a flow that has a loss before it is back at W_max gives bandwidth to
        // others.
        self.w_max = if segments < self.w_max { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.cwnd_prior = segments;
        self.epoch = None;
        ((f64::from(flight) * BETA) as u32).max(2 * mss)
    }

    /// §4.8: the next epoch starts at its plateau.
    pub fn on_timeout(&mut self) {
        self.epoch = None;
        self.after_timeout = true;
    }

    /// §5.8: idle time does not count.
    pub fn on_idle(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn acked(at: u64, srtt: Duration) -> Acked {
        Acked { now: Time(at), bytes: MSS, srtt, mss: MSS, slow_start_limit: 1 }
    }

    #[test]
    fn the_plateau_is_k_seconds_away() {
        let mut cubic = Cubic::default();
        // 1000 segments are reduced to 700: K = cbrt(300 / 0.4) = 9.0856 s.
        let mut window = CongestionWindow { cwnd: 1_000 * MSS, ssthresh: 0, credit: 0 };
        let reduced = cubic.reduced(window.cwnd, window.cwnd, MSS);
        assert_eq!(reduced, 700 * MSS);
        cubic.begin(Time::ZERO, 700.0);
        assert!((cubic.k - 9.085_6).abs() < 1e-4, "{}", cubic.k);
        assert!((cubic.at(0.0) - 700.0).abs() < 1e-9);
        assert!((cubic.at(cubic.k) - 1_000.0).abs() < 1e-9);
        // A second after the plateau W = 1000.4; two before, 996.8.
        assert!((cubic.at(cubic.k + 1.0) - 1_000.4).abs() < 1e-9);
        assert!((cubic.at(cubic.k - 2.0) - 996.8).abs() < 1e-9);
        // Half-way through the first second, at a long round trip, the window follows the curve.
        window.cwnd = reduced;
        let srtt = Duration::millis(500);
        let target = cubic.at(0.5 + 0.5);
        cubic.grow(&mut window, MSS, &acked(500_000_000, srtt));
        let expected = 700.0 + (target - 700.0) / 700.0;
        assert!((f64::from(window.cwnd) / 1e3 - expected).abs() < 1e-2, "{}", window.cwnd);
    }

    #[test]
    fn at_microseconds_it_grows_by_0_53_segments_per_round_trip() {
        let mut cubic = Cubic::default();
        let mut window = CongestionWindow { cwnd: 100 * MSS, ssthresh: 0, credit: 0 };
        window.cwnd = cubic.reduced(window.cwnd, window.cwnd, MSS);
        let srtt = Duration::micros(100);
        // Ten round trips of 70 acknowledgements each.
        for round in 0..10 {
            (0..70).for_each(|_| cubic.grow(&mut window, MSS, &acked(round * 100_000, srtt)));
        }
        let gained = f64::from(window.cwnd) / 1e3 - 70.0;
        assert!((4.9..5.3).contains(&gained), "{gained}");
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_of_a_shrinking_flow() {
        let mut cubic = Cubic::default();
        cubic.reduced(100 * MSS, 100 * MSS, MSS);
        assert_eq!(cubic.w_max, 100.0);
        cubic.reduced(80 * MSS, 80 * MSS, MSS);
        assert_eq!(cubic.w_max, 80.0 * 1.7 / 2.0);
    }
}
