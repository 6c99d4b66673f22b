//! Distributions written out in a plan: sizes with weights (`1000:4,10000000:1`), and the Pareto
//! law by its shape and mean (`pareto:1.05:100000`).
//!
//! A Pareto law of a shape near 1 has much of its mean in messages that a simulation never draws:
//! of shape 1.05 and mean 100 kB, half. Draws are cut at the largest message; the mean of
//! [`SizeDistribution`] is that of the draws, so that loads are realised.

use super::{MAX_BYTES, SizeDistribution, SizeStep};

/// The sizes of a mixture by increasing size; `None`: a size of 0, a weight of 0, or a size twice.
pub(super) fn mixture(parts: &[(u32, u32)]) -> Option<SizeDistribution> {
    let mut sorted = parts.to_vec();
    sorted.sort_unstable();
    let total: f64 = sorted.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let mut sum = 0.0;
    let mut steps: Vec<SizeStep> = Vec::with_capacity(sorted.len());
    for (bytes, weight) in sorted {
        let is_new = steps.last().is_none_or(|last| last.bytes < bytes);
        if !(1..=MAX_BYTES).contains(&bytes) || weight == 0 || !is_new {
            return None;
        }
        sum += f64::from(weight);
        steps.push(SizeStep { bytes, cumulative: sum / total });
    }
    steps.last_mut()?.cumulative = 1.0;
    Some(SizeDistribution::of_steps(steps))
}

/// Sizes of neighbouring steps differ by a third of a per cent.
const RATIO: f64 = 1.003_3;

/// A Pareto law in steps; `shape` in thousandths, above 1000; `None`: it has no mean, or its least
/// size is below a byte or above the largest message.
pub(super) fn pareto(shape: u32, mean: u32) -> Option<SizeDistribution> {
    if shape <= 1_000 {
        return None;
    }
    let shape = f64::from(shape) / 1e3;
    let least = f64::from(mean) * (shape - 1.0) / shape;
    if !(1.0..f64::from(MAX_BYTES)).contains(&least) {
        return None;
    }
    let share_up_to = |bytes: f64| 1.0 - libm::pow(least / bytes, shape);
    let mut steps: Vec<SizeStep> = Vec::new();
    let mut from = least;
    while from < f64::from(MAX_BYTES) {
        let to = (from * RATIO).max(from + 1.0);
        // The middle stands for all between.
        let bytes = (from * to).sqrt().round() as u32;
        steps.push(SizeStep { bytes: bytes.min(MAX_BYTES - 1), cumulative: share_up_to(to) });
        from = to;
    }
    steps.dedup_by_key(|step| step.bytes);
    steps.push(SizeStep { bytes: MAX_BYTES, cumulative: 1.0 });
    Some(SizeDistribution::of_steps(steps))
}

#[cfg(test)]
mod tests {
    use super::super::Workload;
    use super::*;

    #[test]
    fn a_mixture_has_its_sizes_in_their_shares() {
        let workload = Workload::parse("10000000:1,1000:4").unwrap();
        assert_eq!(workload.to_string(), "10000000:1,1000:4");
        let sizes = workload.sizes().unwrap();
        assert_eq!(sizes.shares().collect::<Vec<_>>().len(), 2);
        assert!((sizes.mean_bytes() - 2_000_800.0).abs() < 1e-6, "{}", sizes.mean_bytes());
        assert_eq!((sizes.quantile(0.8), sizes.quantile(0.81)), (1_000, 10_000_000));
        for wrong in ["0:1", "5:0", "5:1,5:2", "5:x", "5:1,", ":"] {
            let parsed = Workload::parse(wrong).map(|workload| workload.sizes());
            assert!(!matches!(parsed, Ok(Ok(_))), "{wrong}");
        }
    }

    #[test]
    fn hulls_pareto_law_has_the_shares_that_the_paper_prints() {
        // HULL §6.3: 95 % of the flows are below 100 kB, 0.03 % above 10 MB.
        let sizes = Workload::parse("pareto:1.05:100000").unwrap().sizes().unwrap();
        let below = sizes.share_of_messages(100_000);
        assert!((below - 0.959).abs() < 0.002, "{below}");
        let above = 1.0 - sizes.share_of_messages(10_000_000);
        assert!((above - 0.000_326).abs() < 0.000_01, "{above}");
        assert!((4_760..4_800).contains(&sizes.min_bytes()), "{}", sizes.min_bytes());
        // Half of the nominal mean is beyond the largest message.
        let mean = sizes.mean_bytes();
        assert!((48_000.0..53_000.0).contains(&mean), "{mean}");
        assert_eq!(sizes.max_bytes(), MAX_BYTES);
        for wrong in ["pareto:1.0:100000", "pareto:2", "pareto:1.05:1", "pareto:x:5"] {
            let parsed = Workload::parse(wrong).map(|workload| workload.sizes());
            assert!(!matches!(parsed, Ok(Ok(_))), "{wrong}");
        }
    }
}
