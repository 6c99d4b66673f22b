//! Load arithmetic: from "80 % of every link" to RPCs per second, and back.
//!
//! Every host is a client of all others and their server; request and response have the same size.
//! A host's uplink carries its own requests and its responses to others, so at the same rate λ
//! everywhere it carries 2λ messages per second. For W3 cut at 1 MB, at 80 % of 100 Mbit/s in UDP
//! framing with its mean of 2769 wire bytes, λ = 0.8 · 100e6 / (2 · 2769 · 8) = 1806 RPCs per
//! second and host.
//!
//! The papers disagree on what a load counts, so it is said each time ([`Basis`]): the Homa paper's
//! simulations count wire bytes, its measurements (Figure 8) application bytes.

use crate::framing::Framing;
use crate::sizes::SizeDistribution;

/// Which bytes a load counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// All headers, preambles and gaps, as [`Framing`] counts them.
    Wire,
    /// Application bytes only.
    Payload,
}

/// A load on every uplink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Share of the link's rate, above 0; from 1 on queues grow for as long as it lasts.
    pub fraction: f64,
    /// The bytes it counts.
    pub basis: Basis,
    /// Rate of a host's link, bits per second.
    pub link_bps: u64,
    /// How messages become frames.
    pub framing: Framing,
}

impl Load {
    /// Echo RPCs that each host starts per second so that requests and responses make up this load.
    pub fn rpcs_per_second(&self, sizes: &SizeDistribution) -> f64 {
        let bits_per_second = self.fraction * self.link_bps as f64;
        bits_per_second / (2.0 * 8.0 * self.mean_counted_bytes(sizes))
    }

    fn mean_counted_bytes(&self, sizes: &SizeDistribution) -> f64 {
        match self.basis {
            Basis::Wire => mean_wire_bytes(sizes, self.framing),
            Basis::Payload => sizes.mean_bytes(),
        }
    }

    /// The same RPCs per second as a load in other terms: what they are in payload, or in the
    /// framing of another transport.
    pub fn expressed(&self, sizes: &SizeDistribution, basis: Basis, framing: Framing) -> Self {
        let target = Self { basis, framing, ..*self };
        let ratio = target.mean_counted_bytes(sizes) / self.mean_counted_bytes(sizes);
        Self { fraction: self.fraction * ratio, ..target }
    }
}

/// Mean wire bytes of one message.
pub fn mean_wire_bytes(sizes: &SizeDistribution, framing: Framing) -> f64 {
    sizes.mean_of(|bytes| framing.wire_bytes(bytes) as f64)
}

/// Application bytes per wire byte: the most of a link's rate that applications can get.
pub fn goodput_share(sizes: &SizeDistribution, framing: Framing) -> f64 {
    sizes.mean_bytes() / mean_wire_bytes(sizes, framing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Workload;

    fn load(fraction: f64, basis: Basis, framing: Framing) -> Load {
        Load { fraction, basis, link_bps: 10_000_000_000, framing }
    }

    #[test]
    fn goodput_shares_are_those_the_homa_authors_configured() {
        let published = [0.657, 0.796, 0.887, 0.898, 0.898];
        // W1's table misses 0.004 of its analytic model.
        let tolerance = [0.0045, 0.0006, 0.0006, 0.0006, 0.0006];
        for (i, workload) in Workload::BUILT_IN.iter().enumerate() {
            let share = goodput_share(&workload.sizes().unwrap(), Framing::Paper);
            assert!((share - published[i]).abs() < tolerance[i], "{workload}: {share}");
        }
    }

    #[test]
    fn message_rates_are_those_of_the_published_simulations() {
        // One-way messages per second and host at 80 %; an echo RPC puts two on each uplink.
        let published = [3.551e6, 1.806e6, 303e3, 7027.0, 356.9];
        for (i, workload) in Workload::BUILT_IN.iter().enumerate().skip(1) {
            let sizes = workload.sizes().unwrap();
            let rpcs = load(0.8, Basis::Wire, Framing::Paper).rpcs_per_second(&sizes);
            assert!((2.0 * rpcs / published[i] - 1.0).abs() < 1e-3, "{workload}: {rpcs}");
        }
    }

    #[test]
    fn a_constant_size_by_hand() {
        let sizes = Workload::Constant(1000).sizes().unwrap();
        // 1000 B cost 1138 B on the wire: 8e9 / (2 * 8 * 1138) RPCs per second.
        let wire = load(0.8, Basis::Wire, Framing::Udp);
        assert!((wire.rpcs_per_second(&sizes) - 439_367.31).abs() < 0.01);
        let payload = load(0.8, Basis::Payload, Framing::Udp);
        assert!((payload.rpcs_per_second(&sizes) - 500_000.0).abs() < 1e-6);
    }

    #[test]
    fn expressing_a_load_otherwise_keeps_the_rpcs() {
        let sizes = Workload::W3.sizes().unwrap();
        let wire = load(0.8, Basis::Wire, Framing::Udp);
        let rate = wire.rpcs_per_second(&sizes);
        for (basis, framing) in [
            (Basis::Payload, Framing::Udp),
            (Basis::Wire, Framing::Tcp),
            (Basis::Wire, Framing::Paper),
        ] {
            let other = wire.expressed(&sizes, basis, framing);
            assert!((other.rpcs_per_second(&sizes) / rate - 1.0).abs() < 1e-12);
            assert!(other.fraction < 0.8, "UDP framing costs most: {other:?}");
        }
    }
}
