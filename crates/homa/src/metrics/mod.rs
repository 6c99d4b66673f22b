//! Metrics of an engine, as values and as OpenMetrics text.
//!
//! Peers and RPC ids are written as in `homa pcap` and in the spans of calls and requests, so that
//! their outputs can be joined.

mod busiest;
#[cfg(feature = "metrics-http")]
pub mod http;
mod latency;
mod stages;
mod text;

use std::time::{Duration, SystemTime};

use homa_proto::{Counters, Rate};

use crate::engine::Engine;

pub use busiest::PeerLatency;
pub(crate) use busiest::{EndedRpcs, busiest};
pub(crate) use latency::Latencies;
pub use latency::{Direction, Histogram, Latency, RpcOutcome, RpcSize};
pub(crate) use stages::Stages;
pub use stages::{RpcStage, StageTimes};
use text::Text;

/// Defines a struct of counters together with their names and descriptions.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident { $($(#[doc = $doc:literal])* pub $field:ident: u64,)* }
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $Name { $($(#[doc = $doc])* pub $field: u64,)* }

        impl $Name {
            /// All fields by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Adds the counts of another engine.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// The descriptions, in the same order.
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
        /// Calls refused at submission because of back-pressure, limits, or the address.
        pub calls_refused: u64,
        /// Requests that expired before they were accepted.
        pub requests_expired: u64,
        /// Requests that were refused because they could not be answered in time: overload.
        pub requests_shed: u64,
        /// Datagram extensions of an unknown type, which were skipped: the peer is newer.
        pub unknown_extensions: u64,
        /// Times that the pacer delayed packets because as many bytes were queued as the link may
        /// hold.
        pub pacer_waits: u64,
        /// ICMP reports that were ignored because they do not quote the RPC. Any host can forge
        /// such a report.
        pub icmp_reports_ignored: u64,
        /// Times that the packet size for a peer was lowered because its path takes no larger
        /// packets.
        pub path_mtu_lowered: u64,
        /// Times that the packet size for a peer was raised because probes passed.
        pub path_mtu_raised: u64,
        /// Paths on which large packets vanished without a report (also counted as lowered).
        pub path_mtu_black_holes: u64,
        /// Peers forgotten because the table was full.
        pub peers_evicted: u64,
        /// Peers in the table.
        pub peers: u64,
        /// Bytes of outgoing messages in memory.
        pub send_memory_bytes: u64,
        /// The limit of `send_memory_bytes`: `Config::send_memory`.
        pub send_memory_limit_bytes: u64,
        /// Bytes of incoming messages in memory or granted, and of requests that were not accepted.
        pub receive_memory_bytes: u64,
        /// The limit of `receive_memory_bytes`: `memory_budget`.
        pub receive_memory_limit_bytes: u64,
        /// Calls in progress.
        pub calls_in_progress: u64,
        /// Requests in progress, including replies that are not acknowledged.
        pub requests_in_progress: u64,
    }
}

counters! {
    /// Counters of a driver. They only grow, except `sessions`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DriverCounters {
        /// Datagrams sent.
        pub datagrams_sent: u64,
        /// Trains passed to the kernel, including refused ones. A train takes one pass through the
        /// kernel.
        pub trains_sent: u64,
        /// Bytes in datagrams sent.
        pub bytes_sent: u64,
        /// System calls for sending.
        pub send_calls: u64,
        /// Trains that the network refused (no route, unreachable, a queue that stays full); they
        /// count as lost.
        pub trains_refused: u64,
        /// Trains that were sent later because the socket or the device's queue was full.
        pub trains_delayed: u64,
        /// Datagrams received.
        pub datagrams_received: u64,
        /// Trains received.
        pub trains_received: u64,
        /// Bytes in datagrams received.
        pub bytes_received: u64,
        /// Trains that reached the wrong shard of an address (`Engine::sharded`). They are dropped
        /// and not counted above. A few are normal while the shards are being closed; otherwise a
        /// program of the same user joined the address.
        pub trains_misdirected: u64,
        /// System calls for receiving.
        pub receive_calls: u64,
        /// Datagrams lost because the receive queue was full: raise its size or the number of
        /// receivers.
        pub receive_overflows: u64,
        /// Trains for which segmentation offload was refused. If the device does not support it, it
        /// is disabled after the first.
        pub offload_fallbacks: u64,
        /// Packets received as TCP, from kernel modules with `hijack_tcp` (raw IP; also counted
        /// above).
        pub tcp_hijack_received: u64,
        /// Packets for ports of other processes, which raw IP sockets receive, too.
        pub other_ports: u64,
        /// Sockets for TCP-hijacked packets that the system refused: such packets are not received.
        pub tcp_hijack_refused: u64,
        /// Sockets at every IPv6 address for which the system refused IPv4 (UDP): they cannot call
        /// IPv4 servers.
        pub ipv4_refused: u64,
        /// Datagrams sent as frames that bypass the kernel's network stack (AF_XDP; also counted
        /// above).
        pub frames_sent: u64,
        /// Datagrams received as frames that bypass the kernel's network stack (AF_XDP; also
        /// counted above).
        pub frames_received: u64,
        /// Frames for our ports that were dropped because of a wrong length, checksum, or address
        /// (AF_XDP).
        pub frames_malformed: u64,
        /// Datagrams that were encrypted.
        pub datagrams_sealed: u64,
        /// Datagrams that were decrypted and authentic.
        pub datagrams_opened: u64,
        /// Encrypted datagrams that were dropped because they are not authentic, and malformed
        /// ones.
        pub datagrams_forged: u64,
        /// Encrypted datagrams that were dropped because they are repeated or too old.
        pub datagrams_replayed: u64,
        /// Encrypted datagrams that were dropped because no session has their key. A few are normal
        /// after a restart.
        pub datagrams_unknown_key: u64,
        /// Plaintext datagrams that were dropped because this engine has keys: their sender needs
        /// them, too.
        pub datagrams_plaintext_refused: u64,
        /// Datagrams that were dropped while they waited for a session.
        pub datagrams_without_session: u64,
        /// Handshakes completed.
        pub handshakes_completed: u64,
        /// Handshakes completed with a ticket of an earlier one, which is cheaper.
        pub handshakes_resumed: u64,
        /// Handshakes whose server accepted early data.
        pub handshakes_early: u64,
        /// Datagrams of early data that were opened and passed on.
        pub early_datagrams_opened: u64,
        /// Datagrams of early data that were opened and dropped, because they contain more than
        /// requests that may be executed twice.
        pub early_datagrams_refused: u64,
        /// Handshakes that failed because one end does not accept the keys or the identity of the
        /// other, or has no keys.
        pub handshakes_refused: u64,
        /// Handshakes that failed for other reasons.
        pub handshakes_failed: u64,
        /// Handshakes that were given up because the peer did not answer.
        pub handshakes_unanswered: u64,
        /// Handshakes of others that were not begun because too many began at the same time.
        pub handshakes_throttled: u64,
        /// Fragments of handshakes that were dropped because they are forged, repeated, or too
        /// many.
        pub handshake_fragments_dropped: u64,
        /// Encrypted sessions with peers.
        pub sessions: u64,
    }
}

/// The rate of a link that packets leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkMetrics {
    /// The interface; `*` if the configured rate applies to all peers.
    pub interface: String,
    /// The rate; `None` if there is no limit or it is unknown.
    pub rate: Option<Rate>,
    /// The source of the rate: `configured` (by the user), `route` (the interface of the kernel's
    /// routes), `guess` (one of several possible rates), `estimated` (by the pacer), `unlimited`
    /// (loopback), or `unknown`.
    pub source: &'static str,
}

