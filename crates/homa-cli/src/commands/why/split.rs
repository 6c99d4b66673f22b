//! From counters to causes: the slow RPCs of each direction and size, and what their time was spent
//! on.

use super::groups::{Group, groups, grown, slowest, watched};
use super::server::{ServerPage, ServerView};
use super::stalls::Stalls;
use crate::commands::scrape::Scrape;

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
    /// The peer's message arrived, for longer than the link takes: this engine granted others
    /// first, or was behind, or packets waited on the way.
    Receive,
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
    pub const ALL: [Self; 10] = [
        Self::Link,
        Self::Queue,
        Self::Grant,
        Self::Loss,
        Self::Network,
        Self::Receive,
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
            Self::Receive => "receive",
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
    /// What the server's endpoint tells about these calls.
    pub server: ServerView,
    /// Time in the network that even the shortest wait contains, beyond the assumed round trip.
    pub plain: f64,
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
    /// Bits that left and that arrived per second.
    pub sent: f64,
    pub received: f64,
    pub link: FastestLink,
    /// The shortest wait of a call since the engine was opened, seconds; 0 without one.
    pub shortest: f64,
    /// How long the user asked to watch, seconds.
    pub asked: f64,
}

impl Evidence {
    /// True if that many bits per second fill this share of the link.
    pub fn fills(&self, bits: f64, share: f64) -> bool {
        self.link.rate.is_some_and(|rate| bits >= share * rate)
    }

    /// The shortest wait, if it is too long to be a round trip in a datacenter.
    pub fn too_long(&self) -> Option<f64> {
        (self.shortest > ROUND_TRIP).then_some(self.shortest)
    }
}

/// The links of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FastestLink {
    /// Of the fastest, bits per second; `None` if none has a rate.
    pub rate: Option<f64>,
    /// No rate is known, or it was guessed.
    pub unsure: bool,
    /// There is no limit, as on loopback.
    pub unlimited: bool,
}

impl FastestLink {
    fn of(scrape: &Scrape) -> Self {
        let links = scrape.all("homa_egress_rate_bits_per_second");
        let rates = links.iter().map(|link| link.value).filter(|rate| rate.is_finite());
        let rate = rates.fold(0.0, f64::max);
        let unsure = ["unknown", "guess", "estimated"];
        let unsure = links.iter().any(|link| unsure.contains(&link.label("source")));
        let unlimited = !links.is_empty() && links.iter().all(|link| link.value == f64::INFINITY);
        Self { rate: (rate > 0.0).then_some(rate), unsure, unlimited }
    }
}

impl Evidence {
    /// What two scrapes of an engine tell, with two of the server that it calls.
    pub fn between(
        (before, after): (&Scrape, &Scrape),
        server: Option<(&Scrape, &Scrape)>,
    ) -> Self {
        let seconds = watched(before, after);
        let grown = |name: &str| grown(name, before, after);
        let at_server = server.map(|(before, after)| ServerPage::between(before, after));
        let mut evidence = Self {
            seconds,
            stalls: Stalls::between(before, after),
            server_stalls: server.map(|(before, after)| Stalls::between(before, after)),
            overflows: grown("homa_driver_receive_overflows_total"),
            black_holes: grown("homa_engine_path_mtu_black_holes_total"),
            sent: grown("homa_driver_bytes_sent_total") * 8.0 / seconds,
            received: grown("homa_driver_bytes_received_total") * 8.0 / seconds,
            link: FastestLink::of(after),
            shortest: shortest_wait(after),
            ..Self::default()
        };
        for ((direction, size), groups) in groups(before, after) {
            let (slow, of) = slowest(&groups);
            if slow.rpcs <= 0.0 {
                continue;
            }
            evidence.followed += of;
            let time: f64 = groups.values().map(Group::all).sum();
            evidence.time[usize::from(direction == "server")] += time;
            let seconds_per_bit = evidence.link.rate.map_or(0.0, f64::recip);
            let serial = slow.bytes / slow.rpcs * 8.0 * seconds_per_bit;
            let server = match &at_server {
                Some(page) if direction == "client" => page.of(&size),
                _ => ServerView::NotAsked,
            };
            let found = Slow { direction, size, rpcs: slow.rpcs, of, server, ..Slow::default() };
            evidence.slow.push(split(found, &slow, serial, evidence.shortest));
        }
        evidence
    }
}

/// The shortest wait of a call that any of the engines saw, seconds; 0 if none did.
fn shortest_wait(scrape: &Scrape) -> f64 {
    let waits = scrape.all("homa_rpc_shortest_wait_seconds").iter().map(|sample| sample.value);
    waits.reduce(f64::min).unwrap_or(0.0)
}

/// Splits the time of slow RPCs. `serial` is the link's time for their bytes, and `shortest` the
/// shortest wait of a call that was seen, in seconds.
fn split(mut found: Slow, group: &Group, serial: f64, shortest: f64) -> Slow {
    let mean = |stage: &str| group.time(stage) / group.rpcs;
    let (send, receive, wait) = (mean("send"), mean("receive"), mean("wait"));
    // The link's time is taken from sending first, then from receiving.
    let in_send = send.min(serial);
    let in_receive = receive.min(serial - in_send);
    // The server's time is taken first if it is known.
    let server = found.server.time();
    let at_server = server.unwrap_or_default();
    let application = at_server.application.min(wait);
    let accept = at_server.accept.min(wait - application);
    let assumed = shortest.min(ROUND_TRIP);
    let round_trip = (wait - application - accept).min(assumed);
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
    set(Cause::Receive, receive - in_receive);
    set(Cause::Accept, accept + mean("accept"));
    set(Cause::Application, application + mean("application"));
    let client = found.direction == "client";
    let outside = if client && server.is_none() { Cause::Server } else { Cause::Network };
    set(outside, beyond + held_up);
    found.mean = found.causes.iter().sum();
    found.best = serial + if client { assumed } else { 0.0 };
    found.plain = (shortest - assumed - at_server.fastest).max(0.0);
    found
}

#[cfg(test)]
mod tests;
