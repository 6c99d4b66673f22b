//! The servers of a balancer and what is known of them: who gets the next call.
//!
//! Invariants: a server that is no member any more gets no call, and is kept until its calls have
//! ended. A server gets no call while one of a better priority is healthy. If all servers are
//! ejected, those of the best priority are candidates, and then, for retries, the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::budget::{AttemptBudget, RecentTimes};
use super::choose::{Draws, Estimate, Rank, Standing, first_gets_it, two};
use super::health::{AttemptEnd, Health};
use super::members::ServerChange;

#[derive(Debug)]
pub(super) struct ServerSet {
    /// In the order of their addresses.
    servers: Vec<KnownServer>,
    draws: Draws,
    /// Candidates of the last choice and their weights, for their memory.
    candidates: Vec<usize>,
    weights: Vec<f64>,
    pub(super) retries: AttemptBudget,
    pub(super) hedges: AttemptBudget,
    pub(super) times: RecentTimes,
}

#[derive(Debug)]
struct KnownServer {
    at: SocketAddr,
    rank: Rank,
    is_member: bool,
    outstanding: u32,
    estimate: Option<Estimate>,
    health: Health,
}

impl ServerSet {
    pub(super) fn new(seed: u64, retries: AttemptBudget, hedges: AttemptBudget) -> Self {
        Self {
            servers: Vec::new(),
            draws: Draws::new(seed),
            candidates: Vec::new(),
            weights: Vec::new(),
            retries,
            hedges,
            times: RecentTimes::default(),
        }
    }

    fn find(&self, at: SocketAddr) -> Result<usize, usize> {
        self.servers.binary_search_by_key(&at, |server| server.at)
    }

    pub(super) fn apply(&mut self, change: ServerChange) {
        match change {
            ServerChange::New(at, rank) | ServerChange::Ranked(at, rank) => match self.find(at) {
                Ok(n) => (self.servers[n].is_member, self.servers[n].rank) = (true, rank),
                Err(n) => self.servers.insert(
                    n,
                    KnownServer {
                        at,
                        rank,
                        is_member: true,
                        outstanding: 0,
                        estimate: None,
                        health: Health::default(),
                    },
                ),
            },
            ServerChange::Gone(at) => {
                if let Ok(n) = self.find(at) {
                    self.servers[n].is_member = false;
                    self.forget(n);
                }
            }
        }
    }

    /// Forgets a server that is no member and has no calls.
    fn forget(&mut self, n: usize) {
        if !self.servers[n].is_member && self.servers[n].outstanding == 0 {
            self.servers.remove(n);
        }
    }

    /// Members.
    pub(super) fn members(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().filter(|server| server.is_member).map(|server| server.at)
    }

    /// Chooses a server for an attempt, which counts as in progress from now on. Those in `tried`
    /// are chosen only if there is no other; with `other`, not at all.
    pub(super) fn choose(
        &mut self,
        tried: &[SocketAddr],
        other: bool,
        now: Instant,
    ) -> Option<SocketAddr> {
        let fresh = |server: &KnownServer| !tried.contains(&server.at);
        let priority = self.priority(now);
        let healthy = |server: &KnownServer| server.is_healthy(priority, now);
        self.gather(|server| healthy(server) && fresh(server));
        if self.candidates.is_empty() && !other {
            self.gather(healthy);
            if self.candidates.is_empty() {
                self.gather_best(fresh);
            }
            if self.candidates.is_empty() {
                self.gather_best(|_| true);
            }
        }
        if self.candidates.is_empty() {
            return None;
        }
        let (a, b) = two(&self.weights, &mut self.draws);
        let (a, b) = (self.candidates[a], self.candidates[b]);
        let standing = |n: usize| self.servers[n].standing();
        let chosen = if first_gets_it(standing(a), standing(b), now) { a } else { b };
        let server = &mut self.servers[chosen];
        server.outstanding += 1;
        server.health.begun(now);
        Some(server.at)
    }

    /// True if [`Self::choose`] would choose a server that is not in `tried`.
    pub(super) fn has_other(&self, tried: &[SocketAddr], now: Instant) -> bool {
        let priority = self.priority(now);
        self.servers.iter().any(|server| {
            let eligible = priority.is_none() || server.is_healthy(priority, now);
            server.is_member && eligible && !tried.contains(&server.at)
        })
    }

