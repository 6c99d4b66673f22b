//! Reports of the network (ICMP) about packets that were sent earlier.

use super::Core;

impl Core {
    /// Handles the reports of unreachable addresses, and of packets that were too large.
    pub(super) fn handle_reports(&mut self) {
        self.note_too_big();
        self.attend_paths();
        while let Some(report) = self.driver.unreachable() {
            if report.quoted.is_none() {
                self.state.counters.icmp_reports_ignored += 1;
                continue;
            }
            let now = self.tick();
            for peer in self.state.peers.known(report.to) {
                self.state.endpoint.unreachable(now, peer, report.what, report.quoted);
            }
            self.state.drain_events();
        }
    }
}
