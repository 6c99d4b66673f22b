//! From counters to causes: the slow RPCs of each direction and size, and what their time was spent
//! on.

use std::collections::BTreeMap;

use crate::commands::scrape::{MetricSample, Scrape};

/// The slowest of this share count as slow, and more if they share their group.
const SLOW: f64 = 0.05;
/// No RPC takes less: the processing at one end, seconds.
const LEAST: f64 = 5e-6;
/// No round trip in a datacenter takes longer, seconds. If all waits are longer, even the shortest
/// contains the server's time.
const ROUND_TRIP: f64 = 250e-6;

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A round trip, and the link's time for the bytes.
    Link,
    /// The own message waited for others of this engine, or for the pacer.
    Queue,
    /// The own message waited for grants.
    Grant,
    /// Lost bytes, until they came again.
    Loss,
    /// The network and the peer's queue, beyond what the link takes.
    Network,
    /// The server or the network: a client alone cannot tell.
    Server,
    /// Complete requests waited until the application took them.
    Accept,
    /// The server's application.
    Application,
    /// The process of this engine did not run.
    Stalled,
}

impl Cause {
    pub const ALL: [Self; 9] = [
        Self::Link,
        Self::Queue,
        Self::Grant,
        Self::Loss,
        Self::Network,
        Self::Server,
        Self::Accept,
        Self::Application,
        Self::Stalled,
    ];

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Queue => "queue",
            Self::Grant => "grant",
            Self::Loss => "loss",
            Self::Network => "network",
            Self::Server => "server_or_network",
            Self::Accept => "accept",
            Self::Application => "application",
            Self::Stalled => "stalled",
        }
    }
}

/// Slow RPCs of one direction and size. Times are means in seconds.
#[derive(Clone, Debug, Default)]
pub struct Slow {
    pub direction: String,
    pub size: String,
    /// The number of those that were followed.
    pub rpcs: f64,
    /// The number of followed RPCs of this direction and size.
    pub of: f64,
    pub mean: f64,
    /// The best that the link allows.
    pub best: f64,
    causes: [f64; Cause::ALL.len()],
}

impl Slow {
    /// The mean time of a cause, seconds.
    pub fn time(&self, cause: Cause) -> f64 {
        self.causes[cause as usize]
    }

    /// Its share of the mean.
    pub fn share(&self, cause: Cause) -> f64 {
        if self.mean > 0.0 { self.time(cause) / self.mean } else { 0.0 }
    }

    /// The cause that takes most of it, apart from the link.
    pub fn most(&self) -> Cause {
        let causes = Cause::ALL.into_iter().filter(|&cause| cause != Cause::Link);
        let most = causes.max_by(|a, b| self.time(*a).total_cmp(&self.time(*b)));
        most.unwrap_or(Cause::Link)
    }

    /// How many times as long as the best they took.
    pub fn slowdown(&self) -> f64 {
        self.slowdown_after(0.0)
    }

    /// The same if they had waited that long before, seconds.
    pub fn slowdown_after(&self, wait: f64) -> f64 {
        (self.mean + wait) / self.best.max(LEAST)
    }

    #[cfg(test)]
    pub fn with(direction: &str, best: f64, causes: &[(Cause, f64)]) -> Self {
        let mut slow =
            Self { direction: direction.into(), size: "short".into(), ..Self::default() };
        causes.iter().for_each(|&(cause, time)| slow.causes[cause as usize] = time);
        let mean = slow.causes.iter().sum();
        Self { rpcs: 10.0, of: 200.0, mean, best, ..slow }
    }
}

/// How often and how long a process did not run although its engine had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    pub times: f64,
    pub seconds: f64,
    /// Their share of the time that was watched.
    pub share: f64,
}

impl Stalls {
    fn between(before: &Scrape, after: &Scrape) -> Self {
        let seconds = grown("homa_engine_stalled_seconds_total", before, after);
        let times = grown("homa_protocol_stalls_total", before, after);
        Self { times, seconds, share: seconds / watched(before, after) }
    }

    /// How long, on average, the slowest requests waited in the socket until the process ran again,
    /// seconds. No engine measures this. It is inferred: requests arrive at any time, so those that
    /// arrive during a stall wait for half of it on average, and they are the slowest.
    ///
    /// Example: stalls of 0.1 s. If they take 1 % of the time, a fifth of the slowest 5 % waited,
    /// for 50 ms each: 10 ms on average. If they take half of the time, the slowest 5 % arrived in
    /// the first tenth of a stall: 95 ms.
    pub fn unseen(&self) -> f64 {
        let mean = self.seconds / self.times.max(1.0);
        match self.share < SLOW {
            true => mean / 2.0 * self.share / SLOW,
            false => mean * (1.0 - SLOW / self.share / 2.0),
        }
    }
}

