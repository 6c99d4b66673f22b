//! The metrics of an engine, its protocol, and its driver.

use super::Core;
use crate::metrics::Metrics;

impl Core {
    /// A snapshot of the metrics.
    pub fn metrics(&self) -> Metrics {
        let mut engine = self.state.counters;
        let (peers, evicted) = self.state.peers.count();
        engine.pacer_waits = self.state.links.waits();
        let changes = self.state.paths.changes;
        engine.path_mtu_lowered = changes.lowered;
        engine.path_mtu_raised = changes.raised;
        engine.path_mtu_black_holes = changes.black_holes;
        engine.peers = peers as u64;
        engine.peers_evicted = evicted;
        engine.send_memory_bytes = self.state.messages.outgoing_bytes();
        engine.receive_memory_bytes = self.state.endpoint.incoming_memory();
        let (calls, requests) = self.rpcs();
        engine.calls_in_progress = calls as u64;
        engine.requests_in_progress = requests as u64;
        Metrics {
            name: self.state.config.name.clone(),
            protocol: self.state.endpoint.counters().clone(),
            driver: *self.driver.counters(),
            engine,
            links: self.state.links.metrics(),
            latencies: self.state.latencies.histograms(),
            peers: self.state.peers.busiest(),
        }
    }
}