    /// The best priority that a healthy server has; `None` if all servers are ejected.
    fn priority(&self, now: Instant) -> Option<u16> {
        let healthy = self
            .servers
            .iter()
            .filter(|server| server.is_member && server.health.is_candidate(now));
        healthy.map(|server| server.rank.priority).min()
    }

    fn gather(&mut self, wanted: impl Fn(&KnownServer) -> bool) {
        self.candidates.clear();
        self.weights.clear();
        let servers = self.servers.iter().enumerate();
        for (n, server) in servers.filter(|(_, server)| server.is_member && wanted(server)) {
            self.candidates.push(n);
            self.weights.push(server.rank.weight);
        }
    }

    /// As [`Self::gather`], but only those of the best priority among the wanted.
    fn gather_best(&mut self, wanted: impl Fn(&KnownServer) -> bool) {
        let members = self.servers.iter().filter(|server| server.is_member && wanted(server));
        let best = members.map(|server| server.rank.priority).min();
        self.gather(|server| wanted(server) && Some(server.rank.priority) == best);
    }

    /// An attempt has ended. True if its server was ejected because nothing is there.
    pub(super) fn ended(
        &mut self,
        at: SocketAddr,
        end: AttemptEnd,
        took: Duration,
        now: Instant,
    ) -> bool {
        let Ok(n) = self.find(at) else { return false };
        let server = &mut self.servers[n];
        server.outstanding -= 1;
        server.estimate = match (server.estimate, end) {
            (Some(estimate), AttemptEnd::Answered) => Some(estimate.answered(took, now)),
            (None, AttemptEnd::Answered) => Some(Estimate::new(took, now)),
            (Some(estimate), _) => Some(estimate.given_up(took, now)),
            // Otherwise a server that loses against every hedge would never be measured.
            (None, AttemptEnd::Unknown) => Some(Estimate::new(took, now)),
            // A refusal is fast, and says nothing about the speed of answers.
            (None, _) => None,
        };
        let absent = server.health.ended(end, now);
        self.forget(n);
        absent
    }
}

impl KnownServer {
    fn standing(&self) -> Standing {
        let Self { estimate, outstanding, rank, .. } = *self;
        Standing { estimate, outstanding, weight: rank.weight }
    }

