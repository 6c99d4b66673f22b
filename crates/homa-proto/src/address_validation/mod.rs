//! Who may have a request executed (Homa §3.8: at most once; RFC 9000 §8: address validation).
//!
//! The first request of a client waits, whole or not, until the client has answered a challenge: a
//! NEED_ACK of an RPC that does not exist, whose random id only comes back from whoever receives at
//! the address. The answer also names the client and says which of its requests can be in progress,
//! so that a copy from before is refused, whatever this server forgot, also by restarting. It takes
//! one round trip, once per client.
//!
//! Invariants: an address that has not answered gets at most three times the bytes it sent, and of
//! its requests none is granted or executed; all of them together have a small part of the tables
//! and the memory, where the oldest makes room for the next. What was executed is remembered by the
//! client's name, not its address. When some of that is forgotten, this server gets another boot
//! id: clients that are asked under it name only requests begun since.
//!
//! Peers that do not know the extension (builds before it, other profiles) answer with an ACK that
//! proves the address and names nobody: their requests are remembered by address.
//!
//! Left out: secrecy. Whoever reads packets on the way can forge them.

mod answer;
mod challenge;
mod clients;
mod directory;
mod execution;
mod proof;
mod quotas;
pub(crate) mod state;

pub use directory::ClientDirectory;
pub(crate) use execution::Execution;
