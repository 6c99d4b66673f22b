//! Grants as in the authors' simulator: one packet at a time, paced per sender.
//!
//! A sender has a grant timer of one packet's time, which runs while less than the window of its
//! best message is outstanding. While it runs, only grants of a higher level are given.

use super::active::MAX_ACTIVE;
use super::scheduler::GrantTimer;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::Body;
use crate::receive::message::IncomingMessage;
use crate::units::Time;
use crate::util::frame::wire_bytes;

/// The next grant for one sender.
struct NextGrant {
    bytes: u32,
    level: u8,
    wire_bytes: u32,
}

impl Endpoint {
    /// DATA of a sender arrived, or its timer fired (`host`), or other messages became active, or
    /// memory became free.
    pub(crate) fn grant_senders(&mut self, host: Option<u32>) {
        // Grants were withheld for want of memory, which may be free by now.
        if core::mem::take(&mut self.grants.starved) {
            (0..MAX_ACTIVE).for_each(|rank| {
                if let Some(host) = self.grants.scheduler.host_at(rank) {
                    self.grant_sender(host);
                }
            });
        }
        if let Some(host) = host {
            self.grant_sender(host);
        }
        // The grants above may have made messages of other senders active.
        while let Some(host) = self.grants.scheduler.take_newly_active() {
            self.grant_sender(host);
        }
    }

    /// Fires grant timers.
    pub(crate) fn expire_grants(&mut self, now: Time) {
        while let Some(host) = self.grants.scheduler.take_due(now) {
            self.grant_senders(Some(host));
        }
    }

    fn grant_sender(&mut self, host: u32) {
        let Some((rank, handle, timer)) = self.grants.scheduler.active_of(host) else { return };
        let Some(next) = self.next_grant(handle, rank) else { return };
        let paced = timer.until > self.now && timer.until != Time::MAX;
        // The last GRANT is still being answered, and this one is not more urgent.
        if paced && next.level <= timer.level {
            return;
        }
        // The window is full, so the next DATA packet, not a timer, leads to a grant.
        if !self.has_window(handle) {
            self.grants.scheduler.set_timer(host, GrantTimer::default());
            return;
        }
        let granted = self.extend_grant(handle, next.bytes, next.level);
        if granted == 0 {
            return;
        }
        self.send_grant(handle, next.wire_bytes);
        // The last grant of a message makes the sender's next one the best.
        let more = self.grants.scheduler.best_of(host).is_some_and(|best| self.has_window(best));
        // The next packet may be granted when this one has left, if there is anything to grant.
        let until = match self.config.link_rate {
            Some(rate) if more => self.now + rate.time_for(u64::from(next.wire_bytes)),
            _ => Time::MAX,
        };
        self.grants.scheduler.set_timer(host, GrantTimer { until, level: next.level });
    }

    fn has_window(&self, handle: RpcHandle) -> bool {
        let Some(rpc) = self.rpcs.get(handle) else { return false };
        let room = |inc: &IncomingMessage| self.window_free(inc, self.window(rpc.peer));
        rpc.inc.as_ref().is_some_and(|inc| room(inc) > 0)
    }

    /// Queues the GRANT of one packet. Later grants do not replace it.
    fn send_grant(&mut self, handle: RpcHandle, wire_bytes: u32) {
        let level = self.levels.top();
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        let Some(inc) = &mut rpc.inc else { return };
        inc.grant.wire_outstanding += wire_bytes;
        inc.grant.grant_sent = inc.grant.granted;
        let body = Body::Grant { offset: inc.grant.granted, priority: inc.grant.priority };
        self.counters.grants_sent += 1;
        self.control.push(rpc.control(level, body));
    }

    fn next_grant(&self, handle: RpcHandle, rank: usize) -> Option<NextGrant> {
        let rpc = self.rpcs.get(handle)?;
        let inc = rpc.inc.as_ref()?;
        let payload = self.peer(rpc.peer)?.info.max_payload + self.config.scheduled_extra;
        let left = inc.bytes.length() - inc.grant.granted;
        let bytes = (inc.limit() - inc.grant.granted).min(payload);
        let level = self.scheduled_level(rank, left, payload);
        Some(NextGrant { bytes, level, wire_bytes: wire_bytes(bytes, payload) })
    }
}
