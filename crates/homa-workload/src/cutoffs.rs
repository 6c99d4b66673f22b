//! Priority cutoffs for a known size distribution, by the rule of the simulator behind the Homa
//! paper (§5.2), which computes them in advance where the paper's text measures them.
//!
//! Counted are the wire bytes of each packet that starts within the first RTTbytes of its message
//! or lies in the last ones (those travel at unscheduled levels too), weighted by how often its
//! message occurs; grants count as bytes of the highest level. A cutoff is the first size at which
//! the bytes so far reach a level's share.

use std::collections::BTreeMap;

use crate::framing::{Framing, MIN_FRAME, PAPER_UNSCHEDULED};
use crate::sizes::{SizeDistribution, Workload};

/// How the simulator behind the paper divides eight levels for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Levels for scheduled bytes, and the degree of overcommitment.
    pub scheduled_levels: u8,
    /// The largest bytes left of each unscheduled level but the lowest, from the highest level on.
    pub cutoffs: &'static [u32],
}

/// The split configured for W1 to W5, with the cutoffs that the rule then yields (those of W1 from
/// a table of its analytic form, cut at the 99.9th percentile); `None` for others.
pub const fn configured(workload: &Workload) -> Option<Split> {
    let (scheduled_levels, cutoffs): (u8, &[u32]) = match workload {
        Workload::W1 | Workload::W1Analytic => (1, &[11, 125, 273, 468, 764, 1_275]),
        Workload::W2 => (3, &[269, 366, 512, 1_463]),
        Workload::W3 => (4, &[433, 2_339, 6_756]),
        Workload::W4 | Workload::W5 => (7, &[]),
        _ => return None,
    };
    Some(Split { scheduled_levels, cutoffs })
}

/// The size to which a packet's bytes are attributed, and with which cutoffs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutoffSize {
    /// The length of its message (Homa §3.4).
    MessageLength,
    /// The bytes of its message left to send, itself included (the authors' simulator).
    BytesLeft,
}

/// The parameters of the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CutoffRule {
    /// Levels for unscheduled bytes, at least 1: one more than there are cutoffs.
    pub unscheduled_levels: u8,
    /// The size that is compared with the cutoffs.
    pub by: CutoffSize,
    /// Message bytes that are sent without a grant.
    pub unscheduled_bytes: u32,
    /// Packets that start within this many wire bytes of a message's start count.
    pub first_wire_bytes: u64,
    /// Packets with fewer than this many wire bytes left to send, themselves included, count; 0:
    /// none do.
    pub last_wire_bytes: u64,
    /// How many times the bytes of a level the next lower one gets; 1 gives all the same.
    pub weight: f64,
}

impl CutoffRule {
    /// As configured for the paper's figures: 10,000 wire bytes of each end of a message, equal
    /// shares.
    pub const fn simulator(unscheduled_levels: u8) -> Self {
        Self {
            unscheduled_levels,
            by: CutoffSize::BytesLeft,
            unscheduled_bytes: PAPER_UNSCHEDULED as u32,
            first_wire_bytes: 10_000,
            last_wire_bytes: 10_000,
            weight: 1.0,
        }
    }

    /// The cutoffs, ascending: the largest size of each unscheduled level but the lowest, from the
    /// highest level on. Fewer when a few sizes hold most bytes.
    pub fn cutoffs(&self, sizes: &SizeDistribution) -> Vec<u32> {
        let bytes = self.bytes_by_size(sizes);
        let total: f64 = bytes.values().sum();
        let levels = i32::from(self.unscheduled_levels.max(1));
        let units: f64 = (0..levels).map(|level| self.weight.powi(level)).sum();
        let mut cutoffs = Vec::new();
        let mut cumulative = bytes.iter().scan(0.0, |sum, (&size, &bytes)| {
            *sum += bytes / total;
            Some((size, *sum))
        });
        let mut share = 0.0;
        for level in 0..levels - 1 {
            share += self.weight.powi(level) / units;
            if let Some((size, _)) = cumulative.find(|(_, sum)| *sum >= share) {
                cutoffs.push(size);
            }
        }
        cutoffs
    }

    /// Mean wire bytes per message that count, by the size they are attributed to.
    fn bytes_by_size(&self, sizes: &SizeDistribution) -> BTreeMap<u32, f64> {
        let mut bytes = BTreeMap::new();
        let mut before = 0.0;
        for step in sizes.steps() {
            let frequency = step.cumulative - before;
            before = step.cumulative;
            self.count(step.bytes, frequency, &mut bytes);
        }
        bytes
    }

