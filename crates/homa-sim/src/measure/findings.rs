//! Two findings from journeys: the delays of messages near p99 (Homa Figure 11), and the ledger.

use std::ops::Range;

use homa_workload::interval::{BATCHES, jackknife};

use crate::scenario::outcome::{HopDelay, Ledger, LedgerParts, RanksDelay, TailDelay};

use super::journey::{HOPS, Journey, Wait};

/// Ranks of the messages that count as near p99, as shares.
const NEAR: (f64, f64) = (0.985, 0.995);
/// Alternative definitions of "near p99".
const AROUND: [(f64, f64); 3] = [(0.98, 1.0), (0.99, 0.999), (0.99, 1.0)];

/// The delays of the messages near p99 of their bin, over the bins of sizes up to `max_bytes`.
/// `bin` numbers the bins of sizes.
pub fn tail_delay(journeys: &[Journey], max_bytes: u32, bin: &dyn Fn(u32) -> usize) -> TailDelay {
    let short = || journeys.iter().filter(|journey| journey.bytes <= max_bytes);
    let count = short().count();
    // By bin, with the batch of consecutive deliveries.
    let mut bins: Vec<Vec<(usize, &Journey)>> = Vec::new();
    for (place, journey) in short().enumerate() {
        let index = bin(journey.bytes);
        if bins.len() <= index {
            bins.resize_with(index + 1, Vec::new);
        }
        bins[index].push((place * BATCHES / count, journey));
    }
    for bin in &mut bins {
        bin.sort_by_key(|(_, journey)| journey.latency);
    }
    let between = |ranks| between(&bins, ranks, None);
    let near = between(NEAR);
    let around = AROUND.map(|ranks| {
        let messages = between(ranks);
        let (preemption_lag_us, queueing_us) = mean_waits(&messages, 0..HOPS.len());
        let messages = messages.len() as u64;
        RanksDelay { from: ranks.0, to: ranks.1, messages, preemption_lag_us, queueing_us }
    });
    let by_hop = (0..HOPS.len()).map(|hop| {
        let (preemption_lag_us, queueing_us) = mean_waits(&near, hop..hop + 1);
        HopDelay { hop: HOPS[hop].to_owned(), preemption_lag_us, queueing_us }
    });
    let (preemption_lag_us, queueing_us) = mean_waits(&near, 0..HOPS.len());
    let without = |batch| mean_waits(&self::between(&bins, NEAR, Some(batch)), 0..HOPS.len());
    let batches = if count < BATCHES { 0 } else { BATCHES };
    let (lags, queueings): (Vec<f64>, Vec<f64>) = (0..batches).map(without).unzip();
    let ends = |us, without: &[f64]| jackknife(us, without).map(|end| end.map(|us| us.max(0.0)));
    TailDelay {
        max_bytes,
        messages: near.len() as u64,
        preemption_lag_us,
        queueing_us,
        preemption_lag_ci: ends(preemption_lag_us, &lags),
        queueing_ci: ends(queueing_us, &queueings),
        by_hop: by_hop.collect(),
        around: around.to_vec(),
    }
}

/// The messages of these ranks in each bin, sorted by latency. If a batch is given, its messages
/// are left out before ranking.
fn between<'a>(
    bins: &[Vec<(usize, &'a Journey)>],
    (from, to): (f64, f64),
    without: Option<usize>,
) -> Vec<&'a Journey> {
    let counts = |batch: usize| without != Some(batch);
    let of_bin = |bin: &Vec<(usize, &'a Journey)>| {
        let len = bin.iter().filter(|(batch, _)| counts(*batch)).count();
        let rank = |share: f64| (len as f64 * share) as usize;
        let others = bin.iter().filter(|(batch, _)| counts(*batch)).map(|(_, journey)| *journey);
        others.skip(rank(from)).take(rank(to) - rank(from)).collect::<Vec<_>>()
    };
    bins.iter().flat_map(of_bin).collect()
}

/// Mean preemption lag and queueing, summed over some places, in microseconds.
fn mean_waits(journeys: &[&Journey], hops: Range<usize>) -> (f64, f64) {
    let mean = |of: fn(&Wait) -> u64| {
        let waits = journeys.iter().flat_map(|journey| &journey.waits[hops.clone()]);
        waits.map(of).sum::<u64>() as f64 / journeys.len().max(1) as f64 / 1e6
    };
    (mean(|wait| wait.lag), mean(|wait| wait.queueing))
}