/// Measurements of an engine between two scrapes.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub seconds: f64,
    /// RPCs that were followed and ended.
    pub followed: f64,
    /// By direction and size, those with RPCs.
    pub slow: Vec<Slow>,
    /// Time of all followed RPCs, as client and as server, seconds.
    pub time: [f64; 2],
    /// Of this engine's process, and of the server's if its endpoint was given.
    pub stalls: Stalls,
    pub server_stalls: Option<Stalls>,
    /// Counters, their growth.
    pub overflows: f64,
    pub black_holes: f64,
    /// Bits that left per second, and the rate of the fastest link; `None` if it has none.
    pub sent: f64,
    pub rate: Option<f64>,
    /// No rate is known, or it was guessed.
    pub rate_is_unsure: bool,
}

/// Followed RPCs of one direction and size that took about as long.
#[derive(Default)]
struct Group {
    rpcs: f64,
    bytes: f64,
    seconds: BTreeMap<String, f64>,
}

impl Group {
    fn time(&self, stage: &str) -> f64 {
        self.seconds.get(stage).copied().unwrap_or(0.0)
    }

    fn add(&mut self, other: &Self) {
        self.rpcs += other.rpcs;
        self.bytes += other.bytes;
        for (stage, seconds) in &other.seconds {
            *self.seconds.entry(stage.clone()).or_default() += seconds;
        }
    }
}

/// Groups by direction and size, and within that by time in nanoseconds.
type Groups = BTreeMap<(String, String), BTreeMap<u64, Group>>;

fn groups(before: &Scrape, after: &Scrape) -> Groups {
    let mut groups = Groups::new();
    let mut each = |name: &str, put: &dyn Fn(&mut Group, &MetricSample, f64)| {
        for sample in after.all(name) {
            let key = (sample.label("direction").to_owned(), sample.label("size").to_owned());
            let up_to = sample.label("up_to").parse::<f64>().unwrap_or(0.0) * 1e9;
            let group = groups.entry(key).or_default().entry(up_to as u64).or_default();
            put(group, sample, sample.grown(name, before));
        }
    };
    each("homa_rpc_stage_rpcs_total", &|group, _, grown| group.rpcs += grown);
    each("homa_rpc_stage_bytes_total", &|group, _, grown| group.bytes += grown);
    each("homa_rpc_stage_seconds_total", &|group, sample, grown| {
        *group.seconds.entry(sample.label("stage").to_owned()).or_default() += grown;
    });
    groups
}

/// The slowest groups together, and the number of all RPCs.
fn slowest(groups: &BTreeMap<u64, Group>) -> (Group, f64) {
    let all: f64 = groups.values().map(|group| group.rpcs).sum();
    let mut slow = Group::default();
    for group in groups.values().rev().filter(|group| group.rpcs > 0.0) {
        slow.add(group);
        if slow.rpcs >= SLOW * all {
            break;
        }
    }
    (slow, all)
}

/// The growth of a counter, the sum over all engines.
fn grown(name: &str, before: &Scrape, after: &Scrape) -> f64 {
    after.all(name).iter().fold(0.0, |sum, sample| sum + sample.grown(name, before))
}

/// The time between two scrapes, seconds.
fn watched(before: &Scrape, after: &Scrape) -> f64 {
    after.taken.duration_since(before.taken).as_secs_f64().max(1e-3)
}