    fn count(&self, length: u32, frequency: f64, bytes: &mut BTreeMap<u32, f64>) {
        let total: u64 = self.packets(length).map(|p| p.wire_bytes).sum();
        let mut sent = 0;
        for packet in self.packets(length) {
            let counts = sent < self.first_wire_bytes || total - sent < self.last_wire_bytes;
            let size = match self.by {
                CutoffSize::MessageLength => length,
                CutoffSize::BytesLeft => length - packet.offset,
            };
            if counts {
                *bytes.entry(size).or_default() += frequency * packet.wire_bytes as f64;
            }
            if packet.offset >= self.unscheduled_bytes {
                *bytes.entry(0).or_default() += frequency * MIN_FRAME as f64;
            }
            sent += packet.wire_bytes;
        }
    }

    fn packets(&self, length: u32) -> impl Iterator<Item = CountedPacket> {
        let first = self.unscheduled_bytes.min(length);
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (kind, limit) = match offset < first {
                true => (Framing::Paper.first(), first),
                false => (Framing::PAPER_SCHEDULED, length),
            };
            let bytes = (kind.payload as u32).min(limit - offset);
            let packet = CountedPacket { offset, wire_bytes: kind.frame(u64::from(bytes)) };
            offset += bytes;
            (bytes > 0).then_some(packet)
        })
    }
}

/// A packet of a message.
struct CountedPacket {
    offset: u32,
    wire_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Workload;

    fn cutoffs(workload: Workload, rule: CutoffRule) -> Vec<u32> {
        rule.cutoffs(&workload.sizes().unwrap())
    }

    /// W1 as the rule's authors tabulate it: the values of at most 15 bytes (Atikoglu et al. 2012),
    /// then a thousand steps of the generalised Pareto distribution up to 99.9 %.
    fn w1_in_steps() -> SizeDistribution {
        let mut rows: Vec<(u32, f64)> = [
            (1, 0.00583),
            (2, 0.18403),
            (3, 0.27642),
            (4, 0.2766),
            (5, 0.304),
            (6, 0.30465),
            (7, 0.31071),
            (8, 0.31094),
            (9, 0.31931),
            (10, 0.32768),
            (11, 0.41757),
            (12, 0.41849),
            (13, 0.42175),
            (14, 0.44155),
            (15, 0.47),
        ]
        .to_vec();
        let (shape, scale, step) = (0.348238, 214.476, (0.999 - 0.47) / 1000.0);
        let mut u = 0.47 + step;
        while u <= 0.999 {
            let ratio: f64 = (1.0 - 0.47) / (1.0 - u);
            let size = (15.0 + (ratio.powf(shape) - 1.0) * scale / shape).round() as u32;
            rows.retain(|row| row.0 != size);
            rows.push((size, u));
            u += step;
        }
        rows.last_mut().unwrap().1 = 1.0;
        let table: String = rows.iter().map(|(size, u)| format!("{size},{u}\n")).collect();
        SizeDistribution::from_csv(&format!("size_bytes,cumulative_fraction\n{table}")).unwrap()
    }

    #[test]
    fn the_configured_tables_come_out_of_the_rule() {
        for workload in [Workload::W2, Workload::W3, Workload::W4, Workload::W5] {
            let split = configured(&workload).unwrap();
            let rule = CutoffRule::simulator(8 - split.scheduled_levels);
            assert_eq!(rule.cutoffs(&workload.sizes().unwrap()), split.cutoffs, "{workload:?}");
        }
        let w1 = configured(&Workload::W1).unwrap();
        assert_eq!(CutoffRule::simulator(7).cutoffs(&w1_in_steps()), w1.cutoffs);
        // The table of 307 sizes has fewer large ones.
        let coarse = cutoffs(Workload::W1, CutoffRule::simulator(7));
        assert_eq!(coarse, [11, 131, 280, 489, 794, 1_360]);
    }

    #[test]
    fn by_message_length_the_rule_gives_the_implementations_tables() {
        let length = |sizes: SizeDistribution, levels| {
            let by = CutoffSize::MessageLength;
            CutoffRule { by, ..CutoffRule::simulator(levels) }.cutoffs(&sizes)
        };
        assert_eq!(length(w1_in_steps(), 7), [11, 126, 279, 484, 820, 1_543]);
        assert_eq!(length(Workload::W2.sizes().unwrap(), 5), [269, 366, 512, 2_156]);
        assert_eq!(length(Workload::W3.sizes().unwrap(), 4), [469, 5_521, 15_267]);
    }

    #[test]
    fn weights_below_one_leave_less_to_lower_levels() {
        let of = |weight| cutoffs(Workload::W3, CutoffRule { weight, ..CutoffRule::simulator(4) });
        let (less, equal, more) = (of(0.5), of(1.0), of(2.0));
        for level in 0..3 {
            assert!(less[level] > equal[level] && equal[level] > more[level], "{less:?} {more:?}");
        }
    }

    #[test]
    fn one_size_has_no_room_for_many_cutoffs() {
        let sizes = SizeDistribution::constant(100).unwrap();
        assert_eq!(CutoffRule::simulator(3).cutoffs(&sizes), [100]);
    }
}
