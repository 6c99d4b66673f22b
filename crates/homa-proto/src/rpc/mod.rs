//! RPCs, not connections (Homa §3.1): an [`Rpc`] ties a request to its response, and
//! state exists only while the RPC is in progress.
//!
//! ```text
//! client   Outgoing ──first response byte──▶ Incoming ──whole response──▶ (forgotten)
//! server   Incoming ──whole request──▶ InService ──reply──▶ Outgoing ──last byte──▶ Sent
//!          Sent ──ack──▶ (forgotten)
//! ```
//! The unit of sending, granting, priority and loss detection is the message; this folder only ties
//! two together: `state` and `table` hold RPCs, `client` and `server` are the two roles, `end` is
//! how an RPC ends, `refusal` is how a server's application ends it with a reason, `room` is what
//! the client of a request is told for which there is no room, and `unreachable` is what ICMP
//! reports prove.

mod by_id;
mod client;
mod end;
mod id;
mod peers;
mod refusal;
pub(crate) mod room;
mod server;
mod start_msg;
pub(crate) mod state;
pub(crate) mod table;
mod unreachable;

pub(crate) use id::split;
pub(crate) use state::{EndedRpc, Rpc, RpcState, incoming_message, outgoing_message};
