//! The sender of DCTCP (RFC 8257 §3.3): the window shrinks by the smoothed fraction of marked
//! bytes. The receiver's part is in `receiver`.

/// Alpha of a connection (§3.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dctcp {
    alpha: f64,
    gain: f64,
    /// The observation window ends when this byte is acknowledged.
    window_end: u64,
    /// Bytes acknowledged in this window.
    acked: u64,
    /// Those of them that were echoed as marked.
    marked: u64,
}

impl Dctcp {
    /// The state of a new connection: alpha is 1, so that the first mark halves the window.
    pub const fn new(gain: f64) -> Self {
        Self { alpha: 1.0, gain, window_end: 0, acked: 0, marked: 0 }
    }

    /// The estimated fraction of bytes that were marked.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Steps 1 to 8 of §3.3 for an acknowledgement.
    #[inline]
    pub fn observe(&mut self, (ack, next): (u64, u64), (bytes, marked): (u32, bool)) {
        self.acked += u64::from(bytes);
        self.marked += u64::from(if marked { bytes } else { 0 });
        if ack <= self.window_end {
            return;
        }
        if self.acked > 0 {
            let fraction = self.marked as f64 / self.acked as f64;
            self.alpha = self.alpha * (1.0 - self.gain) + self.gain * fraction;
        }
        (self.window_end, self.acked, self.marked) = (next, 0, 0);
    }

    /// Step 9: the window after a mark; at least two segments, as in Linux.
    pub fn reduced(&self, cwnd: u32, mss: u32) -> u32 {
        let reduced = f64::from(cwnd) * (1.0 - self.alpha / 2.0);
        (reduced as u32).max(2 * mss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_follows_the_fraction_of_marked_bytes_once_per_window() {
        let mut dctcp = Dctcp::new(1.0 / 16.0);
        // The first acknowledgement ends an empty window.
        dctcp.observe((1_000, 11_000), (1_000, false));
        assert_eq!(dctcp.alpha(), 15.0 / 16.0);
        // Four of the next ten segments are marked; the window ends after byte 11,000.
        for segment in 2..=11 {
            dctcp.observe((segment * 1_000, 21_000), (1_000, segment > 7));
            assert_eq!(dctcp.alpha(), 15.0 / 16.0);
        }
        dctcp.observe((12_000, 22_000), (1_000, false));
        let expected = 15.0 / 16.0 * 15.0 / 16.0 + 4.0 / 11.0 / 16.0;
        assert!((dctcp.alpha() - expected).abs() < 1e-12);
    }

    #[test]
    fn the_window_shrinks_by_half_of_alpha() {
        let mut dctcp = Dctcp::new(1.0 / 16.0);
        assert_eq!(dctcp.reduced(100_000, 1_000), 50_000);
        dctcp.alpha = 0.25;
        assert_eq!(dctcp.reduced(100_000, 1_000), 87_500);
        assert_eq!(dctcp.reduced(2_100, 1_000), 2_000);
    }
}
