//! What an engine counted, as a struct and as OpenMetrics text.

use std::fmt::Write;

use homa_proto::{Counters, Rate};

use crate::driver::DriverCounters;

/// Counters of the engine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Calls refused at submission (back-pressure, limits, addresses).
    pub calls_refused: u64,
    /// Requests given up unstarted because their clients waited no longer.
    pub requests_expired: u64,
    /// Extensions of datagrams that were skipped because their type is not known here: the peer is
    /// newer.
    pub unknown_extensions: u64,
    /// Times the pacer held back packets because enough were queued below.
    pub pacer_waits: u64,
    /// Reports of something unreachable (ICMP) that do not show of which RPC, and are not believed:
    /// who sees none of our packets can forge them.
    pub reports_ignored: u64,
    /// Times that packets to a peer became smaller because its path took no larger ones.
    pub path_mtu_lowered: u64,
    /// Times that they became larger again, since probes passed.
    pub path_mtu_raised: u64,
    /// Paths on which large packets vanished without a report (also counted as lowered).
    pub path_mtu_black_holes: u64,
    /// Peers forgotten to make room.
    pub peers_evicted: u64,
    /// Peers known now (a gauge).
    pub peers: u64,
    /// Bytes of outgoing messages held now (a gauge).
    pub send_memory_bytes: u64,
    /// Calls in progress now (a gauge).
    pub calls_in_progress: u64,
    /// Requests in progress now, unacknowledged replies included (a gauge).
    pub requests_in_progress: u64,
}

/// What is known about a link that packets leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
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
pub struct Metrics {
    /// The protocol's counters.
    pub protocol: Counters,
    /// The driver's counters.
    pub driver: DriverCounters,
    /// The engine's counters and gauges.
    pub engine: EngineCounters,
    /// Links that packets left by.
    pub links: Vec<LinkMetrics>,
}

impl Metrics {
    /// Counters by name: `protocol_`, `driver_` and `engine_` followed by the field.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        let protocol = self.protocol.iter().map(|(name, n)| (format!("protocol_{name}"), n));
        let driver = self.driver.iter().map(|(name, n)| (format!("driver_{name}"), n));
        let e = &self.engine;
        let engine = [
            ("engine_calls_refused", e.calls_refused),
            ("engine_requests_expired", e.requests_expired),
            ("engine_unknown_extensions", e.unknown_extensions),
            ("engine_pacer_waits", e.pacer_waits),
            ("engine_reports_ignored", e.reports_ignored),
            ("engine_path_mtu_lowered", e.path_mtu_lowered),
            ("engine_path_mtu_raised", e.path_mtu_raised),
            ("engine_path_mtu_black_holes", e.path_mtu_black_holes),
            ("engine_peers_evicted", e.peers_evicted),
        ];
        protocol.chain(driver).chain(engine.map(|(name, n)| (name.to_string(), n)))
    }

    /// Gauges by name.
    pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let e = &self.engine;
        [
            ("engine_peers", e.peers),
            ("engine_send_memory_bytes", e.send_memory_bytes),
            ("engine_calls_in_progress", e.calls_in_progress),
            ("engine_requests_in_progress", e.requests_in_progress),
        ]
        .into_iter()
    }

    /// The snapshot in the OpenMetrics text format, ready to be served to Prometheus.
    pub fn to_openmetrics(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.counters() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE homa_{name} counter\nhoma_{name}_total {value}");
        }
        for (name, value) in self.gauges() {
            let _ = writeln!(text, "# TYPE homa_{name} gauge\nhoma_{name} {value}");
        }
        text.push_str("# TYPE homa_egress_rate_bits_per_second gauge\n");
        for LinkMetrics { interface, rate, source } in &self.links {
            // No rate is no limit, or not known.
            let value = match rate {
                Some(rate) => rate.0.to_string(),
                None if *source == "unlimited" => "+Inf".to_owned(),
                None => "NaN".to_owned(),
            };
            let interface = interface.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(
                text,
                "homa_egress_rate_bits_per_second{{interface=\"{interface}\",source=\"{source}\"}} \
                 {value}"
            );
        }
        text.push_str("# TYPE homa_protocol_drops counter\n");
        for (reason, value) in self.protocol.drops() {
            let reason = snake(&format!("{reason:?}"));
            let _ = writeln!(text, "homa_protocol_drops_total{{reason=\"{reason}\"}} {value}");
        }
        text.push_str("# EOF\n");
        text
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
    fn the_text_names_every_metric_once_and_ends_as_openmetrics_demands() {
        let mut metrics = Metrics::default();
        metrics.protocol.drop_packet(homa_proto::DropReason::UnknownVersion);
        let text = metrics.to_openmetrics();
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("homa_protocol_drops_total{reason=\"unknown_version\"} 1\n"));
        let mut types: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all);
    }
}
