//! Whose requests are executed (Homa §3.8: at most once; RFC 9000 §8: address validation).
//!
//! The first request of a client waits, even if it is complete, until the client has answered a
//! challenge: a NEED_ACK of an RPC that does not exist. Its id is random, so only a host that
//! receives at the address can answer. The answer also identifies the client and says which of its
//! requests can be in progress, so that an older copy is refused, whatever this server forgot, for
//! example by restarting. This costs one round trip, once per client and address.
//!
//! Invariants: an address that is not validated gets at most three times the bytes that it sent,
//! and none of its requests is granted or executed. All such requests together have a small part of
//! the tables and the memory, and the oldest makes room for the next. Executed requests are
//! remembered by client, not by address. When some of them are forgotten, this server takes another
//! boot id: clients that are challenged under it declare only requests that began since.
//!
//! Peers that do not know the extension (older versions, other profiles) answer with an ACK, which
//! validates the address and identifies no client: their requests are remembered by address.
//!
//! Left out: secrecy. An attacker who reads packets on the path can forge them.

mod answer;
mod challenge;
mod clients;
mod directory;
mod execution;
mod executions;
mod proof;
mod quotas;
pub(crate) mod state;

pub use directory::ClientDirectory;
pub(crate) use execution::Execution;
pub use executions::Executions;
