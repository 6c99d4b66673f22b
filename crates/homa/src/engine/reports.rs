//! What the network reports about packets sent earlier.

use homa_proto::Unreachable;

use super::Core;
use crate::driver::Missing;

impl Core {
    /// Tells the protocol who cannot be reached, and which size its packets have to have.
    pub(super) fn report_unreachable(&mut self) {
        self.note_too_big();
        self.tend_paths();
        while let Some(report) = self.driver.unreachable() {
            if report.quoted.is_none() {
                self.state.counters.icmp_reports_ignored += 1;
                continue;
            }
            let now = self.tick();
            let what = match report.what {
                Missing::Host => Unreachable::Host,
                Missing::Protocol => Unreachable::Protocol,
                Missing::Port => Unreachable::Port(report.to.port()),
            };
            for peer in self.state.peers.known(report.to) {
                self.state.endpoint.unreachable(now, peer, what, report.quoted);
            }
            self.state.drain_events();
        }
    }
}
