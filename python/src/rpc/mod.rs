//! Calls and servers for asyncio (`package/homa/rpc`), over the futures of [`homa`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`buffer`] | messages as Python's buffers |
//! | [`errors`] | errors as exceptions |
//! | [`ring`] | what wakes Python's event loop |
//! | [`tasks`] | the futures in progress, polled when the loop is woken |
//! | [`endpoint`], [`incoming`] | called from Python |
//!
//! The engine's own thread takes packets in and sends them; it never needs the interpreter. The
//! event loop watches one descriptor for each client or server. No references from here lead to
//! Python's futures: those are kept in Python, where its collector sees them.

mod buffer;
pub mod endpoint;
mod errors;
pub mod incoming;
mod ring;
mod tasks;
