//! Reports of the network (ICMP) about packets that were sent earlier, and refusals of our own
//! system.

use std::thread;
use std::time::Duration;

use homa_proto::{PeerId, Unreachable};

use super::Core;
use crate::driver::refusal::{self, ErrnoMeaning};
use crate::driver::{Rejection, SystemRefusal};

/// The pause after the system refused to receive: poll would report the same socket at once.
const PAUSE: Duration = Duration::from_millis(1);

impl Core {
    /// Handles the reports of unreachable addresses, and of packets that were too large or refused.
    pub(super) fn handle_reports(&mut self) {
        self.note_too_big();
        self.attend_paths();
        while let Some(report) = self.driver.unreachable() {
            // Without a packet of ours in it, the report may be forged.
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
        self.answer_encrypted_peers();
        while let Some(rejection) = self.driver.rejection() {
            self.handle_rejection(rejection);
        }
        while let Some(refusal) = self.driver.refusal() {
            self.handle_refusal(refusal);
        }
    }

    /// A packet was not sent, because its peer and we do not accept each other. The call that it
    /// was about ends.
    pub(super) fn handle_rejection(&mut self, rejection: Rejection) {
        let now = self.tick();
        let quoted = Some(rejection.quoted);
        let known: Vec<PeerId> = self.state.peers.known(rejection.to).collect();
        // `why` names it in the errors of the calls that end meanwhile.
        self.state.rejection = Some(rejection);
        for peer in known {
            let what = Unreachable::Refused { errno: libc::EKEYREJECTED };
            self.state.endpoint.unreachable(now, peer, what, quoted);
        }
        self.state.drain_events();
        self.state.rejection = None;
    }

    /// The system refused a packet, or to receive. If that lasts, calls that were not sent end; if
    /// it may pass, their errors name it when they end at their deadline.
    fn handle_refusal(&mut self, SystemRefusal { packet, errno }: SystemRefusal) {
        let now = self.tick();
        let meaning = refusal::meaning(errno);
        // The refusal is about receiving, so it concerns all peers.
        let Some((to, quoted)) = packet else {
            match meaning {
                ErrnoMeaning::Closed | ErrnoMeaning::Lasting => return self.fail(errno),
                _ => self.state.peers.note_refusal(now, None, errno),
            }
            return thread::sleep(PAUSE);
        };
        // The descriptor is gone for every peer.
        if meaning == ErrnoMeaning::Closed {
            return self.fail(errno);
        }
        let known: Vec<PeerId> = self.state.peers.known(to).collect();
        for peer in known {
            self.state.peers.note_refusal(now, Some(peer), errno);
            // If it may pass, the call continues, and the error at its deadline names it.
            if meaning == ErrnoMeaning::Lasting && quoted.is_some() {
                let what = Unreachable::Refused { errno };
                self.state.endpoint.unreachable(now, peer, what, quoted);
            }
        }
        self.state.drain_events();
    }
}
