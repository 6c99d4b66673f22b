//! W1 as its model gives it, not as a table: value sizes of the memcached pool ETC (B. Atikoglu et
//! al., SIGMETRICS 2012, §5), which the simulations of Homa §5.2 draw from.
//!
//! The first fifteen sizes are tabulated; the rest is a generalized Pareto law with location 15,
//! rounded to whole bytes. It has no end; as in the authors' code it is cut at 2^30 bytes. Written
//! as steps it is exact up to [`EXACT`] bytes; above, where 0.2 % of the messages are, sizes are
//! rounded up to the next step of 0.1 %.

use super::SizeStep;

/// Cumulative shares of sizes 1 to 14.
const DISCRETE: [f64; 14] = [
    0.00583, 0.18403, 0.27642, 0.27660, 0.30400, 0.30465, 0.31071, 0.31094, 0.31931, 0.32768,
    0.41757, 0.41849, 0.42175, 0.44155,
];
/// Share of messages in the discrete part, sizes up to 15.
const DISCRETE_SHARE: f64 = 0.47;
const LOCATION: f64 = 15.0;
const SCALE: f64 = 214.476;
const SHAPE: f64 = 0.348238;
/// Every size up to here is a separate step.
const EXACT: u32 = 4096;
const LARGEST: u32 = 1 << 30;

/// The steps of the model.
pub(super) fn steps() -> Vec<SizeStep> {
    let mut steps: Vec<SizeStep> =
        (1..).zip(DISCRETE).map(|(bytes, cumulative)| SizeStep { bytes, cumulative }).collect();
    let mut bytes = LOCATION as u32;
    while bytes < LARGEST {
        steps.push(SizeStep { bytes, cumulative: share_up_to(bytes) });
        bytes += if bytes < EXACT { 1 } else { bytes / 1000 };
    }
    steps.push(SizeStep { bytes: LARGEST, cumulative: 1.0 });
    steps
}

/// Share of messages that round to at most `bytes`, from 15 on.
fn share_up_to(bytes: u32) -> f64 {
    let beyond = f64::from(bytes) + 0.5 - LOCATION;
    let tail = libm::pow(1.0 + SHAPE * beyond / SCALE, -1.0 / SHAPE);
    1.0 - (1.0 - DISCRETE_SHARE) * tail
}

#[cfg(test)]
mod tests {
    use super::super::{SizeDistribution, Workload};

    fn model() -> SizeDistribution {
        Workload::W1Analytic.sizes().unwrap()
    }

    #[test]
    fn its_mean_is_the_one_the_authors_quote() {
        let mean = model().mean_bytes();
        assert!((mean - 185.1).abs() < 0.2, "{mean}");
    }

    #[test]
    fn the_inverse_is_the_formula_of_the_model() {
        let model = model();
        for u in [0.3, 0.48, 0.6, 0.9, 0.99] {
            let tail = libm::pow(0.53 / (1.0 - u), 0.348238) - 1.0;
            let formula = (15.0 + 214.476 / 0.348238 * tail).round();
            let expected = if u == 0.3 { 5 } else { formula as u32 };
            assert_eq!(model.quantile(u), expected, "{u}");
        }
    }

    #[test]
    fn the_table_is_a_sample_of_it() {
        let table = Workload::W1.sizes().unwrap();
        let model = model();
        for bytes in [1, 2, 11, 15, 100, 500, 2000, 20_000] {
            let (table, model) = (table.share_of_messages(bytes), model.share_of_messages(bytes));
            assert!((table - model).abs() < 0.02, "{bytes}: {table} {model}");
        }
    }
}
