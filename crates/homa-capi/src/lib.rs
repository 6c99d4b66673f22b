//! `libhoma`: Homa for C programs, in the style of sockets.
//!
//! A thin skin over [`homa::Socket`]: descriptors, addresses, `errno`, and buffers that each side
//! owns. `include/homa.h` is made from the documentation here, which is why it speaks C.
//!
//! Invariants: no panic leaves a function (it becomes `ENOTRECOVERABLE`); every failure sets
//! `errno` and leaves a text for `homa_strerror`; a descriptor that is not ours is `EBADF`.
//!
//! What callers of its functions vouch for: a pointer is null or valid for what the function's
//! documentation says is read or written there, until it returns.
//!
//! Left out: what only the kernel can do (other processes' sockets, `close` and `shutdown` on the
//! descriptor itself).

// The documentation is that of C functions; what their callers vouch for is said above.
#![allow(clippy::missing_safety_doc)]

mod address;
mod error;
mod open;
mod options;
mod receive;
mod send;
mod table;

pub use error::homa_strerror;
pub use open::{homa_close, homa_drain, homa_getsockname, homa_metrics, homa_socket, homa_version};
pub use options::homa_options;
pub use receive::{homa_message, homa_message_release, homa_recv, homa_recv_message};
pub use send::{
    homa_abort, homa_remaining, homa_reply, homa_replyv, homa_send, homa_send_options, homa_sendv,
};