/// A snapshot of all metrics since the engine was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The name of the engine ([`Config::name`](method@crate::Config::name)), which is the label
    /// `engine` in the text.
    pub name: Option<String>,
    /// Counters of the protocol.
    pub protocol: Counters,
    /// Counters of the driver.
    pub driver: DriverCounters,
    /// Counters and gauges of the engine.
    pub engine: EngineCounters,
    /// Links that packets left by.
    pub links: Vec<LinkMetrics>,
    /// Latency histograms, one for each direction, outcome, and size that occurred.
    pub latencies: Vec<Latency>,
    /// The peers with most RPCs in the last minute: at most 16 as servers and 16 as clients.
    pub peers: Vec<PeerLatency>,
    /// Where the time of some RPCs went, by direction, size, and duration.
    pub stages: Vec<StageTimes>,
    /// The shortest time between the request and the response of those calls: at least a round trip
    /// of the network. `None` before the first.
    pub shortest_wait: Option<Duration>,
    /// Time in which the process did not run although a timer was due, of stalls of 10 ms or more
    /// (their number is `protocol.stalls`).
    pub stalled: Duration,
    /// When the engine was opened; of several, the first. Another time means another process or
    /// another engine, whose counters began at 0. `None` without an engine.
    pub opened: Option<SystemTime>,
    /// When the certificate that the engine presents expires
    /// ([`Keys::certificate_expiry`](crate::Keys::certificate_expiry)). `None` without one.
    pub certificate_expiry: Option<SystemTime>,
}

