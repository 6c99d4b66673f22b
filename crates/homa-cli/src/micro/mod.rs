//! `homa bench --micro`: latency, rate and throughput of Homa beside honest rivals on one veth
//! pair.
//!
//! Rivals and Homa take turns in rounds and the medians over the rounds are reported, so a
//! disturbance of the machine hits every row alike. Left out: load and mixed sizes, which the main
//! job of `homa bench` measures.

mod async_rows;
mod echo;
mod framing;
mod homa_rows;
mod pair;
mod plan;
#[cfg(feature = "quinn")]
mod quinn_rows;
mod report;
mod shards;
mod stats;
mod tcp_batched;
#[cfg(feature = "tonic")]
mod tonic_rows;

use std::sync::Arc;
use std::time::Duration;

use homa_workload::rng::Rng;
use homa_workload::sizes::Workload;

use crate::failure::{Failure, Hint};
use crate::output::{Format, Progress, json};
use pair::Pair;
use plan::Plan;
#[cfg(feature = "grpc")]
pub use stats::median;

/// Rounds over which the medians are taken.
const ROUNDS: u32 = 5;

/// Sizes of the fan-out rows: the same for every transport.
fn sizes_of_w1(seed: u64) -> Result<Arc<[u32]>, Failure> {
    let sizes = Workload::W1.sizes().hint("this is a bug in homa: its table W1 is unreadable")?;
    let mut rng = Rng::stream(seed, "micro sizes");
    Ok((0..4096).map(|_| sizes.sample(&mut rng)).collect())
}

/// Measures every row whose name contains one of the texts in `only` (without any: all) for `time`
/// in all, with IP packets of up to `mtu` bytes, and prints the report.
pub fn run(
    time: Duration,
    only: &[String],
    mtu: u16,
    seed: u64,
    format: Format,
) -> Result<(), Failure> {
    let mut plan = Plan::new(sizes_of_w1(seed)?);
    if !only.is_empty() {
        let names = plan.names();
        if let Some(text) = only.iter().find(|text| !names.iter().any(|n| n.contains(*text))) {
            let error = anyhow::anyhow!("no row of --micro has `{text}` in its name");
            return Err(Failure::new(error, format!("choose --only among: {}", names.join(", "))));
        }
        plan.keep_only(only);
    }
    let pair = Pair::build(mtu).hint("`homa doctor` names the setting that decides")?;
    if let Some(why) = homa_rows::without_xdp(&pair)
        && plan.leave_out_xdp()
    {
        if plan.rows() == 0 {
            let error = anyhow::anyhow!("there are no rows over AF_XDP here: {why}");
            return Err(Failure::new(error, "`homa doctor` says what AF_XDP needs"));
        }
        eprintln!("rows over AF_XDP (homa-xdp) are left out: {why}");
    }
    let rounds = time.mul_f64(1.0 / f64::from(ROUNDS));
    let progress = Progress::new(time * plan.rows());
    let mut finished = 0;
    for round in 1..=ROUNDS {
        progress.step(&format!("round {round} of {ROUNDS}"));
        plan.round(&pair, rounds, || {
            finished += 1;
            progress.spent(rounds * finished);
        })
        .hint("run it again on an idle machine; `homa doctor` shows what this machine can do")?;
    }
    progress.finish();
    let report = plan.report();
    match format {
        Format::Json => json(&report),
        Format::Table => {
            report.print();
            Ok(())
        }
    }
}
