//! Flow control (Homa §3.3, §3.5): which bytes of incoming messages may be sent now.
//!
//! | file | what |
//! |---|---|
//! | `decide` | how much to grant to one message: a pure function |
//! | `active` | grants for the active messages, GRANT packets |
//! | `overcommitment` | how many messages are active, and which (Homa §3.5): pure functions |
//! | `scheduler` | the sets of active and of waiting messages |
//! | `window` | bytes that may be outstanding, of one message and of all |
//! | `incoming` | a message begins, receives, ends |
//! | `memory`, `memory_queue`, `wait` | memory for incoming messages, and who waits for it |
//! | `hosts` | what the peers of a host hold together, and what they wasted |
//! | `suspend` | messages whose senders are silent |
//! | `fifo` | the oldest message's share (Linux §2.4) |
//! | `timer` | one packet at a time, paced per sender (the authors' simulator) |
//! | `sibling_shards` | other endpoints that share this host's downlink |
//! | `credit` | the totals, for tests |
//! | `state`, `totals` | the state of messages, peers and the endpoint |
//!
//! Invariants: grants only grow. If the profile bounds the bytes granted and not received over all
//! messages (`window`), the bound is exceeded only by the oldest message's share, at most three
//! increments per message, and by what a sender announced with a message's first packet. Memory for
//! granted bytes is within the budget, except for one message at a time. A grant that is withheld
//! for want of window or memory is given as soon as there is room.

mod active;
mod credit;
mod decide;
mod fifo;
mod hosts;
mod incoming;
mod memory;
mod memory_queue;
mod overcommitment;
mod scheduler;
mod sibling_shards;
pub(crate) mod state;
mod suspend;
mod timer;
pub(crate) mod totals;
mod wait;
mod window;

pub use credit::Credit;
pub(crate) use overcommitment::degree;
