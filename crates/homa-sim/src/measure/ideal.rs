//! The idle time that a latency is divided by to give a slowdown.
//!
//! The authors' formula (Homa §5.2 as coded in their simulator) sends a message alone: all frames
//! back to back on the host's link, then the first frame's path through the fabric. It differs from
//! the network that it applies to in two ways, and both are kept. Frames carry 1472 message bytes,
//! as if the transport had no header, so long messages cannot get below 1.011. Within a rack the
//! switch delay is lost, because an assignment should have been a sum, so tiny messages within a
//! rack cannot get below 1.153. The corrected form restores only the switch delay.

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// The time of a message alone in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Time until its delivery.
    pub time: SimDuration,
    /// Time from its delivery to its end by the scenario's definition. It is added to latencies,
    /// too.
    pub after: SimDuration,
}

impl Alone {
    /// The slowdown of a message that was delivered after `latency`.
    pub fn slowdown(self, latency: SimDuration) -> f64 {
        let whole = (self.time + self.after).0.max(1);
        (latency + self.after).0 as f64 / whole as f64
    }
}

impl From<SimDuration> for Alone {
    fn from(time: SimDuration) -> Self {
        Self { time, after: SimDuration::ZERO }
    }
}

/// Message bytes per frame in the authors' formula.
const PAYLOAD: u32 = 1472;
/// Bytes of IP, UDP, Ethernet, preamble and gap per frame.
const HEADERS: u32 = 28 + 38;
/// Wire bytes of the shortest frame.
const SHORTEST: u32 = 84;

/// Delays and rates of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formula {
    /// Rate of a host's link.
    pub host: Rate,
    /// Rate between switches.
    pub fabric: Rate,
    /// Delay of both hosts' software and the sender's NIC.
    pub fixed: SimDuration,
    /// Delay of each cable; there is one more cable than switches.
    pub propagation: SimDuration,
    /// Delay of each switch.
    pub switch: SimDuration,
    /// Count the switch within a rack as well.
    pub corrected: bool,
}

impl Formula {
    /// The time of a message of `bytes` alone in the network, through `switches` switches.
    pub fn time(&self, bytes: u32, switches: u32) -> SimDuration {
        let (host, fabric) = (LinkRate::new(self.host), LinkRate::new(self.fabric));
        let frame = |payload: u32| (payload + HEADERS).max(SHORTEST);
        let full = bytes / PAYLOAD;
        let rest = bytes % PAYLOAD;
        let last = if rest > 0 { frame(rest) } else { 0 };
        let serialised =
            u64::from(full) * host.serialisation(frame(PAYLOAD)).0 + host.serialisation(last).0;
        let first = frame(bytes.min(PAYLOAD));
        let counted = if switches == 1 && !self.corrected { 0 } else { switches };
        let between = u64::from(switches.saturating_sub(1)) * fabric.serialisation(first).0;
        let down = host.serialisation(first).0;
        let delays = u64::from(counted) * self.switch.0
            + u64::from(switches + 1) * self.propagation.0
            + self.fixed.0;
        SimDuration(serialised + delays + between + down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formula(corrected: bool) -> Formula {
        Formula {
            host: Rate::gbps(10),
            fabric: Rate::gbps(40),
            fixed: SimDuration::nanos(1500),
            propagation: SimDuration::ZERO,
            switch: SimDuration::nanos(250),
            corrected,
        }
    }

    #[test]
    fn times_follow_the_authors_formula() {
        let table: [(u32, u64); 9] = [
            (1, 2_418_000),
            (100, 2_582_000),
            (500, 3_382_000),
            (1000, 4_382_000),
            (1472, 5_326_000),
            (10_000, 12_465_200),
            (100_000, 87_686_000),
            (1_000_000, 839_999_600),
            (10_000_000, 8_362_818_800),
        ];
        for (bytes, picos) in table {
            assert_eq!(formula(false).time(bytes, 3).0, picos, "{bytes} B across racks");
            assert_eq!(formula(true).time(bytes, 3).0, picos, "{bytes} B across racks");
        }
    }

    #[test]
    fn within_a_rack_the_correction_adds_the_switch() {
        assert_eq!(formula(false).time(1, 1).0, 1_634_400);
        assert_eq!(formula(true).time(1, 1).0, 1_884_400);
        assert_eq!(formula(false).time(100, 1).0, 1_765_600);
        assert_eq!(formula(true).time(100, 1).0, 2_015_600);
    }
}
