//! The integration tests of the program `homa`, in one program because each costs a build, a link
//! and disk. `captures` and `raw_ip` are separate and have no test harness: they move the whole
//! process into other network namespaces, for which it must have a single thread.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/folder.rs"]
mod folder;
#[path = "../../../homa-testbed/tests/rack/one_processor.rs"]
mod one_processor;
#[path = "../../../homa-lab/tests/common/page.rs"]
mod page;
#[path = "../common/refused.rs"]
mod refused;
#[path = "../../../homa/tests/common/relay.rs"]
mod relay;
#[path = "../common/server.rs"]
mod server;
// It also has the parts of a service over Homa.
#[cfg(feature = "grpc")]
#[allow(dead_code)]
#[path = "../../../homa-tonic/tests/it/service.rs"]
mod service;

mod activation;
mod benches;
mod certificates;
mod cli;
mod cluster;
mod early;
mod endpoints;
mod folders;
mod inputs;
mod json;
mod lab;
mod mistakes;
mod numbers;
mod operating;
mod pages;
mod pcap;
mod priorities;
mod proxy;
mod servers;
mod sim;
mod why;

/// What tonic generates from the interoperability tests of gRPC.
#[cfg(feature = "grpc")]
#[allow(missing_docs, unused_qualifications, clippy::all)]
mod generated {
    include!("../../../homa-tonic/tests/it/generated/grpc.testing.rs");
}
