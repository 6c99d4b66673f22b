//! The network below an engine: its links and their budgets, packets that a full queue delays, path
//! MTU discovery, and the engines that share an address.

pub mod backlog;
pub mod links;
pub mod pmtu;
pub mod shard_group;
