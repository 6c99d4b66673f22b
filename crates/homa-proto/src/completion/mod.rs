//! When a server's state of an RPC ends (Homa §3.8; Linux §2.5).
//!
//! `AtLeastOnce`: the server forgets with the last response packet. `Acked`: the client reports
//! completed RPCs, one in each DATA packet to the server or five in an ACK packet (`ack`); a server
//! that waits too long asks with NEED_ACK, and gives up if the profile says so (`need_ack`). Which
//! requests were executed is remembered, so that late duplicates are not executed again
//! (`replay_window`).

mod ack;
pub(crate) mod acks;
mod need_ack;
pub(crate) mod replay_window;
