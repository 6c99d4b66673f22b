//! gRPC over Homa with generated code, over real sockets on loopback; those of the example
//! service run in a network in memory.

mod balance;
mod ecosystem;
mod encrypted;
mod interop;
mod search;
mod service;
mod streams;

/// What tonic generates from `proto/interop.proto`; `fresh` writes it.
#[allow(missing_docs, unused_qualifications, clippy::all)]
mod generated {
    include!("generated/grpc.testing.rs");
}
