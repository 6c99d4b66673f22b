//! Homa for everyone: RPCs with low tail latency, in user space, over UDP, without privileges.
//!
//! Homa delivers the message with the fewest remaining bytes first (Homa §3). A receiver grants
//! each sender the bytes of a long message that may leave next, senders send the shortest message
//! first, and switches serve packets by priority. Short RPCs therefore stay fast while long
//! messages fill the links. There are no connections: a client calls an address.
//!
//! A server in ten lines:
//! ```no_run
//! use homa::Server;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = Server::bind("127.0.0.1:4000".parse()?)?;
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
//! Without keys, clients and servers stay on their host. Between hosts, give both ends keys, which
//! encrypt every packet, or choose plaintext ([`Config::plaintext`]):
//! ```no_run
//! use homa::{Client, Config, Engine, Keys};
//!
//! // A file of `homa key new`, which all hosts of the cluster have.
//! let config = Config::default().keys(Keys::from_file("cluster.key")?);
//! let server = Engine::bind("0.0.0.0:4000".parse()?, config.clone())?.serve()?;
//! let client = Client::with(config)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//! * **Message**: a sequence of bytes, by default at most 16 MiB; it may be empty. An application
//!   sends it as a [`Payload`] and receives it as a [`Message`], without a copy where possible.
//! * **RPC**: a request message from a client and the response message of a server. RPCs are
//!   independent: one that is lost or long does not delay the next.
//! * **Peer**: an address and a UDP port, so each process of a host is one peer. A peer needs no
//!   set-up: it can be called at any time.
//! * **Priority**: the class in which a packet leaves. Applications do not set it: the protocol
//!   derives it from the length of a message, or from the bytes that are left to send.
//!   [`PriorityMap`] chooses the DSCP classes.
//! * **Engine**: the sockets, timers, and memory behind clients and servers. [`Client::new`] and
//!   [`Server::bind`] open one; share it with [`Engine::client`] and [`Engine::serve`].
//!
//! # Five ways to drive it
//! | way | who drives the engine | for |
//! |---|---|---|
//! | [`Client::call`], [`Server::accept`] | the blocking threads | services with threads |
//! | [`Client::call_async`], [`Server::accept_async`] | a helper thread | any async executor |
//! | the same, with a [`Reactor`] | the event loop: tokio with feature `tokio` | async services |
//! | [`inline::Engine`] | the caller's event loop | the lowest latency |
//! | [`Socket`] | the blocking caller, otherwise a helper thread | sockets' style, poll loops, C |
//!
//! The first three can be mixed on one [`Engine`]. If one core is not enough, [`Engine::sharded`]
//! opens one engine per core at one address. A long message can be read while it arrives
//! ([`Call::arrived`], [`Server::early`], [`inline::Engine::read`]). A message whose length is
//! known can be sent while it is written ([`Client::call_writer`], [`Request::reply_writer`]).
//!
//! A name can stand for several servers: see `homa::balance` (feature `balance`). Tests of an
//! application can run in a network in memory with simulated time: see `homa::testing` (feature
//! `testing`).
//!
//! # Guarantees
//! * A call ends with a response or a typed error by its deadline, 10 s by default: [`CallError`],
//!   [`CallOptions`].
//! * Over UDP the deadline travels with the call. Servers see the remaining time, skip expired
//!   requests, and pass the deadline on to the calls they make: [`Request::remaining`],
//!   [`Request::client`].
//! * A request is executed at most once, unless the call is marked idempotent. The profiles of the
//!   kernel module and of the paper do not guarantee this: [`CallOptions::idempotent`],
//!   [`Config::linux`].
//! * Dropping a call cancels it, also at the server: [`Call`], [`Request::cancelled`].
//! * Overload is refused with a typed error instead of being queued without bound, and a server
//!   refuses requests that it could not answer in time: [`Client::ready`],
//!   [`Request::reply_async`], [`Server::concurrency`].
//! * Input from a peer cannot cause a panic, or use more memory than the limits allow: [`Config`].
//!
//! # Not guaranteed
//! In plaintext ([`Config::plaintext`]), peers are not authenticated: an attacker who can read the
//! packets can forge them, including responses. Raw IP, the protocol of the kernel module, is
//! always plaintext. Other attackers are limited over UDP: the address of a client is validated
//! before its first request is executed, which costs one round trip, and copies of requests are not
//! executed, even after a restart (`docs/security.md`). Over raw IP neither holds. Only Linux on
//! 64-bit machines is supported.
//!
//! # Observability
//! [`Engine::metrics`] returns counters and latency histograms as values and as OpenMetrics text,
//! which the feature `metrics-http` serves over HTTP (`metrics::http`). Each call has a `tracing`
//! span, `homa_call`, and each request has one, `homa_request`. Both contain the RPC id and the
//! peer in the format of `homa pcap`, and the distributed trace if there is one
//! ([`CallOptions::trace`]). With the feature `opentelemetry`, calls and requests also have spans
//! of OpenTelemetry, in one trace across hosts.

