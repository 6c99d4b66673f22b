//! Threads and tasks that wait for an engine: a lock around it, who drives it, and the tables of
//! what each of them waits for.

pub mod alarms;
mod capacity;
mod deferred;
pub mod mailbox;
pub mod shared;
pub mod slot;
mod spin;
pub mod waiters;
mod wake_target;
pub mod watch;
