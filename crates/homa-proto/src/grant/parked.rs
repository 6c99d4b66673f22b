//! Which incoming messages grants are for. Those whose senders fell silent are parked (Homa §3.5:
//! overcommitment is for senders that may not answer): what they hold is for others until they send
//! again; and so are strangers', until these prove who they are.

use super::release;
use crate::config::GrantWindow;
use crate::endpoint::Endpoint;
use crate::table::Ref;

impl Endpoint {
    /// A message may be granted from now on, if it needs that.
    pub(crate) fn schedule(&mut self, who: Ref) {
        let Some(rpc) = self.rpcs.get_mut(who) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| inc.granted < inc.bytes.length()) else {
            return;
        };
        inc.scheduled = true;
        if !matches!(self.config.window, GrantWindow::RttBytesShared { .. }) {
            inc.window_counted = true;
            self.incoming.granted += u64::from(inc.outstanding());
        }
        let key = Self::key(self.config.profile, who, inc);
        self.scheduler.insert(key, Self::host_of(&self.peers, rpc.peer));
    }

    /// The sender of a message does not answer: others get its place among the active messages, its
    /// share of the window, and the memory kept for bytes that did not come. Without this, a dead
    /// host holds what it was granted until its RPC ends, and a message that begins and does not go
    /// on, what it announced.
    pub(crate) fn park(&mut self, who: Ref) {
        let Some(rpc) = self.rpcs.get_mut(who).filter(|rpc| !rpc.unproven) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| !inc.parked) else { return };
        self.incoming.expected -= u64::from(inc.outstanding());
        self.incoming.uncount(inc, u64::from(inc.outstanding()));
        inc.parked = true;
        let unused = inc.reserved.saturating_sub(inc.bytes.end());
        inc.reserved -= unused;
        release(&mut self.incoming, &mut self.peers, rpc.peer, unused);
        if core::mem::take(&mut inc.scheduled) {
            let key = Self::key(self.config.profile, who, inc);
            self.scheduler.remove(key, Self::host_of(&self.peers, rpc.peer));
        }
        // It stays the one beyond the budget, if it was: else each silent sender could add a
        // message.
        self.wake_waiting();
        self.grant(None);
    }

    /// A parked message's sender is back.
    pub(crate) fn unpark(&mut self, who: Ref) {
        let Some(rpc) = self.rpcs.get_mut(who) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| inc.parked) else { return };
        inc.parked = false;
        self.incoming.expected += u64::from(inc.outstanding());
        inc.scheduled = inc.granted < inc.bytes.length();
        self.incoming.recount(inc);
        if inc.scheduled {
            let key = Self::key(self.config.profile, who, inc);
            self.scheduler.insert(key, Self::host_of(&self.peers, rpc.peer));
        }
    }
}
