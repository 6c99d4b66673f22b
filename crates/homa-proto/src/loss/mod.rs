//! Lost packets (Homa §3.7): a receiver that notices silence sends RESEND; a sender that cannot
//! answer at once says BUSY.
//!
//! | file | what |
//! |---|---|
//! | `due` | whether a RESEND is due: a pure function |
//! | `resend` | RESEND at the receiver |
//! | `on_resend` | RESEND at the sender: retransmission |
//! | `busy` | when a sender says BUSY: a pure function; BUSY at the receiver |
//! | `unknown` | RESEND of an RPC that the server does not know |
//! | `resend_queue` | one RESEND per peer at a time |
//! | `timers` | the timer of each RPC |
//! | `stall`, `downlink` | silence that is no loss: this host did not run, or its link is full |
//! | `state` | the state of an RPC, a peer and the endpoint |
//!
//! Silence is time without DATA, GRANT or BUSY of an RPC while something is owed to us: it does not
//! count while everything granted has arrived, or while we have bytes to send. No other packet ends
//! it. With profile `linux`, an RPC is given up at `now` if
//!
//! ```text
//! now - max(last DATA, last GRANT, last BUSY, last time at which nothing was owed) >= 110 ms
//! ```
//!
//! which is the module's rule: 100 ticks of 1 ms and the latency of its timer, so 102 to 112 ms.

mod busy;
pub(crate) mod downlink;
mod due;
mod on_resend;
mod resend;
mod resend_queue;
mod stall;
mod state;
mod timers;
mod unknown;

pub(crate) use due::MAX_LEARNED;
pub(crate) use resend::SUSPEND_AFTER;
pub use stall::HOST_STALL;
pub(crate) use state::{PeerLoss, PeerTiming, RpcLoss, RpcTimers};

use crate::units::Time;
use crate::util::timer::TICK;

/// When something counts as done that was due at `due` and is done now. Counters of ticks do not
/// drift by what each wake-up is late (Linux §2.5).
pub(crate) fn without_drift(due: Time, now: Time) -> Time {
    if now.since(due) <= TICK { due } else { now }
}
