//! Demotion thresholds of PIAS (§4.2): after how many bytes sent a message's packets fall to the
//! next lower level, so that messages take the least time on average although no size is known.
//!
//! The paper sums M/M/1 delays of the levels, an approximation that it solves numerically. Here a
//! link is a server with levels, each first come, first served, and higher ones
//! interrupt lower ones, for which the mean is known exactly under Poisson arrivals (Kleinrock,
//! Queueing Systems II, §4.7). Sizes in units of the link's time, X a message's size, load ρ: one
//! that ends in the level between a and b bytes takes
//!
//! ```text
//! T(x) = (W(b) + x) / (1 - R(a))
//! W(b) = λ E[min(X, b)²] / (2 (1 - R(b)))
//! R(a) = λ E[min(X, a)]
//! ```
//!
//! The mean is a sum over levels of what depends on a level's two ends alone, so the best
//! thresholds of a set of candidates are the shortest way through it: found exactly, without a
//! start value. Left out: congestion control, acknowledgements, more than one link.

use crate::sizes::{SizeDistribution, Workload};

/// Candidates between the shortest and the longest message, geometrically apart.
const CANDIDATES: u32 = 400;

/// Levels of the network.
pub const LEVELS: u8 = 8;

/// The question about thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Share of the link that messages use, above 0 and below 1.
    pub load: f64,
    /// Priority levels, at least 1.
    pub levels: u8,
    /// Message bytes of a packet, at least 1: a packet has one level, so thresholds are multiples.
    pub packet: u32,
}

/// The best thresholds in bytes, ascending: one fewer than there are levels, or as many as messages
/// are long enough for.
pub fn optimal(sizes: &SizeDistribution, setting: Setting) -> Vec<u32> {
    let ends = candidates(sizes, setting.packet);
    let model = Model::new(sizes, setting.load, &ends);
    // By candidate: the least mean up to there, and from which one its level begins. Candidate 0 is
    // no byte at all.
    let mut least: Vec<f64> = (0..ends.len()).map(|to| model.level(0, to)).collect();
    let mut begins: Vec<Vec<usize>> = Vec::new();
    for _ in 1..setting.levels {
        let mut next = least.clone();
        let mut from = vec![0; ends.len()];
        for to in 1..ends.len() {
            (from[to], next[to]) = (0, model.level(0, to));
            for (middle, until) in least.iter().enumerate().take(to).skip(1) {
                let mean = until + model.level(middle, to);
                if mean < next[to] * (1.0 - 1e-12) {
                    (from[to], next[to]) = (middle, mean);
                }
            }
        }
        begins.push(from);
        least = next;
    }
    let mut at = ends.len() - 1;
    let mut thresholds = Vec::new();
    for from in begins.iter().rev() {
        at = from[at];
        if at == 0 {
            break;
        }
        thresholds.push(ends[at]);
    }
    thresholds.reverse();
    thresholds
}

/// The mean time of messages under thresholds in bytes, ascending, over that of a message alone.
pub fn mean_time(sizes: &SizeDistribution, setting: Setting, thresholds: &[u32]) -> f64 {
    let packet = setting.packet.max(1);
    let whole = |bytes: &u32| bytes.max(&1).div_ceil(packet).saturating_mul(packet);
    let longest = sizes.max_bytes();
    let mut ends: Vec<u32> = thresholds.iter().map(whole).filter(|&end| end < longest).collect();
    ends.dedup();
    ends.insert(0, 0);
    ends.push(longest);
    let model = Model::new(sizes, setting.load, &ends);
    (1..ends.len()).map(|to| model.level(to - 1, to)).sum::<f64>() / sizes.mean_bytes()
}

/// Thresholds that split the messages equally over the levels (PIAS §4.2, its simplest rule).
pub fn equal_split(sizes: &SizeDistribution, setting: Setting) -> Vec<u32> {
    let at = |level: u8| sizes.quantile(f64::from(level) / f64::from(setting.levels));
    let mut ends: Vec<u32> =
        (1..setting.levels).map(|level| at(level).max(setting.packet)).collect();
    ends.dedup();
    ends
}

/// Thresholds that were published for a workload at 80 % load: of W1 to W5 by the authors of Homa,
/// who ran PIAS (their scripts), of the others by those of PIAS (theirs).
pub const fn published(workload: &Workload) -> Option<[u32; 7]> {
    Some(match workload {
        Workload::W1 | Workload::W1Analytic => [183, 259, 287, 314, 332, 352, 367],
        Workload::W2 => [368, 410, 422, 435, 442, 451, 457],
        Workload::W3 => [436, 554, 633, 720, 784, 865, 939],
        Workload::W4 => [38_210, 48_958, 50_905, 68_384, 73_799, 76_588, 78_129],
        Workload::W5 | Workload::WebSearch => {
            [1_327_140, 1_940_340, 2_406_080, 2_861_600, 3_128_780, 3_412_020, 3_626_640]
        }
        Workload::DataMining => {
            [1_087_700, 1_581_180, 2_030_860, 19_985_940, 21_806_560, 30_877_540, 39_777_700]
        }
        _ => return None,
    })
}

/// Ends of levels: nothing, multiples of a packet, the longest message.
fn candidates(sizes: &SizeDistribution, packet: u32) -> Vec<u32> {
    let (packet, longest) = (packet.max(1), sizes.max_bytes());
    let ratio = (f64::from(longest) / f64::from(packet)).max(1.0);
    let at = |n: u32| {
        let packets = libm::pow(ratio, f64::from(n) / f64::from(CANDIDATES));
        (packets.round().max(1.0) as u32).saturating_mul(packet)
    };
    let mut ends: Vec<u32> = (0..CANDIDATES).map(at).filter(|&end| end < longest).collect();
    ends.insert(0, 0);
    ends.push(longest);
    ends.dedup();
    ends
}

