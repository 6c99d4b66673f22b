//! A network that is not a friend: whoever can send datagrams, with or without a right to the
//! address they come from, beside clients that call in earnest.
//!
//! `cargo test --release -p homa --test hostile -- --ignored --nocapture` prints the table of
//! `docs/security.md`: the attacks at full size, and what a good client still gets.

#[path = "../common/mod.rs"]
mod common;

mod amplification;
mod executions;
mod host;
mod old;
mod packets;
mod pressure;
mod wire;