    /// Whether it may get a call while `priority` is the best that a healthy server has.
    fn is_healthy(&self, priority: Option<u16>, now: Instant) -> bool {
        Some(self.rank.priority) == priority && self.health.is_candidate(now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn server(n: u16) -> SocketAddr {
        ([10, 0, 0, 1], n).into()
    }

    fn set(members: u16, seed: u64) -> ServerSet {
        let budget = AttemptBudget::share(0.05);
        let mut set = ServerSet::new(seed, budget.clone(), budget);
        (1..=members).for_each(|n| set.apply(ServerChange::New(server(n), Rank::EQUAL)));
        set
    }

    /// Servers 1, 2, ... of these priorities and weights.
    fn ranked(ranks: &[(u16, f64)]) -> ServerSet {
        let mut set = set(0, 1);
        for (n, &(priority, weight)) in (1..).zip(ranks) {
            set.apply(ServerChange::New(server(n), Rank { priority, weight }));
        }
        set
    }

    /// Calls at random times, `per_second` of them for a minute, to eight servers. Each serves four
    /// at a time, in 10 ms; server 1 takes ten times as long. Returns the share of calls that it
    /// gets in the last half.
    fn share_of_slow(per_second: f64, seed: u64) -> f64 {
        let (mut set, mut draws) = (set(8, seed), Draws::new(!seed));
        let start = Instant::now();
        // The ends of calls in the order of time, and when each server's four workers are free.
        let mut ends = BTreeMap::new();
        let mut free = [[start; 4]; 9];
        let (mut now, mut calls, mut slow) = (start, 0u32, 0u32);
        while now < start + Duration::from_secs(60) {
            now += Duration::from_secs_f64(-(1.0 - draws.share()).max(1e-12).ln() / per_second);
            while let Some(((end, _), (at, began))) = ends.pop_first() {
                if end > now {
                    ends.insert((end, began), (at, began));
                    break;
                }
                set.ended(at, AttemptEnd::Answered, end - began, end);
            }
            let at = set.choose(&[], false, now).unwrap();
            let takes = Duration::from_millis(if at == server(1) { 100 } else { 10 });
            let workers = &mut free[usize::from(at.port())];
            let worker = workers.iter_mut().min().unwrap();
            *worker = (*worker).max(now) + takes;
            ends.insert((*worker, now), (at, now));
            if now > start + Duration::from_secs(30) {
                calls += 1;
                slow += u32::from(at == server(1));
            }
        }
        f64::from(slow) / f64::from(calls)
    }

    /// One call in 100 would be enough to raise the 99th percentile.
    #[test]
    fn a_server_ten_times_slower_gets_few_calls() {
        for per_second in [100.0, 400.0, 1_600.0] {
            for seed in 0..5 {
                let share = share_of_slow(per_second, seed);
                assert!(share < 0.005, "{share} at {per_second}/s, seed {seed}");
            }
        }
    }

    #[test]
    fn equal_servers_get_equal_shares() {
        let now = Instant::now();
        let mut set = set(4, 1);
        let mut calls = [0; 5];
        for _ in 0..4_000 {
            let at = set.choose(&[], false, now).unwrap();
            calls[usize::from(at.port())] += 1;
            set.ended(at, AttemptEnd::Answered, Duration::from_millis(1), now);
        }
        assert!(calls[1..].iter().all(|calls| (850..1_150).contains(calls)), "{calls:?}");
    }

    /// The calls that each server gets of 8,000 while `in_progress` are in progress at a time.
    fn shares(set: &mut ServerSet, in_progress: usize) -> Vec<usize> {
        let now = Instant::now();
        let (mut calls, mut begun) =
            (vec![0; set.servers.len()], std::collections::VecDeque::new());
        for _ in 0..8_000 {
            let at = set.choose(&[], false, now).unwrap();
            calls[usize::from(at.port()) - 1] += 1;
            begun.push_back(at);
            if begun.len() >= in_progress {
                let ends = begun.pop_front().unwrap();
                set.ended(ends, AttemptEnd::Answered, Duration::from_millis(1), now);
            }
        }
        calls
    }

    #[test]
    fn weights_are_shares_of_the_calls_of_equal_servers() {
        for in_progress in [1, 40, 400] {
            let mut set = ranked(&[(0, 1.0), (0, 4.0), (0, 3.0), (7, 100.0)]);
            let calls = shares(&mut set, in_progress);
            for (calls, expected) in calls.iter().zip([1_000usize, 4_000, 3_000, 0]) {
                let wrong = calls.abs_diff(expected);
                assert!(wrong <= 150, "{calls} of {expected}, {in_progress} in progress");
            }
        }
        // Two servers: each choice has both as candidates.
        for (in_progress, weight, expected) in [(1, 10.0, 2_000), (40, 10.0, 2_000), (8, 0.003, 1)]
        {
            let calls = shares(&mut ranked(&[(0, weight), (0, 30.0)]), in_progress);
            assert!(calls[0].abs_diff(expected) < 150, "{calls:?}, {in_progress} in progress");
        }
    }

    #[test]
    fn a_worse_priority_is_called_once_all_of_a_better_are_ejected() {
        let start = Instant::now();
        let mut set = ranked(&[(1, 1.0), (1, 1.0), (2, 1.0), (3, 1.0)]);
        let eject = |set: &mut ServerSet, n| {
            set.servers[usize::from(n) - 1].outstanding += 1;
            set.ended(server(n), AttemptEnd::Absent, Duration::ZERO, start);
        };
        eject(&mut set, 1);
        for _ in 0..20 {
            assert_eq!(set.choose(&[], false, start), Some(server(2)));
            // A retry stays there, too, and does not count the others as servers to be tried.
            assert_eq!(set.choose(&[server(2)], false, start), Some(server(2)));
            assert_eq!(set.choose(&[server(2)], true, start), None);
            assert!(!set.has_other(&[server(2)], start) && set.has_other(&[], start));
        }
        eject(&mut set, 2);
        assert_eq!(set.choose(&[], false, start), Some(server(3)));
        eject(&mut set, 3);
        assert_eq!(set.choose(&[], false, start), Some(server(4)));
        // The first whose time is over gets a single call, and all of them once it answers.
        let later = start + Duration::from_millis(500);
        let first = set.choose(&[], false, later).unwrap();
        let second = set.choose(&[], false, later).unwrap();
        assert_eq!(std::collections::BTreeSet::from([first, second]), [1, 2].map(server).into());
        assert_eq!(set.choose(&[], false, later), Some(server(3)));
        set.ended(first, AttemptEnd::Answered, Duration::from_millis(1), later);
        assert_eq!(set.choose(&[], false, later), Some(first));
        // Its priority becomes a worse one.
        set.apply(ServerChange::Ranked(first, Rank { priority: 9, weight: 1.0 }));
        set.ended(server(3), AttemptEnd::Answered, Duration::from_millis(1), later);
        assert_eq!(set.choose(&[], false, later), Some(server(3)));
    }

    #[test]
    fn ejected_servers_are_tried_in_the_order_of_priorities() {
        let now = Instant::now();
        let mut set = ranked(&[(2, 1e6), (1, 1.0), (1, 1.0)]);
        for n in 1..=3 {
            set.servers[n - 1].outstanding += 1;
            set.ended(server(n as u16), AttemptEnd::Absent, Duration::ZERO, now);
        }
        for _ in 0..20 {
            assert_ne!(set.choose(&[], false, now), Some(server(1)));
            assert_eq!(set.choose(&[server(2)], false, now), Some(server(3)));
            assert_eq!(set.choose(&[server(2), server(3)], false, now), Some(server(1)));
        }
    }

    #[test]
    fn a_server_that_loses_every_hedge_is_known_as_slow() {
        let start = Instant::now();
        let mut set = set(2, 1);
        let mut to_slow = 0;
        for call in 0..1_000 {
            let now = start + call * Duration::from_millis(20);
            let at = set.choose(&[], false, now).unwrap();
            if at == server(1) {
                to_slow += 1;
                set.ended(at, AttemptEnd::Unknown, Duration::from_millis(15), now);
            } else {
                set.ended(at, AttemptEnd::Answered, Duration::from_millis(5), now);
            }
        }
        assert!(to_slow < 5, "{to_slow}");
    }

    #[test]
    fn a_retry_takes_another_server_if_there_is_one() {
        let now = Instant::now();
        let mut set = set(3, 1);
        for _ in 0..100 {
            let chosen = set.choose(&[server(1), server(3)], false, now);
            assert_eq!(chosen, Some(server(2)));
        }
        assert_eq!(set.choose(&[1, 2, 3].map(server), true, now), None);
        assert!(set.choose(&[1, 2, 3].map(server), false, now).is_some());
    }

    #[test]
    fn servers_are_never_all_ejected() {
        let now = Instant::now();
        let mut set = set(2, 1);
        for n in [1, 2] {
            let at = set.choose(&[server(3 - n)], true, now).unwrap();
            assert!(set.ended(at, AttemptEnd::Absent, Duration::ZERO, now));
        }
        assert_eq!(set.choose(&[], true, now), None, "both are ejected");
        assert!(set.choose(&[], false, now).is_some());
    }

    #[test]
    fn a_removed_server_is_kept_until_its_calls_have_ended() {
        let now = Instant::now();
        let mut set = set(1, 1);
        let at = set.choose(&[], false, now).unwrap();
        set.apply(ServerChange::Gone(at));
        assert_eq!(set.choose(&[], false, now), None);
        assert_eq!(set.members().count(), 0);
        // It comes back, and its call still counts.
        set.apply(ServerChange::New(at, Rank::EQUAL));
        assert_eq!(set.servers[0].outstanding, 1);
        set.apply(ServerChange::Gone(at));
        set.ended(at, AttemptEnd::Answered, Duration::ZERO, now);
        assert!(set.servers.is_empty());
        set.ended(at, AttemptEnd::Answered, Duration::ZERO, now);
    }
}
