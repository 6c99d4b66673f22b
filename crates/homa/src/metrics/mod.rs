//! What an engine counted, as a struct and as OpenMetrics text.
//!
//! Names of peers and numbers of RPCs are written as `homa pcap` and the spans of calls and
//! requests do, so that what they say can be joined.

#[cfg(feature = "metrics-http")]
pub mod http;
mod latency;

use std::fmt::{Display, Write};

use homa_proto::{Counters, Rate};

pub use latency::{Direction, Histogram, Latency, PeerLatency, RpcOutcome};
pub(crate) use latency::{EndedRpcs, Latencies, busiest};

/// A structure of counters that knows their names and what they count.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident { $($(#[doc = $doc:literal])* pub $field:ident: u64,)* }
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $Name { $($(#[doc = $doc])* pub $field: u64,)* }

        impl $Name {
            /// Every field by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Adds what another counted.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// What each of them counts, in the same order.
            pub fn help() -> impl Iterator<Item = &'static str> {
                [$(concat!($($doc),*)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Counters of the engine itself.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EngineCounters {
        /// Calls refused at submission (back-pressure, limits, addresses).
        pub calls_refused: u64,
        /// Requests given up unstarted because their clients waited no longer.
        pub requests_expired: u64,
        /// Extensions of datagrams that were skipped because their type is not known here: the peer
        /// is newer.
        pub unknown_extensions: u64,
        /// Times the pacer held back packets because enough were queued below.
        pub pacer_waits: u64,
        /// Reports of something unreachable (ICMP) that do not show of which RPC, and are not
        /// believed: who sees none of our packets can forge them.
        pub icmp_reports_ignored: u64,
        /// Times that packets to a peer became smaller because its path took no larger ones.
        pub path_mtu_lowered: u64,
        /// Times that they became larger, since probes passed.
        pub path_mtu_raised: u64,
        /// Paths on which large packets vanished without a report (also counted as lowered).
        pub path_mtu_black_holes: u64,
        /// Peers forgotten to make room.
        pub peers_evicted: u64,
        /// Peers known now.
        pub peers: u64,
        /// Bytes of outgoing messages held now.
        pub send_memory_bytes: u64,
        /// Calls in progress now.
        pub calls_in_progress: u64,
        /// Requests in progress now, unacknowledged replies included.
        pub requests_in_progress: u64,
    }
}

counters! {
    /// Monotonic counters of a driver.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DriverCounters {
        /// Datagrams sent.
        pub datagrams_sent: u64,
        /// Trains handed to the kernel, refused ones included: one pass through it each.
        pub trains_sent: u64,
        /// Bytes in datagrams sent.
        pub bytes_sent: u64,
        /// System calls for sending.
        pub send_calls: u64,
        /// Trains that the network refused (no route, unreachable, a queue that stays full); they
        /// count as lost.
        pub trains_refused: u64,
        /// Trains that waited because the socket or the device's queue had no room; they were sent
        /// later.
        pub trains_delayed: u64,
        /// Datagrams received.
        pub datagrams_received: u64,
        /// Trains received.
        pub trains_received: u64,
        /// Bytes in datagrams received.
        pub bytes_received: u64,
        /// Trains that came to another of the engines that share an address (`Engine::sharded`)
        /// than their sender's: dropped, and not counted above. A few where the engines close one
        /// by one; otherwise a program of the same user joined the address.
        pub trains_misdirected: u64,
        /// System calls for receiving.
        pub receive_calls: u64,
        /// Datagrams that the receive queue had no room for: raise its size or the number of
        /// receivers.
        pub receive_overflows: u64,
        /// Trains for which segmentation offload was refused; where the device refuses it, it is
        /// given up after the first.
        pub offload_fallbacks: u64,
        /// Packets received that travelled in disguise as TCP (raw IP; counted above, too).
        pub tcp_hijack_received: u64,
        /// Packets for ports of others, which raw IP sockets see, too.
        pub other_ports: u64,
        /// Sockets for packets in disguise that were refused: such packets go unseen.
        pub tcp_hijack_refused: u64,
        /// Sockets at every IPv6 address that the system did not let speak IPv4 (UDP): calls of
        /// IPv4 servers are refused there.
        pub ipv4_refused: u64,
        /// Datagrams sent in frames of our own, past the system's network stack (AF_XDP; counted
        /// above, too).
        pub frames_sent: u64,
        /// Datagrams received in frames that were taken from an interface (AF_XDP; counted above,
        /// too).
        pub frames_received: u64,
        /// Frames for our ports with wrong lengths, checksums or addresses (AF_XDP): dropped.
        pub frames_malformed: u64,
    }
}

/// What is known about a link that packets leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkMetrics {
    /// The interface; `*` where the user said that all peers share a link.
    pub interface: String,
    /// Its rate; `None` where there is none, or it is not known.
    pub rate: Option<Rate>,
    /// Where the rate comes from: `configured` (the user), `route` (the interface of the kernel's
    /// routes), `guess` (one of several that it could be), `estimated` (by the pacer); `unlimited`
    /// is loopback, and `unknown` says that nobody knows.
    pub source: &'static str,
}

/// A snapshot of everything counted since the engine was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The protocol's counters.
    pub protocol: Counters,
    /// The driver's counters.
    pub driver: DriverCounters,
    /// The engine's counters and gauges.
    pub engine: EngineCounters,
    /// Links that packets left by.
    pub links: Vec<LinkMetrics>,
    /// How long RPCs took, of every direction and outcome that occurred.
    pub latencies: Vec<Latency>,
    /// The peers with most RPCs that ended, at most 16 as servers and 16 as clients.
    pub peers: Vec<PeerLatency>,
}

/// How little a source of rates ([`LinkMetrics::source`]) is worth: 0 is the best.
fn rank(source: &str) -> usize {
    let best_first = ["configured", "route", "unlimited", "estimated", "guess"];
    best_first.iter().position(|of| *of == source).unwrap_or(best_first.len())
}

/// Fields of [`EngineCounters`] that rise and fall.
const GAUGES: [&str; 4] =
    ["peers", "send_memory_bytes", "calls_in_progress", "requests_in_progress"];

impl Metrics {
    /// Adds what another engine of the same host counted, whose peers are others.
    pub(crate) fn add(&mut self, other: Self) {
        self.protocol.add(&other.protocol);
        self.driver.add(&other.driver);
        self.engine.add(&other.engine);
        for link in other.links {
            match self.links.iter_mut().find(|ours| ours.interface == link.interface) {
                // Estimates of parts are of the whole together.
                Some(ours) if link.source == "estimated" && ours.source == "estimated" => {
                    let rates = ours.rate.zip(link.rate);
                    ours.rate = rates.map(|(ours, other)| Rate(ours.0 + other.0));
                }
                // Another knows better.
                Some(ours) if rank(link.source) < rank(ours.source) => *ours = link,
                Some(_) => {}
                None => self.links.push(link),
            }
        }
        latency::merge(&mut self.latencies, other.latencies);
        self.peers = latency::merge_busiest(&self.peers, &other.peers);
    }

    /// Counters by name: `protocol_`, `driver_` and `engine_` followed by the field.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        self.fields().filter(|field| !field.gauge).map(|field| (field.name, field.value))
    }

    /// Gauges by name, alike.
    pub fn gauges(&self) -> impl Iterator<Item = (String, u64)> {
        self.fields().filter(|field| field.gauge).map(|field| (field.name, field.value))
    }

    fn fields(&self) -> impl Iterator<Item = Field> {
        let protocol = self.protocol.iter().zip(Counters::help());
        let driver = self.driver.iter().zip(DriverCounters::help());
        let engine = self.engine.iter().zip(EngineCounters::help());
        let field = |of: &'static str| {
            move |((name, value), help)| Field {
                name: format!("{of}_{name}"),
                value,
                help,
                gauge: of == "engine" && GAUGES.contains(&name),
            }
        };
        protocol
            .map(field("protocol"))
            .chain(driver.map(field("driver")))
            .chain(engine.map(field("engine")))
    }

    /// The snapshot in the OpenMetrics text format, ready to be served to Prometheus (feature
    /// `metrics-http`: `metrics::http`). Every family says what it is (`# HELP`).
    pub fn to_openmetrics(&self) -> String {
        let mut text = Text::default();
        for Field { name, value, help, gauge } in self.fields() {
            let (kind, suffix) = if gauge { ("gauge", "") } else { ("counter", "_total") };
            text.family(&name, kind, help);
            text.sample(&format!("{name}{suffix}"), &[], value);
        }
        self.write_links(&mut text);
        text.family("protocol_drops", "counter", "Packets that were dropped, by reason.");
        for (reason, value) in self.protocol.drops() {
            let reason = snake(&format!("{reason:?}"));
            text.sample("protocol_drops_total", &[("reason", &reason)], value);
        }
        latency::write(&self.latencies, &self.peers, &mut text);
        text.0.push_str("# EOF\n");
        text.0
    }

    fn write_links(&self, text: &mut Text) {
        let name = "egress_rate_bits_per_second";
        let help = "Rates of the links that packets leave by, and where they are known from.";
        text.family(name, "gauge", help);
        for LinkMetrics { interface, rate, source } in &self.links {
            // No rate is no limit, or not known.
            let value = match rate {
                Some(rate) => rate.0.to_string(),
                None if *source == "unlimited" => "+Inf".to_owned(),
                None => "NaN".to_owned(),
            };
            text.sample(name, &[("interface", interface), ("source", source)], value);
        }
    }
}

