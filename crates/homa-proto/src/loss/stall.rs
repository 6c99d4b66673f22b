//! A host that stood still (Homa §3.7; Linux §2.5): what counts as silence of others is time in
//! which timers ran. The kernel module counts ticks of its timer, so a frozen host ages nothing;
//! here the time that a due timer waited is taken out of every silence, in one step.
//!
//! Invariants: whatever was due first is judged as at the time at which it was due, so that timers
//! go on however seldom somebody looks at them. What is not silence keeps its time: deadlines of
//! calls, the age of RPCs and of what was executed.
//!
//! Left out: reading what arrived meanwhile before timers act, which is the environment's part.

use crate::endpoint::Endpoint;
use crate::units::{Duration, Time};

/// Timers that are later than this were held up by the host; below it, by its other work.
pub(crate) const HOST_STALL: Duration = Duration::millis(10);

impl Endpoint {
    /// Until `now`, nothing ran here for `time`.
    #[cold]
    pub(crate) fn compensate_stall(&mut self, now: Time, time: Duration) {
        self.counters.stalls += 1;
        let later = |at: Time| (at + time).min(now);
        for rpc in self.rpcs.values_mut() {
            rpc.last_heard = later(rpc.last_heard);
            rpc.last_resend = later(rpc.last_resend);
        }
        for peer in self.peers.iter_mut().flatten() {
            if peer.resend_until != Time::ZERO {
                peer.resend_until += time;
            }
        }
    }
}
