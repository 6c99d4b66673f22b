//! Messages whose senders fell silent (Homa §3.5: overcommitment is for senders that may not
//! answer): what they hold is for others until they send again.

use super::release;
use crate::endpoint::Endpoint;
use crate::table::Ref;

impl Endpoint {
    /// The sender of a message does not answer: others get its place among the active messages, its
    /// share of the window, and the memory kept for bytes that did not come. Without this, a dead
    /// host holds what it was granted until its RPC ends, and a message that begins and does not go
    /// on, what it announced.
    pub(crate) fn park(&mut self, who: Ref) {
        let Some(rpc) = self.rpcs.get_mut(who) else { return };
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
