//! Homa for everyone: RPCs with low tail latency, in user space, over UDP, without privileges.
//!
//! Homa delivers the shortest remaining message first: receivers grant senders what they may send,
//! senders send the shortest message next, and packets carry a priority that switches honour (Homa
//! §3). Short RPCs stay fast while long ones fill the links. There are no connections: a client
//! calls an address.
//!
//! A server in ten lines:
//! ```no_run
//! use homa::Server;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = Server::bind("0.0.0.0:4000".parse()?)?;
//!     while let Some(request) = server.accept() {
//!         let reply = format!("hello, {}", String::from_utf8_lossy(&request));
//!         let _ = request.reply(reply); // A client that gave up is no reason to stop.
//!     }
//!     Ok(())
//! }
//! ```
//! and its client (here with the server in the same process):
//! ```
//! use homa::{Client, Server};
//!
//! # let server = Server::bind("127.0.0.1:0".parse()?)?;
//! # let address = server.local_addr();
//! # std::thread::spawn(move || {
//! #     while let Some(request) = server.accept() {
//! #         let reply = format!("hello, {}", String::from_utf8_lossy(&request));
//! #         let _ = request.reply(reply);
//! #     }
//! # });
//! let client = Client::new()?;
//! let response = client.call(address, "world")?;
//! assert_eq!(&response[..], b"hello, world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Four ways to drive it
//! | way | who does the work | for |
//! |---|---|---|
//! | [`Client::call`], [`Server::accept`] | the threads that block | services with threads |
//! | [`Client::call_async`], [`Server::accept_async`] | a helper thread | any async executor |
//! | [`inline::Engine`] | the caller's event loop | the lowest latency |
//! | [`Socket`] | who blocks, or a helper | sockets' style, poll loops, C |
//!
//! Long messages can be read while they arrive: [`Call::arrived`], [`inline::Engine::read`].
//!
//! What is sent is a [`Payload`], made from vectors, strings, [`bytes::Bytes`] and lists of these
//! without a copy; what arrives is a [`Message`], which becomes a vector or `Bytes` likewise.
//!
//! The first two may be mixed on one [`Engine`], which any number of clients and servers share. For
//! more work than one core does, [`Engine::sharded`] opens one engine per core at one address.
//!
//! # What can be seen
//! [`Engine::metrics`] has counters, and histograms of how long RPCs took, as values and as
//! OpenMetrics text; feature `metrics-http` serves it (`metrics::http`). Each call has a span of
//! `tracing`, `homa_call`, and each request one, `homa_request`: both name the RPC and the peer as
//! `homa pcap` does, and the distributed trace ([`CallOptions::trace`]) where there is one.
//!
//! # What is promised
//! * A call ends with a response or a typed [`CallError`], by its deadline ([`CallOptions`], 10 s),
//!   which travels with it over UDP: servers see how long somebody waits ([`Request::remaining`]),
//!   begin nothing for nobody, and have their own calls share it ([`Request::client`]).
//! * A request is executed at most once unless the call says that it is idempotent. The rules of
//!   the kernel module ([`Config::linux`]) and of the paper do not promise that.
//! * Dropping a [`Call`] cancels it, also at the server ([`Request::cancelled`]).
//! * Too much work is refused with a typed error, not queued without bound; [`Client::ready`] and
//!   [`Request::reply_async`] wait for room.
//! * Nothing that a peer sends can panic, or take more memory than [`Config`] allows.
//!
//! # What is not
//! Everything travels in plaintext and peers are not authenticated: whoever reads packets on the
//! way can forge them, answers and executions included. What others can do is bounded: over UDP, a
//! client proves that it receives at its address before its first request is executed, which takes
//! a round trip, and copies of requests are not executed, even after a restart
//! (`docs/security.md`). Over IP, as the kernel module speaks, neither holds. Linux on 64-bit
//! machines only. A message is at least one byte long and at most 16 MiB by default.

mod client;
mod config;
pub mod driver;
pub mod egress;
mod engine;
pub mod error;
mod handle;
mod message;
pub mod metrics;
mod pacer;
mod payload;
mod priority_map;
mod request;
mod room;
mod server;
mod sharded;
pub mod socket;
#[cfg(feature = "tower")]
pub mod tower;

pub use client::{Arrived, Call, Client, Part};
pub use config::{CallOptions, Config};
pub use engine::inline;
pub use error::{CallError, DrainTimeout, OpenError, ReplyError};
pub use handle::Engine;
pub use homa_proto as proto;
pub use homa_proto::wire::datagram::{TraceContext, TraceParseError};
pub use message::Message;
pub use payload::Payload;
pub use priority_map::PriorityMap;
pub use request::{Cancelled, RefusedReply, Replying, Request};
pub use room::Ready;
pub use server::{Accept, Server};
pub use sharded::Sharded;
pub use socket::Socket;

/// The README's programs in Rust are compiled as they stand there.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Handles go to any thread, and more than one.
const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    const fn sent<T: Send + Sync>() {}
    shared::<Engine>();
    shared::<Client>();
    shared::<Server>();
    shared::<Sharded>();
    sent::<Socket>();
    sent::<Call>();
    sent::<Accept<'_>>();
    sent::<Ready<'_>>();
    sent::<Cancelled<'_>>();
    sent::<Replying>();
    sent::<Request>();
    sent::<RefusedReply>();
};
