//! Path MTU discovery of the engine: it probes the paths that are due
//! ([`crate::engine::net::pmtu`]) and applies the sizes that they find.

use homa_proto::{Body, Packet, PeerId, RpcId, Time};

use super::Core;
use crate::driver::TooBig;
use crate::engine::net::pmtu::PathProbe;

/// A probe and the ports that it names.
type PortedProbe = (PathProbe, (u16, u16));

impl Core {
    /// Handles the network's reports about packets that were too large.
    pub(super) fn note_too_big(&mut self) {
        while let Some(report) = self.driver.too_big() {
            let TooBig { to, mtu, quoted, .. } = report;
            // Without a packet of ours in it, the report may be forged.
            let Some(quoted) = quoted else {
                self.state.counters.icmp_reports_ignored += 1;
                continue;
            };
            let now = self.tick();
            let mtu = match mtu {
                Some(mtu) => mtu,
                // Our own system refused the packet, so the MTU of the route is known.
                None => self.driver.routes().and_then(|routes| routes(to)).unwrap_or(0),
            };
            let state = &mut self.state;
            let known: Vec<PeerId> = state.peers.known(to).collect();
            for peer in known {
                let known = state.endpoint.is_in_progress(peer, quoted.id);
                let Some(info) = state.peers.path(peer) else { continue };
                // A forged report cannot name an RPC in progress.
                if !known && !state.paths.is_probe(peer, quoted.id) {
                    continue;
                }
                state.paths.too_big(now, peer, info, mtu, report.mtu.is_none());
            }
        }
    }

    /// Treats RESENDs that were just packed as loss: the peer may not receive what we send.
    pub(super) fn note_resends(&mut self, now: Time) {
        let state = &mut self.state;
        for peer in self.packer.take_resend_peers() {
            // Probes are large, so that a spoofed address must not cause any.
            if let Some(info) = state.peers.path(peer)
                && state.endpoint.is_validated(peer)
                && state.peers.fills_packets(peer)
            {
                state.paths.lost(now, peer, info);
            }
        }
    }

    /// When [`Core::attend_paths`] is due.
    pub(super) fn paths_due(&self) -> Option<Time> {
        self.state.paths.first_due()
    }

    /// Sends the probes that are due, and applies the sizes that were found.
    pub(super) fn attend_paths(&mut self) {
        if self.paths_due().is_none() {
            return;
        }
        let now = self.tick();
        let due = self.state.paths.due(now);
        let mut probes = Vec::new();
        for peer in due {
            probes.extend(self.attend_path(now, peer));
        }
        for (peer, (probe, (local_port, remote_port))) in probes {
            let packet = |id| Packet {
                peer,
                // The highest level, because the answer is awaited for a few milliseconds only.
                priority: 7,
                local_port,
                remote_port,
                id: RpcId(id),
                body: Body::NeedAck,
            };
            // The short packet first: behind the padded one it would be part of the same train.
            let sizes = [(packet(probe.small_id()), 0), (packet(probe.id), probe.size)];
            let wire = self.packer.pack_probe(&sizes, &self.state.peers);
            let link = self.state.peers.get(peer).map(|peer| peer.link).unwrap_or_default();
            self.send_packed(now, link, wire);
        }
    }

    /// Attends to one path. Returns a probe if one is due, with the ports that it names.
    fn attend_path(&mut self, now: Time, peer: PeerId) -> Option<(PeerId, PortedProbe)> {
        let state = &mut self.state;
        let address = state.peers.path(peer).map(|info| info.address);
        let heard = state.endpoint.last_heard(peer);
        let ports = || state.endpoint.ports_to(peer);
        let path = state.paths.attend(now, peer, address, heard, ports)?;
        // Packets of the old size were lost, and so perhaps was the whole request.
        if state.peers.set_mtu(peer, path.mtu, &mut state.endpoint) {
            state.endpoint.restart_unanswered(now, peer);
        }
        Some((peer, path.probe?))
    }
}
