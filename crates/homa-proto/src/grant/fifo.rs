//! The oldest message's share of grants (Linux §2.4): with SRPT alone, long messages would starve.

use super::active::MAX_ACTIVE;
use crate::endpoint::Endpoint;
use crate::receive::message::IncomingMessage;
use crate::units::Rate;

impl Endpoint {
    /// The FIFO share by time, as the kernel module has it. The link needs a certain time to carry
    /// an increment in that share of its rate; each such time, the oldest message gets an increment
    /// beyond its window, but never more than two, at the second highest level.
    pub(super) fn fifo_grant_by_time(&mut self) {
        let increment = self.config.fifo_increment;
        let permille = u64::from(self.config.fifo_permille);
        // The share is off, or the link could not have carried the last increment yet.
        if permille == 0 || self.now < self.grants.fifo_due {
            return;
        }
        // A share of the link by time needs the rate of the link.
        let Some(rate) = self.config.link_rate else { return };
        let share = Rate((rate.0 / 1000 * permille).max(1));
        // The increment may leave once in the time that the share of the link needs for it.
        let interval = share.time_for(increment.into());
        let most = |inc: &IncomingMessage, window: u32| {
            inc.outstanding() < window.saturating_add(increment.saturating_mul(2))
        };
        let found = self.grants.scheduler.by_age().take(MAX_ACTIVE).find(|&handle| {
            let rpc = self.rpcs.get(handle);
            let inc = rpc.and_then(|rpc| Some((rpc.inc.as_ref()?, self.window(rpc.peer))));
            inc.is_some_and(|(inc, window)| most(inc, window))
        });
        let Some(handle) = found else { return };
        self.grants.fifo_due = self.now + interval;
        let Some(inc) = self.rpcs.get(handle).and_then(|rpc| rpc.inc.as_ref()) else { return };
        let extra = increment.min(inc.limit() - inc.grant.granted);
        self.counters.fifo_grants += 1;
        // The module's level for these grants is the second highest (Linux §2.4).
        if self.extend_grant(handle, extra, self.levels.top().saturating_sub(1)) > 0 {
            self.queue_grant(handle);
        }
    }

    /// The FIFO share by bytes: from time to time the oldest message is granted although others
    /// come first.
    pub(super) fn fifo_grant(&mut self) {
        let increment = self.config.fifo_increment;
        let due = u64::from(increment) * 1000;
        if self.config.fifo_permille == 0 || self.grants.fifo_credit < due {
            return;
        }
        self.grants.fifo_credit -= due;
        let Some(handle) = self.grants.scheduler.oldest() else { return };
        // The oldest message is granted first anyway.
        if self.grants.scheduler.rank(handle) == Some(0) {
            return;
        }
        let priority = self.levels.scheduled_top();
        let Some(rpc) = self.rpcs.get(handle) else { return };
        let Some(inc) = &rpc.inc else { return };
        let window = self.peer(rpc.peer).map_or(self.config.rtt_bytes, |peer| peer.rtt_bytes());
        // It has its share already and does not use it.
        if inc.outstanding() >= window.saturating_add(increment.saturating_mul(2)) {
            return;
        }
        let extra = increment.min(inc.limit() - inc.grant.granted);
        self.counters.fifo_grants += 1;
        if self.extend_grant(handle, extra, priority) > 0 {
            self.queue_grant(handle);
        }
    }
}
