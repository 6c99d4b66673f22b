//! gRPC over Homa: a [`Channel`] and a [`Server`] for code that [tonic] generates.
//!
//! A service moves from TCP to Homa by a change of two lines. The generated client takes a
//! [`Channel`] instead of tonic's, and the generated server goes to a [`Server`] of the same shape:
//!
//! ```
//! # type Done = Result<(), Box<dyn std::error::Error>>;
//! # async fn example<S>(service: S, at: std::net::SocketAddr) -> Done
//! # where
//! #     S: tonic::server::NamedService + Clone + Send + Sync + 'static,
//! #     S: tonic::codegen::Service<
//! #             http::Request<tonic::body::Body>,
//! #             Response = http::Response<tonic::body::Body>,
//! #             Error = std::convert::Infallible,
//! #         >,
//! #     S::Future: Send,
//! # {
//! // The server: tonic::transport::Server before.
//! homa_tonic::Server::builder().add_service(service).serve(at).await?;
//! // The client: tonic::transport::Endpoint before.
//! let endpoint = homa_tonic::Endpoint::from_shared("homa://search.internal:4000")?;
//! let channel = endpoint.connect().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A unary call is one Homa RPC: one request message and one response message. A streaming call
//! takes one RPC to open, one for each batch of messages that the client pushes, and one for each
//! batch that it pulls, so that a slow reader delays the writer. `docs/wire-grpc.md` specifies the
//! format of these messages.
//!
//! An endpoint can name several servers: `homa:///search.internal:4000` balances calls between all
//! addresses of the name ([`Endpoint`], [`Channel::balance_list`]).
//!
//! | file | what |
//! |---|---|
//! | `wire` | the format of the messages |
//! | `metadata` | headers and trailers in it |
//! | `timeout` | the header `grpc-timeout` |
//! | `endpoint`, `channel` | the client: names, calls |
//! | `push`, `pull` | the client's halves of a streaming call |
//! | `server`, `serve` | the server: services, requests |
//! | `session`, `inbound` | the server's halves of a streaming call |
//! | `status` | errors of the transport as statuses of gRPC |
//!
//! Invariants: a call is executed at most once, whatever the network does, unless it is marked
//! [`Idempotent`]; bodies are never copied; nothing that a peer sends makes either side panic.
//!
//! Left out: HTTP/2, so only this crate speaks the format; TLS, because engines have keys.
//!
//! [tonic]: https://docs.rs/tonic
#![forbid(unsafe_code)]

mod channel;
mod endpoint;
mod inbound;
mod metadata;
mod pull;
mod push;
mod serve;
mod server;
mod session;
mod status;
mod timeout;
pub mod wire;

pub use channel::{Channel, Idempotent};
pub use endpoint::{ConnectError, Endpoint};
pub use metadata::is_grpc;
pub use server::{DRAIN, Router, ServeError, Server};
