//! The congestion window and the algorithms that control it, with one dispatch per acknowledgement.

use homa_proto::{Duration, Time};

use super::config::{Algorithm, TcpConfig};
use super::cubic::Cubic;
use super::dctcp::Dctcp;
use super::reno;

/// Window and threshold of RFC 5681 §2, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionWindow {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold.
    pub ssthresh: u32,
    /// Bytes acknowledged that have not opened the window yet (RFC 5681 §3.1, RFC 3465).
    pub credit: u32,
}

impl CongestionWindow {
    /// The window of a new connection (RFC 5681 §3.1: the threshold is arbitrarily high).
    pub fn new(config: &TcpConfig) -> Self {
        let cwnd = config.initial_window.max(1).saturating_mul(config.mss());
        Self { cwnd, ssthresh: u32::MAX, credit: 0 }
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// An acknowledgement that opens the window.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it arrived.
    pub now: Time,
    /// Bytes that it acknowledges.
    pub bytes: u32,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The most segments by which it may open the window in slow start.
    pub slow_start_limit: u32,
}

/// A congestion control algorithm with its state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CongestionControl {
    /// RFC 5681.
    NewReno,
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 8257.
    Dctcp(Dctcp),
}

impl CongestionControl {
    /// The state at the start of a connection.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno,
            Algorithm::Cubic => Self::Cubic(Cubic::default()),
            Algorithm::Dctcp { gain } => Self::Dctcp(Dctcp::new(gain)),
        }
    }

    /// Every acknowledgement passes here. `ack` is its number and `next` the first byte not sent
    /// yet; `bytes` are newly acknowledged, and `marked` tells whether it echoes congestion.
    #[inline]
    pub fn observe(&mut self, (ack, next): (u64, u64), (bytes, marked): (u32, bool)) {
        if let Self::Dctcp(dctcp) = self {
            dctcp.observe((ack, next), (bytes, marked));
        }
    }

    /// The window was used up and is acknowledged, so it grows.
    #[inline]
    pub fn grow(&mut self, window: &mut CongestionWindow, acked: &Acked) {
        let left = reno::slow_start(window, acked);
        if left == 0 {
            return;
        }
        match self {
            Self::NewReno | Self::Dctcp(_) => reno::congestion_avoidance(window, left, acked.mss),
            Self::Cubic(cubic) => cubic.grow(window, left, acked),
        }
    }

    /// A loss was found with `flight` bytes in flight: sets the threshold.
    pub fn on_loss(&mut self, window: &mut CongestionWindow, flight: u32, mss: u32) {
        window.ssthresh = match self {
            Self::NewReno | Self::Dctcp(_) => reno::halved(flight, mss),
            Self::Cubic(cubic) => cubic.reduced(window.cwnd, flight, mss),
        };
        window.credit = 0;
    }

    /// Reacts to an echo of congestion, at most once per window (RFC 3168 §6.1.2, RFC 8257 §3.3).
    pub fn on_mark(&mut self, window: &mut CongestionWindow, mss: u32) {
        window.ssthresh = match self {
            Self::NewReno => reno::halved(window.cwnd, mss),
            Self::Cubic(cubic) => cubic.reduced(window.cwnd, window.cwnd, mss),
            Self::Dctcp(dctcp) => dctcp.reduced(window.cwnd, mss),
        };
        window.cwnd = window.cwnd.min(window.ssthresh);
        window.credit = 0;
    }

    /// The RTO expired; called after [`CongestionControl::on_loss`] if it is the first time.
    pub fn on_timeout(&mut self) {
        if let Self::Cubic(cubic) = self {
            cubic.on_timeout();
        }
    }

    /// The connection sent nothing for a while.
    pub fn on_idle(&mut self, idle: Duration) {
        if let Self::Cubic(cubic) = self {
            cubic.on_idle(idle);
        }
    }
}