/// Rank of a source of rates ([`LinkMetrics::source`]); 0 is the most reliable.
fn rank(source: &str) -> usize {
    let best_first = ["configured", "route", "unlimited", "estimated", "guess"];
    best_first.iter().position(|of| *of == source).unwrap_or(best_first.len())
}

/// Fields that are gauges, by the struct that they belong to.
const GAUGES: [(&str, &str); 8] = [
    ("engine", "peers"),
    ("engine", "send_memory_bytes"),
    ("engine", "send_memory_limit_bytes"),
    ("engine", "receive_memory_bytes"),
    ("engine", "receive_memory_limit_bytes"),
    ("engine", "calls_in_progress"),
    ("engine", "requests_in_progress"),
    ("driver", "sessions"),
];

impl Metrics {
    /// The sums of several engines of this host that have different peers.
    pub fn of_all(engines: &[Engine]) -> Self {
        Self::sum(engines.iter().map(Engine::metrics))
    }

    /// The sum of all, or zeroes if there are none.
    pub(crate) fn sum(all: impl Iterator<Item = Self>) -> Self {
        let add = |mut sum: Self, other| {
            sum.add(other);
            sum
        };
        all.reduce(add).unwrap_or_default()
    }

    /// Adds the metrics of another engine of the same host that has other peers. The sum has a name
    /// if both have the same.
    ///
    /// ```
    /// # let (front, back) = (homa::Client::new()?, homa::Client::new()?);
    /// let mut both = front.engine().metrics();
    /// both.add(back.engine().metrics());
    /// println!("{} calls in progress", both.engine.calls_in_progress);
    /// # Ok::<(), homa::OpenError>(())
    /// ```
    pub fn add(&mut self, other: Self) {
        if self.name != other.name {
            self.name = None;
        }
        self.protocol.add(&other.protocol);
        self.driver.add(&other.driver);
        self.engine.add(&other.engine);
        for link in other.links {
            match self.links.iter_mut().find(|ours| ours.interface == link.interface) {
                // Each estimate is a share of the link, so the sum is the estimate for the link.
                Some(ours) if link.source == "estimated" && ours.source == "estimated" => {
                    let rates = ours.rate.zip(link.rate);
                    ours.rate = rates.map(|(ours, other)| Rate(ours.0 + other.0));
                }
                // The other engine's source is more reliable.
                Some(ours) if rank(link.source) < rank(ours.source) => *ours = link,
                Some(_) => {}
                None => self.links.push(link),
            }
        }
        latency::merge(&mut self.latencies, other.latencies);
        self.peers = busiest::merge(&self.peers, &other.peers);
        stages::merge(&mut self.stages, &other.stages);
        self.shortest_wait = self.shortest_wait.into_iter().chain(other.shortest_wait).min();
        self.stalled += other.stalled;
        self.opened = self.opened.into_iter().chain(other.opened).min();
        let expiries = [self.certificate_expiry, other.certificate_expiry];
        self.certificate_expiry = expiries.into_iter().flatten().min();
    }

