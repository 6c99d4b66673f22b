//! A network that is not a friend: whoever can send datagrams, with or without a right to the
//! address they come from, beside clients that call in earnest.
//!
//! `HOMA_HOSTILE_TABLE=1 cargo test -p homa --test hostile -- --nocapture table` prints the table
//! of `docs/security.md`: attacks at full size, and what a good client still gets.

#[path = "../common/mod.rs"]
mod common;

mod amplification;
mod executions;
mod host;
mod old;
mod packets;
mod pressure;
mod table;
mod wire;
