//! The choice of a packet's path: the sender permutes all paths, uses each once, and permutes again
//! (NDP §3.1.1). Paths with unusually many NACKs are avoided for a while. The rule is that of the
//! authors' code: a path is bad if it had more than 100 answers, its NACKs exceed 30 per cent of
//! its ACKs, and that share is more than 1.25 times the mean. Each answer for which a path is bad
//! makes it skip one more round; each other answer makes it skip one fewer.

use std::collections::BTreeMap;

use homa_workload::rng::Rng;

use crate::topology::HostId;

use super::NdpConfig;

/// See the module's description.
#[derive(Debug)]
pub(super) struct NdpPaths {
    count: u16,
    avoids: bool,
    rng: Rng,
    /// By destination.
    routes: BTreeMap<u32, PathOrder>,
}

/// The paths to a host.
#[derive(Clone, Debug)]
struct PathOrder {
    order: Vec<u16>,
    at: usize,
    /// By path.
    scores: Vec<Score>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Score {
    acks: u32,
    nacks: u32,
    /// Rounds that the path skips after each round in which it is used.
    avoid: u32,
    /// How many of them are left.
    left: u32,
}

impl NdpPaths {
    pub fn new(config: &NdpConfig, host: HostId, life: u32) -> Self {
        let own = u64::from(host.0) << 16 ^ u64::from(life) << 48;
        Self {
            count: config.paths.clamp(1, 4_096) as u16,
            avoids: config.avoid_bad_paths,
            rng: Rng::stream(config.seed ^ own, "paths"),
            routes: BTreeMap::new(),
        }
    }

    fn route(&mut self, to: HostId) -> (&mut PathOrder, &mut Rng) {
        let count = self.count;
        let fresh = || PathOrder {
            order: (0..count).collect(),
            at: usize::from(count),
            scores: vec![Score::default(); usize::from(count)],
        };
        (self.routes.entry(to.0).or_insert_with(fresh), &mut self.rng)
    }

    /// The path of the next packet to a host.
    pub fn next(&mut self, to: HostId) -> u16 {
        if self.count == 1 {
            return 0;
        }
        let (route, rng) = self.route(to);
        // Every round that a path skips brings it closer to its next use, so the loop ends.
        loop {
            if route.at == route.order.len() {
                permute(rng, &mut route.order);
                route.at = 0;
            }
            let path = route.order[route.at];
            route.at += 1;
            let score = &mut route.scores[usize::from(path)];
            if score.left == 0 {
                score.left = score.avoid;
                return path;
            }
            score.left -= 1;
        }
    }

    /// A packet arrived whole.
    pub fn acknowledged(&mut self, to: HostId, path: u16) {
        self.count_answer(to, path, (1, 0));
    }

    /// A packet arrived without its payload (weight 1), or returned to its sender (weight 3).
    pub fn refused(&mut self, to: HostId, path: u16, weight: u32) {
        self.count_answer(to, path, (0, weight));
    }

    fn count_answer(&mut self, to: HostId, path: u16, (acks, nacks): (u32, u32)) {
        if !self.avoids || path >= self.count || self.count == 1 {
            return;
        }
        let (route, _) = self.route(to);
        let score = &mut route.scores[usize::from(path)];
        score.acks += acks;
        score.nacks += nacks;
        let Score { acks, nacks, .. } = *score;
        let all = route.scores.iter().fold((0, 0), |(a, n), s| (a + s.acks, n + s.nacks));
        let percent = |(acks, nacks): (u32, u32)| nacks * 100 / acks.max(1);
        let share = if acks > 10 { percent((acks, nacks)) } else { 0 };
        let mean = if all.0 > 0 { percent(all) } else { 100 };
        let bad = acks + nacks > 100 && share * 4 > mean * 5 && share > 30;
        let avoid = &mut route.scores[usize::from(path)].avoid;
        *avoid = if bad { *avoid + 1 } else { avoid.saturating_sub(1) };
    }
}

/// The Fisher-Yates shuffle.
fn permute(rng: &mut Rng, order: &mut [u16]) {
    for last in (1..order.len()).rev() {
        order.swap(last, rng.uniform_below(last as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ndp::tests::CONFIG;

    fn paths(avoid_bad_paths: bool) -> NdpPaths {
        NdpPaths::new(&NdpConfig { paths: 4, avoid_bad_paths, ..CONFIG }, HostId(0), 0)
    }

    #[test]
    fn each_round_uses_each_path_once_and_rounds_differ() {
        let mut paths = paths(true);
        let rounds: Vec<[u16; 4]> =
            (0..40).map(|_| std::array::from_fn(|_| paths.next(HostId(1)))).collect();
        for round in &rounds {
            let mut sorted = *round;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(rounds.iter().any(|round| *round != rounds[0]));
    }

    #[test]
    fn a_path_that_trims_more_than_others_is_avoided_for_a_while() {
        let mut paths = paths(true);
        let share = |paths: &mut NdpPaths| {
            (0..4_000).filter(|_| paths.next(HostId(1)) == 2).count() as f64 / 4_000.0
        };
        for _ in 0..200 {
            (0..4).for_each(|path| paths.acknowledged(HostId(1), path));
            paths.refused(HostId(1), 2, 1);
        }
        let avoided = share(&mut paths);
        assert!(avoided < 0.05, "{avoided}");
        (0..2_000).for_each(|_| paths.acknowledged(HostId(1), 2));
        // The first batch uses up the rounds that the path still skips.
        let (_, again) = (share(&mut paths), share(&mut paths));
        assert!((0.24..0.26).contains(&again), "{again}");
        assert!((0.24..0.26).contains(&share(&mut self::paths(false))));
    }

    #[test]
    fn no_path_is_avoided_if_all_are_congested() {
        let mut paths = paths(true);
        for _ in 0..400 {
            (0..4).for_each(|path| {
                paths.acknowledged(HostId(1), path);
                paths.refused(HostId(1), path, 1);
            });
        }
        assert!(paths.routes[&1].scores.iter().all(|score| score.avoid == 0));
    }
}
