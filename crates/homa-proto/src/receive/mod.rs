//! Receiving (Homa §3.1 to §3.3): DATA finds or creates its RPC, its bytes get their place in the
//! message, and what its arrival shows about the path is measured.

mod overflow;
mod place;
mod reassembly;
mod rtt;

pub(crate) use overflow::Overflows;
pub(crate) use reassembly::Reassembly;
pub(crate) use rtt::{RttBytes, SmoothedTime};
