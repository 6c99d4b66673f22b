//! `libhoma`: Homa for C programs, with functions in the style of sockets.
//!
//! The crate only adds descriptors, addresses, `errno`, and the ownership of buffers to
//! [`homa::Socket`]. `include/homa.h` is generated from the documentation of these functions.
//! Therefore that documentation uses the terms of C.
//!
//! Invariants: no panic leaves a function, because it becomes `ENOTRECOVERABLE`. Every failure sets
//! `errno` and a text for `homa_strerror`. A descriptor that is not a Homa socket gives `EBADF`.
//!
//! Callers must guarantee that each pointer is null or points to the memory that the function's
//! documentation says is read or written, until the function returns.
//!
//! Features that need the kernel are left out: sockets shared with other processes, and `close` and
//! `shutdown` of the descriptor itself.

// The documentation is for C callers. The text above tells what they must guarantee.
#![allow(clippy::missing_safety_doc)]

mod address;
mod balance;
mod error;
mod keys;
mod open;
mod options;
mod pieces;
mod protection;
mod receive;
mod send;
mod table;
mod text;

pub use balance::{
    homa_balance_options, homa_balancer, homa_balancer_call, homa_balancer_close,
    homa_balancer_open,
};
pub use error::homa_strerror;
pub use keys::{HOMA_EARLY_DATA, homa_keys, homa_keys_close, homa_keys_open};
pub use open::{
    homa_close, homa_drain, homa_getsockname, homa_metrics, homa_socket, homa_socket_from_fd,
    homa_version,
};
pub use options::{HOMA_PADDING_FULL, HOMA_PLAINTEXT, homa_options};
pub use pieces::{homa_read, homa_reply_begin, homa_send_begin, homa_write};
pub use receive::{homa_message, homa_message_release, homa_recv, homa_recv_message};
pub use send::{
    homa_abort, homa_peer_identity, homa_remaining, homa_reply, homa_replyv, homa_send,
    homa_send_options, homa_sendv,
};
