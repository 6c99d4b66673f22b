//! The metrics of an engine, its protocol, and its driver.

use homa_proto::{Delivered, PeerId, RpcHandle, Time};

use super::Core;
use super::protection;
use super::receive::EngineState;
use crate::engine::probes;
use crate::metrics::{Direction, Metrics, RpcOutcome};

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
        engine.send_memory_limit_bytes = self.state.config.send_memory;
        engine.receive_memory_bytes = self.state.endpoint.incoming_memory();
        engine.receive_memory_limit_bytes = self.state.config.protocol.memory_budget;
        let (calls, requests) = self.rpcs();
        engine.calls_in_progress = calls as u64;
        engine.requests_in_progress = requests as u64;
        let (stages, shortest_wait) = self.state.latencies.stages.snapshot();
        Metrics {
            name: self.state.config.name.clone(),
            protocol: self.state.endpoint.counters().clone(),
            driver: *self.driver.counters(),
            engine,
            links: self.state.links.metrics(),
            latencies: self.state.latencies.histograms(),
            peers: self.state.peers.busiest(self.clock.now(), &self.state.endpoint),
            stages,
            shortest_wait,
            stalled: self.state.latencies.stages.stalled_time(),
            opened: Some(self.opened),
            certificate_expiry: protection::certificate_expiry(&self.state.config),
        }
    }
}

impl EngineState {
    /// The first bytes of a long message arrived: its RPC is followed if its turn has come.
    pub fn follow(&mut self, rpc: RpcHandle, length: u32) {
        let endpoint = &self.endpoint;
        let Some(peer) = endpoint.peer_of(rpc) else { return };
        let (now, server) = (endpoint.now(), Direction::Server);
        self.latencies.follow(now, rpc, peer, server, length, || endpoint.id_of(rpc));
    }

    /// A request is complete.
    pub fn begin_request(&mut self, now: Time, of: &Delivered) {
        probes::request_admitted(of);
        let (rpc, server) = (of.rpc, Direction::Server);
        self.latencies.begin(now, rpc, of.peer, server, of.length, || Some(of.id));
    }

    /// An RPC ended; its peer is still in the table. Returns when it began, and its peer.
    pub fn ended(
        &mut self,
        rpc: RpcHandle,
        outcome: RpcOutcome,
        length: u32,
    ) -> Option<(Time, PeerId)> {
        let now = self.endpoint.now();
        let (peer, direction, nanos) = self.latencies.end(now, rpc, outcome, length)?;
        // Counted with the peer's address, and dropped with it.
        self.peers.ended(peer, direction).add(now, nanos, outcome);
        Some((Time(now.0.saturating_sub(nanos)), peer))
    }
}