/// Sums up to each candidate end.
struct Model {
    /// Share of messages beyond it, in bytes and in number: of those that end below.
    below: Vec<(f64, f64)>,
    /// R.
    used: Vec<f64>,
    /// W.
    wait: Vec<f64>,
}

impl Model {
    fn new(sizes: &SizeDistribution, load: f64, ends: &[u32]) -> Self {
        let rate = load / sizes.mean_bytes();
        let mut model = Self { below: Vec::new(), used: Vec::new(), wait: Vec::new() };
        let mut shares = sizes.shares().peekable();
        // Of messages that end at or below: number, bytes, squares.
        let (mut number, mut bytes, mut squares) = (0.0, 0.0, 0.0);
        for &end in ends {
            while let Some((size, share)) = shares.next_if(|(size, _)| *size <= end) {
                let size = f64::from(size);
                number += share;
                bytes += share * size;
                squares += share * size * size;
            }
            let (beyond, end) = (1.0 - number, f64::from(end));
            let used = rate * (bytes + beyond * end);
            model.below.push((number, bytes));
            model.used.push(used);
            model.wait.push(rate * (squares + beyond * end * end) / (2.0 * (1.0 - used)));
        }
        model
    }

    /// The part of the mean from messages that end in the level between two candidates.
    fn level(&self, from: usize, to: usize) -> f64 {
        let number = self.below[to].0 - self.below[from].0;
        let bytes = self.below[to].1 - self.below[from].1;
        (number * self.wait[to] + bytes) / (1.0 - self.used[from])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(load: f64, levels: u8) -> Setting {
        Setting { load, levels, packet: 1_460 }
    }

    fn sizes(name: &str) -> SizeDistribution {
        Workload::parse(name).unwrap().sizes().unwrap()
    }

    /// Of mean 100 packets, in steps of a packet.
    fn exponential() -> SizeDistribution {
        let mut text = "size_bytes,cumulative_fraction\n".to_owned();
        for n in 1..2_000_u32 {
            let below = 1.0 - libm::exp(-f64::from(n) / 100.0);
            text += &format!("{},{below}\n", n * 1_460);
        }
        SizeDistribution::from_csv(&(text + "2920000,1\n")).unwrap()
    }

    #[test]
    fn one_level_waits_as_pollaczek_and_khinchine_say() {
        for name in ["1460", "w4", "web-search"] {
            let sizes = sizes(name);
            let mean = sizes.mean_bytes();
            let square = sizes.mean_of(|bytes| f64::from(bytes) * f64::from(bytes));
            let expected = 1.0 + 0.8 * square / (2.0 * 0.2 * mean * mean);
            let ours = mean_time(&sizes, setting(0.8, 1), &[]);
            assert!((ours / expected - 1.0).abs() < 1e-9, "{name}: {ours} {expected}");
        }
    }

    #[test]
    fn no_threshold_helps_if_sent_bytes_predict_nothing() {
        let sizes = exponential();
        for thresholds in [&[14_600][..], &[146_000], &[14_600, 73_000, 146_000, 292_000]] {
            let mean = mean_time(&sizes, setting(0.8, 8), thresholds);
            assert!((mean / 5.0 - 1.0).abs() < 0.01, "{thresholds:?}: {mean}");
        }
    }

    #[test]
    fn no_other_thresholds_are_better() {
        for name in ["w2", "w3", "w4", "w5", "web-search", "data-mining", "imc10"] {
            let sizes = sizes(name);
            let best = optimal(&sizes, setting(0.8, 8));
            let mean = |thresholds: &[u32]| mean_time(&sizes, setting(0.8, 8), thresholds);
            let ours = mean(&best);
            assert!(best.len() <= 7 && best.is_sorted(), "{name}: {best:?}");
            assert!(best.iter().all(|end| end % 1_460 == 0), "{name}: {best:?}");
            let split = mean(&equal_split(&sizes, setting(0.8, 8)));
            assert!(ours <= split && ours < mean(&[]), "{name}: {ours} {split}");
            for (place, factor) in (0..best.len()).flat_map(|n| [(n, 0.8), (n, 1.25)]) {
                let mut other = best.clone();
                other[place] = (f64::from(other[place]) * factor) as u32;
                other.sort_unstable();
                assert!(ours <= mean(&other) * 1.001, "{name}: {best:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_shortest_way_is_the_best_of_all_pairs() {
        let sizes = sizes("imc10");
        let ends = candidates(&sizes, 1_460);
        let mean = |thresholds: &[u32]| mean_time(&sizes, setting(0.7, 3), thresholds);
        let pairs = ends[1..].iter().flat_map(|a| ends[1..].iter().map(move |b| [*a, *b]));
        let least = pairs.filter(|[a, b]| a < b).map(|pair| mean(&pair)).fold(f64::MAX, f64::min);
        let ours = mean(&optimal(&sizes, setting(0.7, 3)));
        assert!((ours / least - 1.0).abs() < 1e-9, "{ours} {least}");
    }

    #[test]
    fn messages_of_one_packet_need_no_threshold() {
        assert_eq!(optimal(&sizes("1000"), setting(0.8, 8)), Vec::<u32>::new());
        assert_eq!(optimal(&sizes("w4"), setting(0.8, 1)), Vec::<u32>::new());
    }
}
