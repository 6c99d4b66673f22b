//! Receiving (Homa §3.1 to §3.3): DATA finds or creates its RPC, its bytes get their place in the
//! message, and its arrival shows what the path is like.
//!
//! | file | what |
//! |---|---|
//! | `place` | DATA at its receiver, whole messages |
//! | `reassembly` | which bytes of a message are here |
//! | `message` | one incoming message |
//! | `early` | messages that are read while they arrive |
//! | `rtt`, `rtt_samples` | RTTbytes, measured |
//! | `overflow`, `unscheduled_cap` | fewer unscheduled bytes after an overflow |

mod early;
pub(crate) mod message;
mod overflow;
mod place;
mod reassembly;
mod rtt;
mod rtt_samples;
mod unscheduled_cap;

pub(crate) use overflow::Overflows;
pub(crate) use rtt::{RttBytes, SmoothedTime};
