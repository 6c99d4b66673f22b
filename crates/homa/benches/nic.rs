//! Measures the pacer with a model of a network card, in virtual time: `cargo bench -p homa-rpc
//! --bench nic`.
//!
//! The rows are all combinations of links, completion intervals and host steps. The steps are
//! equal, or vary with one of five seeds. A row shows the achieved share of the possible rate, and
//! the largest number of wire bytes queued beyond the bytes that must be queued between two
//! completions. Only rows that miss a limit are printed, and at the end the worst row of each kind.
//! The program fails if a row with equal steps misses a limit. Rows with varying steps show how
//! large the margins are. Words on the command line choose the rows that contain all of them, and
//! print these rows in any case.

// The pacer is private to the crate. Its model of a card is used only by tests and this program.
#[allow(unused, reason = "the engine and the tests use the rest")]
#[path = "../src/pacer/mod.rs"]
mod pacer;

use homa_proto::{Duration, FULL_FRAME, Rate};
use pacer::card::{Knowledge, run};

/// The seeds of the host steps. 0 means equal steps.
const STEPS: std::ops::RangeInclusive<u64> = 0..=5;

/// The worst results of the cells of one kind.
struct Worst {
    cells: u32,
    missed: u32,
    share: f64,
    excess: i64,
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    println!(
        "seed Gbit/s  every   step  rate            share  queue beyond  most  questions  estimate"
    );
    let (mut missed, mut chosen) = ([0, 0], 0);
    for seed in STEPS {
        for knowledge in Knowledge::ALL {
            let worst = kind(seed, knowledge, &words);
            if worst.cells == 0 {
                continue;
            }
            chosen += worst.cells;
            missed[usize::from(seed > 0)] += worst.missed;
            println!(
                "{seed:4} {:12} {:3} missed, least share {:5.1} %, largest queue beyond {} B",
                format!("{knowledge:?}"),
                worst.missed,
                100.0 * worst.share,
                worst.excess,
            );
        }
    }
    if chosen == 0 {
        eprintln!(
            "no row contains all of {words:?}: leave words out, or name what rows begin with"
        );
        return std::process::ExitCode::from(2);
    }
    let [alike, varied] = missed;
    println!("{alike} missed by steps that are all alike, {varied} by steps that vary");
    std::process::ExitCode::from(u8::from(alike > 0))
}

fn kind(seed: u64, knowledge: Knowledge, words: &[String]) -> Worst {
    let mut worst = Worst { cells: 0, missed: 0, share: f64::MAX, excess: i64::MIN };
    for mbps in [100u32, 1_000, 10_000, 25_000, 40_000, 100_000] {
        for every in [1, 10, 50, 100] {
            for step in [500u32, 2_000, 10_000] {
                let row = format!(
                    "{seed:4} {:6.1} {every:3} µs {:4.1} µs  {:12}",
                    f64::from(mbps) / 1000.0,
                    f64::from(step) / 1000.0,
                    format!("{knowledge:?}"),
                );
                if !words.iter().all(|word| row.contains(word)) {
                    continue;
                }
                let rate = Rate::mbps(u64::from(mbps));
                let mut cell =
                    knowledge.cell(rate, Duration::micros(every), Duration(u64::from(step)));
                cell.seed = seed;
                let out = run(&cell);
                let bad =
                    out.share < knowledge.least_share() || out.excess > i64::from(2 * FULL_FRAME);
                worst.cells += 1;
                worst.missed += u32::from(bad);
                worst.share = worst.share.min(out.share);
                worst.excess = worst.excess.max(out.excess);
                if bad || !words.is_empty() {
                    println!(
                        "{row}  {:6.1} % {:11} B {:5} {:10.2} {:9.2} {}",
                        100.0 * out.share,
                        out.excess,
                        out.most,
                        out.questions,
                        out.estimate.map_or(0.0, |rate| rate.0 as f64 / 1e9),
                        if bad { "MISSED" } else { "" },
                    );
                }
            }
        }
    }
    worst
}
