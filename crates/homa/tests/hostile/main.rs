//! A hostile network. Attackers can send any datagram, from addresses that they own or do not own,
//! while honest clients make calls.
//!
//! `HOMA_HOSTILE_TABLE=BDFHK cargo test -p homa-rpc --test hostile -- --nocapture table` prints
//! these rows of the table of `docs/security.md`: attacks at full size, and the rate that a client
//! still gets. `HOMA_SOAK=7200 cargo test --release -p homa-rpc --test hostile -- --nocapture soak`
//! makes clients call for this many seconds over a network that loses one packet in a hundred and
//! delays a copy of another, during a trickle of every attack.

#[path = "../common/mod.rs"]
mod common;

mod amplification;
mod attacks;
mod deadlines;
mod executions;
mod host;
mod old;
#[cfg(feature = "encryption")]
mod on_path;
mod packets;
mod pressure;
mod soak;
mod table;
mod wire;
