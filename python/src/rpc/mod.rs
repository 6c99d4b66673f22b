//! Calls and servers for asyncio (`package/homa/rpc`), over the futures of [`homa`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`acceptor`] | the next requests of servers |
//! | [`buffer`] | messages as Python's buffers |
//! | [`engines`] | engines at one address, or at several |
//! | [`errors`] | errors as exceptions |
//! | [`ring`] | what wakes Python's event loop |
//! | [`tasks`] | the futures in progress, polled when the loop is woken |
//! | [`endpoint`], [`incoming`], [`keys`], [`service`], [`writer`] | called from Python |
//!
//! The event loop drives the engine of each client or server, whose descriptor it watches. If it is
//! busy elsewhere, the engine's own thread does, which never needs the interpreter, and wakes the
//! loop through another descriptor. No references from here lead to Python's futures: those are
//! kept in Python, where its collector sees them.

mod acceptor;
mod buffer;
pub mod endpoint;
mod engines;
mod errors;
pub mod incoming;
pub mod keys;
mod ring;
pub mod service;
mod tasks;
pub mod writer;