/// A counter or gauge without labels.
struct Field {
    name: String,
    value: u64,
    help: &'static str,
    gauge: bool,
}

/// OpenMetrics text under construction. Writing to a string cannot fail.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a family, whose name lacks `homa_`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.trim().replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(self.0, "# HELP homa_{name} {help}\n# TYPE homa_{name} {kind}");
    }

    /// A sample of the family begun last.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "homa_{name}");
        for (n, (label, of)) in labels.iter().enumerate() {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"");
            let open = if n == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{of}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }
}

/// `SeveralWords` as `several_words`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_together_know_of_a_link_what_the_best_informed_does() {
        let of = |source, rate: Option<u64>| {
            let interface = "eth0".to_owned();
            let link = LinkMetrics { interface, rate: rate.map(Rate), source };
            Metrics { links: vec![link], ..Metrics::default() }
        };
        let sum = |parts: [(&'static str, Option<u64>); 3]| {
            let mut sum = Metrics::default();
            parts.into_iter().for_each(|(source, rate)| sum.add(of(source, rate)));
            let [LinkMetrics { rate, source, .. }] = &sum.links[..] else { panic!("{sum:?}") };
            (*source, rate.map(|rate| rate.0))
        };
        let (unknown, route) = (("unknown", None), ("route", Some(10)));
        let estimated = |rate| ("estimated", Some(rate));
        assert_eq!(sum([unknown, estimated(3), estimated(4)]), estimated(7));
        assert_eq!(sum([estimated(3), unknown, estimated(4)]), estimated(7));
        assert_eq!(sum([unknown, estimated(3), route]), route);
        assert_eq!(sum([route, estimated(3), ("guess", Some(2))]), route);
        assert_eq!(sum([unknown; 3]), unknown);
    }
}