    /// Counters by name: `protocol_`, `driver_`, or `engine_`, followed by the field.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        self.fields().filter(|field| !field.gauge).map(|field| (field.name, field.value))
    }

    /// Gauges by name, in the same format.
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
                gauge: GAUGES.contains(&(of, name)),
            }
        };
        protocol
            .map(field("protocol"))
            .chain(driver.map(field("driver")))
            .chain(engine.map(field("engine")))
    }

    /// The snapshot in the OpenMetrics text format, for Prometheus (feature `metrics-http` serves
    /// it: `metrics::http`). Every family has a description (`# HELP`).
    pub fn to_openmetrics(&self) -> String {
        Self::openmetrics_of(std::slice::from_ref(self))
    }

    /// Several engines in one text. Each needs another name.
    ///
    /// ```
    /// use homa::metrics::Metrics;
    /// use homa::{Config, Engine};
    ///
    /// let at = "127.0.0.1:0".parse()?;
    /// let open = |name| Engine::bind(at, Config::default().name(name));
    /// let (front, back) = (open("front")?, open("back")?);
    /// let text = Metrics::openmetrics_of(&[front.metrics(), back.metrics()]);
    /// assert!(text.contains("homa_engine_peers{engine=\"front\"} 0\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn openmetrics_of(all: &[Self]) -> String {
        let mut text = Text::default();
        for metrics in all {
            text.engine(metrics.name.as_deref());
            metrics.write(&mut text);
        }
        text.finish()
    }

    fn write(&self, text: &mut Text) {
        for Field { name, value, help, gauge } in self.fields() {
            let (kind, suffix) = if gauge { ("gauge", "") } else { ("counter", "_total") };
            text.family(&name, kind, help);
            text.sample(&format!("{name}{suffix}"), &[], value);
        }
        self.write_links(text);
        text.family("protocol_drops", "counter", "Packets that were dropped, by reason.");
        for (reason, value) in self.protocol.drops() {
            let reason = snake(&format!("{reason:?}"));
            text.sample("protocol_drops_total", &[("reason", &reason)], value);
        }
        latency::write(&self.latencies, text);
        busiest::write(&self.peers, text);
        stages::write(&self.stages, self.shortest_wait, text);
        self.write_expiry(text);
        self.write_times(text);
    }

    fn write_times(&self, text: &mut Text) {
        let name = "engine_stalled_seconds";
        let help = "Time in which the process did not run although a timer was due, of stalls of \
                    10 ms or more.";
        text.family(name, "counter", help);
        text.sample(&format!("{name}_total"), &[], self.stalled.as_secs_f64());
        let Some(at) = self.opened else { return };
        let name = "engine_opened_timestamp_seconds";
        let help = "When the engine was opened, in seconds since 1970. If it changes, all counters \
                    began anew.";
        text.family(name, "gauge", help);
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        text.sample(name, &[], since.as_secs_f64());
    }

    fn write_expiry(&self, text: &mut Text) {
        let Some(at) = self.certificate_expiry else { return };
        let name = "certificate_expiry_timestamp_seconds";
        let help = "When the certificate of the engine expires, in seconds since 1970.";
        text.family(name, "gauge", help);
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        text.sample(name, &[], since.as_secs());
    }

    fn write_links(&self, text: &mut Text) {
        let name = "egress_rate_bits_per_second";
        let help = "Rates of the links that packets leave by, and where they are known from.";
        text.family(name, "gauge", help);
        for LinkMetrics { interface, rate, source } in &self.links {
            // Without a rate, the link is unlimited or its rate is unknown.
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

/// Converts `SeveralWords` to `several_words`.
pub(crate) fn snake(name: &str) -> String {
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
    fn merged_metrics_use_the_most_reliable_rate_of_a_link() {
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
