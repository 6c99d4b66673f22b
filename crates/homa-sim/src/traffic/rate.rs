//! Load arithmetic of patterns: from a share of the links to messages per second.

use homa_workload::framing::Framing;
use homa_workload::sizes::SizeDistribution;

use crate::scenario::demand::Basis;

/// What messages cost on the wire under a scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    framing: Framing,
    /// Message bytes of a full packet.
    payload: u32,
    /// The number of packets of a message, ascending, and the wire bytes that hosts send for it
    /// beyond those that the framing counts.
    beyond: Vec<(f64, f64)>,
}

impl Price {
    /// The price of data in this framing alone.
    pub const fn of_data(framing: Framing) -> Self {
        Self { framing, payload: 1, beyond: Vec::new() }
    }

    /// The price of everything that hosts send. `sent` has some messages: the bytes of each,
    /// ascending, and the wire bytes that were sent for it. A full packet has `payload` bytes of a
    /// message.
    pub fn of_everything(framing: Framing, payload: u32, sent: &[(u32, f64)]) -> Self {
        let packets = |bytes: u32| f64::from(bytes.div_ceil(payload));
        let beyond =
            |&(bytes, wire): &(u32, f64)| (packets(bytes), wire - framing.wire_bytes(bytes) as f64);
        Self { framing, payload, beyond: sent.iter().map(beyond).collect() }
    }

    /// Bytes that a message counts for, under a load's definition (Homa §5.2; with the authors'
    /// headers k = .657 .796 .887 .898 .898 for W1 to W5).
    pub fn counted_bytes(&self, basis: Basis, bytes: u32) -> f64 {
        let own = || self.framing.wire_bytes(bytes) as f64;
        match basis {
            Basis::Paper => Framing::Paper.wire_bytes(bytes) as f64,
            Basis::Wire => own(),
            Basis::Everything => own() + self.beyond(f64::from(bytes.div_ceil(self.payload))),
            Basis::Payload => f64::from(bytes),
        }
    }

    /// Mean of [`Self::counted_bytes`] over a distribution.
    pub fn mean_counted_bytes(&self, basis: Basis, sizes: &SizeDistribution) -> f64 {
        sizes.mean_of(|bytes| self.counted_bytes(basis, bytes))
    }

    /// Wire bytes beyond the framing's of a message of this many packets: on the line through the
    /// two nearest points.
    fn beyond(&self, packets: f64) -> f64 {
        let next = self.beyond.partition_point(|(known, _)| *known < packets);
        let last = self.beyond.len().saturating_sub(1);
        match self.beyond[..] {
            [] => 0.0,
            [(_, bytes)] => bytes,
            ref points => {
                let at = next.clamp(1, last);
                let ((from, low), (to, high)) = (points[at - 1], points[at]);
                low + (high - low) * (packets - from) / (to - from)
            }
        }
    }
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

    const PRICE: Price = Price::of_data(Framing::Udp);

    #[test]
    fn prices_lie_on_lines_between_the_known_messages() {
        let framing = Framing::Plain;
        let data = |bytes| framing.wire_bytes(bytes) as f64;
        let known = [(1_460, 200.0), (2_920, 284.0), (5_840, 452.0)];
        let sent = known.map(|(bytes, control)| (bytes, data(bytes) + control));
        let price = Price::of_everything(framing, 1_460, &sent);
        let control = |bytes| price.counted_bytes(Basis::Everything, bytes) - data(bytes);
        for (bytes, wanted) in [(1, 200.0), (1_461, 284.0), (3_000, 368.0), (14_600, 956.0)] {
            assert!((control(bytes) - wanted).abs() < 1e-6, "{bytes}: {}", control(bytes));
        }
        let one = Price::of_everything(framing, 1_460, &sent[..1]);
        assert_eq!(one.counted_bytes(Basis::Everything, 9_000), data(9_000) + 200.0);
        assert_eq!(PRICE.counted_bytes(Basis::Everything, 1), Framing::Udp.wire_bytes(1) as f64);
    }

    #[test]
    fn the_authors_goodput_factors() {
        let published =
            [("w1-analytic", 0.657), ("w2", 0.796), ("w3", 0.887), ("w4", 0.898), ("w5", 0.898)];
        for (name, k) in published {
            let sizes = Workload::parse(name).unwrap().sizes().unwrap();
            let wire = PRICE.mean_counted_bytes(Basis::Paper, &sizes);
            let tolerance = if name == "w1-analytic" { 0.0045 } else { 0.0006 };
            assert!((sizes.mean_bytes() / wire - k).abs() < tolerance, "{name}");
        }
    }

    #[test]
    fn message_rates_of_the_published_simulations() {
        let published = [("w1-analytic", 3.551e6), ("w2", 1.806e6), ("w4", 7027.0), ("w5", 356.9)];
        for (name, rate) in published {
            let sizes = Workload::parse(name).unwrap().sizes().unwrap();
            let mean = PRICE.mean_counted_bytes(Basis::Paper, &sizes);
            let ours = per_second(0.8, 10_000_000_000, mean, 1.0);
            let tolerance = if name == "w1-analytic" { 0.007 } else { 1e-3 };
            assert!((ours / rate - 1.0).abs() < tolerance, "{name}: {ours}");
        }
    }
}
