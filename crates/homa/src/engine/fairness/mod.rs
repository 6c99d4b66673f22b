//! Fairness between the hosts of peers: each has a share of scarce memory, and a turn in the queue
//! of requests. And which requests are refused under overload.

pub mod accounts;
pub mod queue;
pub mod shedder;
