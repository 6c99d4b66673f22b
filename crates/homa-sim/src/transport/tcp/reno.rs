//! Slow start and congestion avoidance (RFC 5681 §3.1), the common part of all algorithms.

use super::congestion::{Acked, CongestionWindow};

/// Opens the window by the bytes acknowledged, up to the limit of segments (RFC 5681 equation 2,
/// RFC 3465 §2.2) and up to the threshold; returns the bytes left for congestion avoidance.
#[inline]
pub fn slow_start(window: &mut CongestionWindow, acked: &Acked) -> u32 {
    if !window.in_slow_start() {
        return acked.bytes;
    }
    let limit = acked.slow_start_limit.saturating_mul(acked.mss);
    let room = window.ssthresh - window.cwnd;
    let opened = acked.bytes.min(limit).min(room);
    window.cwnd += opened;
    if opened < room { 0 } else { acked.bytes - opened }
}

/// Adds a segment for each window acknowledged (RFC 5681 §3.1, counting bytes as it recommends).
#[inline]
pub fn congestion_avoidance(window: &mut CongestionWindow, bytes: u32, mss: u32) {
    window.credit = window.credit.saturating_add(bytes);
    while window.credit >= window.cwnd {
        window.credit -= window.cwnd;
        window.cwnd = window.cwnd.saturating_add(mss);
    }
}

/// The threshold after a loss: half of the bytes in flight, at least two segments (RFC 5681
/// equation 4).
pub fn halved(flight: u32, mss: u32) -> u32 {
    (flight / 2).max(2 * mss)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::{Duration, Time};

    const MSS: u32 = 1_000;

    fn acked(bytes: u32, slow_start_limit: u32) -> Acked {
        let srtt = Duration::micros(100);
        Acked { now: Time::ZERO, bytes, srtt, mss: MSS, slow_start_limit }
    }

    #[test]
    fn slow_start_opens_by_a_segment_per_acknowledgement() {
        let mut window = CongestionWindow { cwnd: 3 * MSS, ssthresh: u32::MAX, credit: 0 };
        assert_eq!(slow_start(&mut window, &acked(MSS, 1)), 0);
        assert_eq!(window.cwnd, 4 * MSS);
        slow_start(&mut window, &acked(2 * MSS, 1));
        assert_eq!(window.cwnd, 5 * MSS, "RFC 5681: by one even for two");
        slow_start(&mut window, &acked(2 * MSS, 2));
        assert_eq!(window.cwnd, 7 * MSS, "RFC 3465: by two");
        slow_start(&mut window, &acked(300, 2));
        assert_eq!(window.cwnd, 7_300);
    }

    #[test]
    fn slow_start_ends_at_the_threshold() {
        let mut window = CongestionWindow { cwnd: 7 * MSS, ssthresh: 7_500, credit: 0 };
        assert_eq!(slow_start(&mut window, &acked(2 * MSS, 2)), 1_500);
        assert_eq!((window.cwnd, window.in_slow_start()), (7_500, false));
    }

    #[test]
    fn congestion_avoidance_opens_by_a_segment_per_window() {
        let mut window = CongestionWindow { cwnd: 10 * MSS, ssthresh: 10 * MSS, credit: 0 };
        (0..9).for_each(|_| congestion_avoidance(&mut window, MSS, MSS));
        assert_eq!(window.cwnd, 10 * MSS);
        congestion_avoidance(&mut window, MSS, MSS);
        assert_eq!(window.cwnd, 11 * MSS);
        (0..11).for_each(|_| congestion_avoidance(&mut window, MSS, MSS));
        assert_eq!(window.cwnd, 12 * MSS);
    }

    #[test]
    fn a_loss_halves_the_bytes_in_flight() {
        assert_eq!(halved(20 * MSS, MSS), 10 * MSS);
        assert_eq!(halved(3 * MSS, MSS), 2 * MSS);
    }
}