/// Mean parts of the latency: over all messages, over the slowest 1 % of each bin, and by bin.
pub fn ledger(
    journeys: &[Journey],
    unbalanced: u64,
    (bins, bin): (usize, &dyn Fn(u32) -> usize),
) -> Ledger {
    let mut by_bin: Vec<Vec<&Journey>> = vec![Vec::new(); bins];
    for journey in journeys {
        by_bin[bin(journey.bytes)].push(journey);
    }
    let mut tail = Vec::new();
    let mut tail_buckets = Vec::with_capacity(bins);
    for bin in &mut by_bin {
        bin.sort_by_key(|journey| journey.latency);
        let slowest = &bin[bin.len() * 99 / 100..];
        tail_buckets.push(means(slowest));
        tail.extend_from_slice(slowest);
    }
    let all: Vec<&Journey> = journeys.iter().collect();
    Ledger {
        mean: means(&all),
        tail: means(&tail),
        buckets: by_bin.iter().map(|bin| means(bin)).collect(),
        tail_buckets,
        unbalanced,
    }
}

fn means(journeys: &[&Journey]) -> LedgerParts {
    let count = journeys.len().max(1) as f64;
    let mean = |part: fn(&Journey) -> u64| {
        journeys.iter().map(|journey| part(journey) as f64).sum::<f64>() / count / 1e6
    };
    LedgerParts {
        sender_queue_us: mean(|journey| journey.sender_queue),
        grant_wait_us: mean(|journey| journey.grant_wait),
        wire_us: mean(|journey| journey.wire),
        fabric_queue_us: mean(|journey| journey.fabric_queue),
        recovery_us: mean(|journey| journey.recovery),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journey(latency: u64, lag: u64) -> Journey {
        let mut journey = Journey { bytes: 10, latency, wire: latency, ..Journey::default() };
        journey.waits[3] = Wait { lag, queueing: 0 };
        journey
    }

    #[test]
    fn the_tail_consists_of_ranks_around_p99() {
        // Ranks 985 to 994 of 1000 waited for 2 us, the others did not.
        let journeys: Vec<Journey> = (0..1000)
            .map(|n| journey(n * 1_000_000, if (985..995).contains(&n) { 2_000_000 } else { 0 }))
            .collect();
        let tail = tail_delay(&journeys, 10, &|_| 0);
        assert_eq!((tail.messages, tail.preemption_lag_us, tail.queueing_us), (10, 2.0, 0.0));
        assert_eq!(tail.by_hop[3].preemption_lag_us, 2.0);
        // All of these are in one batch. Without it none remain, so the interval is wide.
        let [low, high] = tail.preemption_lag_ci.map(Option::unwrap);
        assert!(low < 2.0 && high > 2.0 && tail.queueing_ci == [Some(0.0); 2], "{low} {high}");
        let steady: Vec<Journey> = (0..1000).map(|n| journey(n, 2_000_000)).collect();
        let steady = tail_delay(&steady, 10, &|_| 0);
        assert_eq!(steady.preemption_lag_ci, [Some(2.0); 2]);
        assert_eq!(tail_delay(&journeys[..19], 10, &|_| 0).preemption_lag_ci, [None; 2]);
        let waited = |ranks: &RanksDelay| {
            let all = ranks.preemption_lag_us * ranks.messages as f64;
            (ranks.messages, all.round())
        };
        let around = tail.around.iter().map(waited);
        // Ten of the ranks 980 to 999 waited, and five each of 990 to 998 and 990 to 999.
        let expected = [(20, 20.0), (9, 10.0), (10, 10.0)];
        assert_eq!(around.collect::<Vec<_>>(), expected);
        assert_eq!(tail_delay(&journeys, 9, &|_| 0).messages, 0, "larger than asked for");
        let ledger = ledger(&journeys, 0, (1, &|_| 0));
        assert_eq!(ledger.tail.wire_us, 994.5);
        assert_eq!(ledger.mean.wire_us, 499.5);
    }
}
