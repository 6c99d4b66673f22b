//! Load arithmetic of patterns: from a share of the links to messages per second.

use homa_workload::framing::Framing;
use homa_workload::sizes::SizeDistribution;

use crate::scenario::demand::Basis;

/// Bytes that a message counts for, under a load's definition (Homa §5.2; with the authors' headers
/// k = .657 .796 .887 .898 .898 for W1 to W5).
pub fn counted_bytes(basis: Basis, own: Framing, bytes: u32) -> u64 {
    match basis {
        Basis::Paper => Framing::Paper.wire_bytes(bytes),
        Basis::Wire => own.wire_bytes(bytes),
        Basis::Payload => u64::from(bytes),
    }
}

/// Mean of [`counted_bytes`] over a distribution.
pub fn mean_counted_bytes(basis: Basis, own: Framing, sizes: &SizeDistribution) -> f64 {
    sizes.mean_of(|bytes| counted_bytes(basis, own, bytes) as f64)
}

/// Messages per second of one sender, if messages of `mean_bytes` should fill `fraction` of a link
/// of `link_bps`, and `per_link` messages cross the busiest link for each one that it starts.
pub fn per_second(fraction: f64, link_bps: u64, mean_bytes: f64, per_link: f64) -> f64 {
    fraction * link_bps as f64 / (8.0 * mean_bytes * per_link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_workload::sizes::Workload;

    #[test]
    fn the_authors_goodput_factors() {
        let published =
            [("w1-analytic", 0.657), ("w2", 0.796), ("w3", 0.887), ("w4", 0.898), ("w5", 0.898)];
        for (name, k) in published {
            let sizes = Workload::parse(name).unwrap().sizes().unwrap();
            let wire = mean_counted_bytes(Basis::Paper, Framing::Udp, &sizes);
            let tolerance = if name == "w1-analytic" { 0.0045 } else { 0.0006 };
            assert!((sizes.mean_bytes() / wire - k).abs() < tolerance, "{name}");
        }
    }

    #[test]
    fn message_rates_of_the_published_simulations() {
        let published = [("w1-analytic", 3.551e6), ("w2", 1.806e6), ("w4", 7027.0), ("w5", 356.9)];
        for (name, rate) in published {
            let sizes = Workload::parse(name).unwrap().sizes().unwrap();
            let mean = mean_counted_bytes(Basis::Paper, Framing::Udp, &sizes);
            let ours = per_second(0.8, 10_000_000_000, mean, 1.0);
            let tolerance = if name == "w1-analytic" { 0.007 } else { 1e-3 };
            assert!((ours / rate - 1.0).abs() < tolerance, "{name}: {ours}");
        }
    }
}