mod arriving;
#[cfg(feature = "balance")]
pub mod balance;
mod call;
mod call_options;
mod client;
mod config;
pub mod doctor;
pub mod driver;
mod egress;
mod engine;
pub mod error;
mod error_class;
mod error_pieces;
pub mod handover;
mod health;
mod message;
pub mod metrics;
mod open_error;
mod pacer;
mod padding;
mod payload;
mod priority_map;
mod reactor;
mod ready;
mod reply_error;
mod request;
#[cfg(feature = "encryption")]
mod secure;
mod server;
mod sharded;
pub mod socket;
mod spans;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tower")]
pub mod tower;
mod waiting_call;
mod writer;

pub use arriving::ArrivedRequest;
pub use call::{Arrived, Call, Part};
pub use call_options::CallOptions;
pub use client::Client;
pub use config::Config;
#[cfg(feature = "encryption")]
pub use driver::sealed::RecordedSessions;
pub use driver::udp::SocketFault;
pub use engine::{Engine, inline};
pub use error::{CallError, DrainTimeout, OpenError, ReplyError, RequestError, WriteError};
pub use homa_proto as proto;
pub use homa_proto::wire::datagram::{TraceContext, TraceParseError};
pub use message::Message;
pub use padding::Padding;
pub use payload::Payload;
pub use priority_map::PriorityMap;
pub use reactor::{Driven, Reactor};
pub use ready::Ready;
pub use request::{Cancelled, RefusedReply, Replying, Request};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use secure::arbitrary;
#[cfg(feature = "encryption")]
pub use secure::{Keys, KeysError, PeerIdentity};
pub use server::{Accept, Server};
pub use sharded::Sharded;
pub use socket::Socket;
pub use status::{Reply, Status, StatusCode};
pub use writer::{CallWriter, ReplyWriter};

/// The programs in Rust of the README and of the guide are compiled as printed.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/operating/upgrade.md")]
#[cfg_attr(
    all(feature = "tokio", feature = "tower"),
    doc = include_str!("../../../docs/guide/service.md")
)]
#[cfg_attr(
    all(feature = "balance", feature = "tower"),
    doc = include_str!("../../../docs/guide/balancing.md")
)]
#[cfg_attr(feature = "testing", doc = include_str!("../../../docs/guide/testing.md"))]
struct Pages;

/// Handles can be sent to other threads and shared between them.
const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    const fn sent<T: Send + Sync>() {}
    shared::<Engine>();
    shared::<Client>();
    shared::<Server>();
    shared::<Sharded>();
    sent::<Reactor>();
    sent::<Socket>();
    sent::<Call>();
    sent::<Accept<'_>>();
    sent::<Ready<'_>>();
    sent::<Cancelled<'_>>();
    sent::<Replying>();
    sent::<Request>();
    sent::<ArrivedRequest<'_>>();
    sent::<CallWriter>();
    sent::<ReplyWriter>();
    sent::<RefusedReply>();
};
