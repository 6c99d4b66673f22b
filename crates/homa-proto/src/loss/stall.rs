//! A host that did not run (Homa §3.7; Linux §2.5). Silence of others is time in which our timers
//! ran. The kernel module counts ticks of its timer, so a frozen host ages nothing; here the time
//! that a due timer waited is taken out of every silence, in one step.
//!
//! Invariants: the first timer that was due is judged as at the time at which it was due, so timers
//! make progress however late they run. Everything that is not silence keeps its time: the
//! deadlines of calls, the age of RPCs, the record of executed requests.
//!
//! Left out: reading what arrived during the stall before timers act, which the environment does.

use crate::endpoint::Endpoint;
use crate::units::{Duration, Time};

/// Timers that run later than this were held up by the host, not by other work of this process.
/// Such stalls are counted ([`Counters::stalls`](crate::Counters::stalls)).
pub const HOST_STALL: Duration = Duration::millis(10);

impl Endpoint {
    /// Nothing ran here for `time` until `now`.
    #[cold]
    pub(super) fn compensate_stall(&mut self, now: Time, time: Duration) {
        self.counters.stalls += 1;
        for rpc in self.rpcs.values_mut() {
            rpc.loss.shift(time, now);
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.loss.shift(time);
        }
    }
}
