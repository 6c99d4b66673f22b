//! A network that is not a friend: whoever can send datagrams, with or without a right to the
//! address they come from, beside clients that call in earnest.
//!
//! `HOMA_HOSTILE_TABLE=BDFHK cargo test -p homa --test hostile -- --nocapture table` prints these
//! rows of the table of `docs/security.md`: attacks at full size, and what a client still gets.
//! `HOMA_SOAK=7200 cargo test --release -p homa --test hostile -- --nocapture soak` has clients
//! call for so many seconds over a network that loses one packet in a hundred and repeats another
//! late, beside a trickle of every attack.

#[path = "../common/mod.rs"]
mod common;

mod amplification;
mod attacks;
mod deadlines;
mod executions;
mod host;
mod old;
mod packets;
mod pressure;
mod soak;
mod table;
mod wire;
