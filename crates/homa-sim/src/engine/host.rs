//! What the engine knows of a host: the wire it pulls packets for, its one timer, whether it is
//! alive. The transport lies elsewhere: it is large, and this is looked at more often.
//!
//! Invariants: at most one wake-up for the wire is pending, and only while the transport has
//! something to send; at most one timer event is *current* (older ones still in the queue are
//! ignored).

use homa_proto::Time;

use crate::time::SimTime;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostState {
    /// Time of the current timer event; `MAX` if none.
    pub timer: SimTime,
    /// Frozen until then: nothing is processed, nothing new is sent.
    pub paused_until: SimTime,
    /// The timer waited for that: what arrived meanwhile comes before it.
    pub timer_waited: bool,
    /// Counts restarts.
    pub life: u32,
    pub up: bool,
    /// A wake-up at the end of the present packet is pending.
    pub wire_awaited: bool,
    /// Listed as having new input.
    pub dirty: bool,
}

impl HostState {
    pub const fn new() -> Self {
        Self {
            // The first call tells the transport when its life begins.
            timer: SimTime::ZERO,
            paused_until: SimTime::ZERO,
            timer_waited: false,
            life: 0,
            up: true,
            wire_awaited: false,
            dirty: false,
        }
    }

    /// When the transport's deadline needs a new timer event, its time.
    #[inline]
    pub fn rearm(&mut self, now: SimTime, deadline: Option<Time>) -> Option<SimTime> {
        let deadline = SimTime::from_protocol(deadline?);
        if deadline == SimTime::MAX || deadline >= self.timer {
            return None;
        }
        self.timer = deadline.max(now);
        Some(self.timer)
    }
}
