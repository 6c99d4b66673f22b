//! Messages whose senders are silent are suspended: overcommitment is for senders that may not
//! answer (Homa §3.5), so others get what they hold until they send again. Requests of clients that
//! are not validated start suspended.

use super::memory::release;
use super::overcommitment::SrptKey;
use crate::config::GrantWindow;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::loss::MAX_LEARNED;
use crate::packet::PeerId;
use crate::receive::message::IncomingMessage;
use crate::units::{Duration, Time};
use alloc::boxed::Box;

/// A message has stalled after this many times the RESEND timeout without progress, or after as
/// long as its sender usually pauses (low levels wait for high ones), plus the time that
/// unscheduled bytes of others need.
const STALL: u64 = 2;

impl Endpoint {
    /// A message may be granted from now on, if it needs grants.
    pub(crate) fn schedule(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let needs = |inc: &&mut Box<IncomingMessage>| inc.grant.granted < inc.limit();
        let Some(inc) = rpc.inc.as_mut().filter(needs) else { return };
        inc.grant.scheduled = true;
        // In profile `default` a message counts from its first grant on, because anyone can
        // announce one.
        if !matches!(self.config.window, GrantWindow::RttBytesShared { .. }) {
            inc.grant.window_counted = true;
            self.grants.granted += u64::from(inc.outstanding());
        }
        let peer = rpc.peer;
        let key = Self::srpt_key(&self.config.policy().grants, handle, inc);
        self.enlist(key, peer);
    }

    /// A message of a peer waits for grants.
    pub(super) fn enlist(&mut self, key: SrptKey, peer: PeerId) {
        let known = self.peers.get(peer.0 as usize).and_then(Option::as_ref);
        let deprioritized = known.is_some_and(|peer| self.grants.hosts.is_deprioritized(peer));
        self.grants.scheduler.insert(key, Self::host_of(&self.peers, peer), deprioritized);
    }

    /// The sender of a message does not answer: others get its place among the active messages, its
    /// share of the window, and the memory for bytes that did not come. Otherwise a dead host would
    /// hold what it was granted until its RPC ends, and an abandoned message what it announced.
    pub(crate) fn suspend(&mut self, handle: RpcHandle) {
        // A request whose client is not validated starts suspended, and has no grants.
        let Some(rpc) = self.rpcs.get_mut(handle).filter(|rpc| !rpc.is_unvalidated()) else {
            return;
        };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| !inc.grant.suspended) else { return };
        self.grants.expected -= u64::from(inc.outstanding());
        self.grants.release_window(inc, u64::from(inc.outstanding()));
        inc.grant.suspended = true;
        let unused = inc.grant.reserved.saturating_sub(inc.held());
        inc.grant.reserved -= unused;
        release(&mut self.grants, &mut self.peers, (rpc.peer, false), unused);
        if core::mem::take(&mut inc.grant.scheduled) {
            let key = Self::srpt_key(&self.config.policy().grants, handle, inc);
            self.grants.scheduler.remove(key, Self::host_of(&self.peers, rpc.peer));
        }
        // If it is the message over budget, it stays that one: otherwise each silent sender could
        // add a message.
        self.wake_memory_queue();
        self.grant(None);
    }

    /// Suspends a message that has made too little progress for too long, at the expense of its
    /// sender's host; returns when that will be. This is not the RESEND timeout, which grows with
    /// announced bytes: an announcement must not decide how long others wait.
    pub(crate) fn suspend_if_stalled(&mut self, now: Time, handle: RpcHandle) -> Time {
        let loss = &self.config.loss;
        // In the other profiles only RESENDs without an answer suspend a message. With one RESEND
        // per peer, a message of a silent peer seldom asks, so the time decides.
        let Some(rpc) = self.rpcs.get(handle).filter(|_| loss.one_resend_per_peer) else {
            return Time::MAX;
        };
        let owed = rpc.inc.as_ref().filter(|inc| !inc.grant.suspended && inc.outstanding() > 0);
        let Some(inc) = owed else { return Time::MAX };
        // Bounded, because others wait for the place of a sender that is always slow.
        let usual = self.peer(rpc.peer).map(|peer| peer.cold.timing.usual_gap().min(MAX_LEARNED));
        let silence = Duration(loss.resend_after.0.saturating_mul(STALL));
        let silence = silence.max(usual.unwrap_or_default());
        let transfer = self.time_for(rpc.peer, self.unscheduled_cap().into());
        let at = inc.grant.progress + silence + transfer;
        if now < at {
            return at;
        }
        let (peer, wasted) = (rpc.peer, inc.outstanding());
        // Homa §3.5 gives the place to others; the host repays what its silence cost them.
        if let Some(peer) = self.peers.get_mut(peer.0 as usize).and_then(Option::as_mut) {
            self.grants.hosts.record_waste(peer, &mut self.grants.scheduler, wasted);
        }
        self.suspend(handle);
        Time::MAX
    }

    /// The sender of a suspended message is back.
    pub(crate) fn resume(&mut self, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = rpc.inc.as_mut().filter(|inc| inc.grant.suspended) else { return };
        inc.grant.suspended = false;
        self.grants.expected += u64::from(inc.outstanding());
        inc.grant.scheduled = inc.grant.granted < inc.limit();
        self.grants.charge_window(inc);
        let policy = &self.config.policy().grants;
        let key = inc.grant.scheduled.then(|| Self::srpt_key(policy, handle, inc));
        let peer = rpc.peer;
        if let Some(key) = key {
            self.enlist(key, peer);
        }
    }
}