impl Evidence {
    /// What two scrapes of an engine tell, with two of the server that it calls.
    pub fn between(
        (before, after): (&Scrape, &Scrape),
        server: Option<(&Scrape, &Scrape)>,
    ) -> Self {
        let seconds = watched(before, after);
        let grown = |name: &str| grown(name, before, after);
        let (rate, rate_is_unsure) = link(after);
        let at_server = server.map(|(before, after)| server_time(before, after));
        let shortest = shortest_wait(after).min(ROUND_TRIP);
        let mut evidence = Self {
            seconds,
            stalls: Stalls::between(before, after),
            server_stalls: server.map(|(before, after)| Stalls::between(before, after)),
            overflows: grown("homa_driver_receive_overflows_total"),
            black_holes: grown("homa_engine_path_mtu_black_holes_total"),
            sent: grown("homa_driver_bytes_sent_total") * 8.0 / seconds,
            rate,
            rate_is_unsure,
            ..Self::default()
        };
        for ((direction, size), groups) in groups(before, after) {
            let (slow, of) = slowest(&groups);
            if slow.rpcs <= 0.0 {
                continue;
            }
            evidence.followed += of;
            let time: f64 = groups.values().flat_map(|group| group.seconds.values()).sum();
            evidence.time[usize::from(direction == "server")] += time;
            let serial = rate.map_or(0.0, |rate| slow.bytes / slow.rpcs * 8.0 / rate);
            let server = at_server.as_ref().map(|of| of.get(&size).copied().unwrap_or_default());
            let found = Slow { direction, size, rpcs: slow.rpcs, of, ..Slow::default() };
            evidence.slow.push(split(found, &slow, (serial, shortest), server));
        }
        evidence
    }
}

/// Mean times of a server's slow requests: until they were taken, and from then on.
type ServerTime = (f64, f64);

fn server_time(before: &Scrape, after: &Scrape) -> BTreeMap<String, ServerTime> {
    let groups = groups(before, after).into_iter();
    let servers = groups.filter(|((direction, _), _)| direction == "server");
    let mean = |groups: &BTreeMap<u64, Group>| {
        let (slow, _) = slowest(groups);
        let mean = |stage| slow.time(stage) / slow.rpcs.max(1.0);
        (mean("accept"), mean("application"))
    };
    servers.map(|((_, size), groups)| (size, mean(&groups))).collect()
}

/// The shortest wait of a call that any of the engines saw, seconds; 0 if none did.
fn shortest_wait(scrape: &Scrape) -> f64 {
    let waits = scrape.all("homa_rpc_shortest_wait_seconds").iter().map(|sample| sample.value);
    waits.reduce(f64::min).unwrap_or(0.0)
}

/// The rate of the fastest link in bits per second, and whether that is unsure.
fn link(scrape: &Scrape) -> (Option<f64>, bool) {
    let links = scrape.all("homa_egress_rate_bits_per_second");
    let rates = links.iter().map(|link| link.value).filter(|rate| rate.is_finite());
    let rate = rates.fold(0.0, f64::max);
    let unsure = ["unknown", "guess", "estimated"];
    let unsure = links.iter().any(|link| unsure.contains(&link.label("source")));
    ((rate > 0.0).then_some(rate), unsure)
}

/// Splits the time of slow RPCs. `serial` is the link's time for their bytes, and `shortest` the
/// shortest wait of a call that was seen, in seconds.
fn split(
    mut found: Slow,
    group: &Group,
    (serial, shortest): (f64, f64),
    server: Option<ServerTime>,
) -> Slow {
    let mean = |stage: &str| group.time(stage) / group.rpcs;
    let (send, receive, wait) = (mean("send"), mean("receive"), mean("wait"));
    // The link's time is taken from sending first, then from receiving.
    let in_send = send.min(serial);
    let in_receive = receive.min(serial - in_send);
    // The server's time is taken first if it is known.
    let (accept, application) = server.unwrap_or_default();
    let application = application.min(wait);
    let accept = accept.min(wait - application);
    let round_trip = (wait - application - accept).min(shortest);
    let beyond = wait - application - accept - round_trip;
    let mut set = |cause: Cause, time: f64| found.causes[cause as usize] = time;
    set(Cause::Link, in_send + in_receive + round_trip);
    set(Cause::Queue, mean("queue") + send - in_send);
    // A short message has no bytes that need grants (Homa §3.2), except a response to a client with
    // many calls in progress (§3.6). That waits for a round trip, and not for other messages.
    let (grant, held_up) = match found.size == "short" {
        true => (0.0, mean("grant")),
        false => (mean("grant"), 0.0),
    };
    set(Cause::Grant, grant);
    set(Cause::Loss, mean("loss"));
    set(Cause::Stalled, mean("stalled"));
    let mut network = receive - in_receive;
    set(Cause::Accept, accept + mean("accept"));
    set(Cause::Application, application + mean("application"));
    match server {
        None if found.direction == "client" => set(Cause::Server, beyond + held_up),
        _ => network += beyond + held_up,
    }
    set(Cause::Network, network);
    found.mean = found.causes.iter().sum();
    found.best = serial + if found.direction == "client" { shortest } else { 0.0 };
    found
}

#[cfg(test)]
mod tests;
