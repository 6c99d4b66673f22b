//! Which incoming messages grants are for. Those whose senders fell silent are parked (Homa §3.5:
//! overcommitment is for senders that may not answer): what they hold is for others until they send
//! again; and so are strangers', until these prove who they are.

use super::release;
use crate::config::GrantWindow;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::grant::scheduler::SrptKey;
use crate::loss::MAX_LEARNED_TIMEOUT;
use crate::packet::PeerId;
use crate::units::{Duration, Time};

/// A message has stalled of which nothing came for so many times as long as a RESEND waits, or as
/// long as its sender usually pauses (low levels wait for high ones), beside what the bytes need
/// that may come unasked.
const STALL: u64 = 2;

impl Endpoint {
    /// A message may be granted from now on, if it needs that.
    pub(crate) fn schedule(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| inc.granted < inc.bytes.length()) else {
            return;
        };
        inc.scheduled = true;
        if !matches!(self.config.window, GrantWindow::RttBytesShared { .. }) {
            inc.window_counted = true;
            self.incoming.granted += u64::from(inc.outstanding());
        }
        let peer = rpc.peer;
        let key = Self::key(&self.config.policy().grants, handle, inc);
        self.enlist(key, peer);
    }

    /// A message of a peer waits for grants.
    fn enlist(&mut self, key: SrptKey, peer: PeerId) {
        let known = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let deprioritized = known.is_some_and(|peer| self.incoming.accounts.is_deprioritized(peer));
        self.scheduler.insert(key, Self::host_of(&self.peers, peer), deprioritized);
    }

    /// The sender of a message does not answer: others get its place among the active messages, its
    /// share of the window, and the memory kept for bytes that did not come. Without this, a dead
    /// host holds what it was granted until its RPC ends, and a message that begins and does not go
    /// on, what it announced.
    pub(crate) fn suspend(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle).filter(|rpc| !rpc.unvalidated) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| !inc.suspended) else { return };
        self.incoming.expected -= u64::from(inc.outstanding());
        self.incoming.release_window(inc, u64::from(inc.outstanding()));
        inc.suspended = true;
        let unused = inc.reserved.saturating_sub(inc.held());
        inc.reserved -= unused;
        release(&mut self.incoming, &mut self.peers, (rpc.peer, false), unused);
        if core::mem::take(&mut inc.scheduled) {
            let key = Self::key(&self.config.policy().grants, handle, inc);
            self.scheduler.remove(key, Self::host_of(&self.peers, rpc.peer));
        }
        // It stays the one beyond the budget, if it was: else each silent sender could add a
        // message.
        self.wake_waiting();
        self.grant(None);
    }

    /// Parks a message of which too little came for too long, at the expense of its sender's host,
    /// and yields when that will be. How long others have to wait is not for what was announced to
    /// say, so this is no RESEND's patience, which grows with that.
    pub(crate) fn suspend_if_stalled(&mut self, now: Time, handle: RpcHandle) -> Time {
        let loss = &self.config.loss;
        let Some(rpc) = self.rpcs.get(handle).filter(|_| loss.one_resend_per_peer) else {
            return Time::MAX;
        };
        let inc = rpc.inc.as_ref().filter(|inc| !inc.suspended && inc.outstanding() > 0);
        let Some(inc) = inc else { return Time::MAX };
        let usual =
            self.peer(rpc.peer).map(|peer| peer.cold.data_gap.usual().min(MAX_LEARNED_TIMEOUT));
        let silence = Duration(loss.resend_after.0.saturating_mul(STALL));
        let silence = silence.max(usual.unwrap_or_default());
        let at = inc.moved + silence + self.time_for(rpc.peer, self.unscheduled_cap().into());
        if now < at {
            return at;
        }
        let (peer, wasted) = (rpc.peer, inc.outstanding());
        if let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
            self.incoming.accounts.record_waste(peer, &mut self.scheduler, wasted);
        }
        self.suspend(handle);
        Time::MAX
    }

    /// A parked message's sender is back.
    pub(crate) fn resume(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| inc.suspended) else { return };
        inc.suspended = false;
        self.incoming.expected += u64::from(inc.outstanding());
        inc.scheduled = inc.granted < inc.bytes.length();
        self.incoming.charge_window(inc);
        let needs = inc.scheduled.then(|| Self::key(&self.config.policy().grants, handle, inc));
        let peer = rpc.peer;
        if let Some(key) = needs {
            self.enlist(key, peer);
        }
    }
}
