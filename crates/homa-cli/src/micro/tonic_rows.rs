//! The rival of async services: gRPC by tonic over one TCP connection, one thread and one core a
//! side (feature `tonic`).
//!
//! A unary method whose messages are plain bytes, so that no time goes into protobuf. Left out:
//! TLS, compression, and balancing over several connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa_testbed::RawCodec;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::echo::time_exchanges;
use super::pair::{Pair, SERVER, ServerSide};
use super::stats::Tail;
use super::tcp_batched::{RateLoad, rate_of_tasks, runtime};

/// The service: its only method returns what it was sent.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(RawCodec).unary(Self, request).await) })
    }
}

/// Serves until the client is done.
fn serve(side: &ServerSide) -> io::Result<()> {
    runtime()?.block_on(async {
        let listener = TcpListener::bind((SERVER, 0)).await?;
        side.listening(listener.local_addr()?);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = Server::builder().add_service(Echo).serve_with_incoming(incoming);
        let stopped = async {
            while !side.stopped() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            served = serving => served.map_err(io::Error::other),
            () = stopped => Ok(()),
        }
    })
}

/// One connection.
async fn connect(address: SocketAddr) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
    endpoint.tcp_nodelay(true).connect().await.map_err(io::Error::other)
}

async fn ask(channel: &Channel, request: &Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/bench.Echo/Echo");
    client.unary(Request::new(request.clone()), path, RawCodec).await.map(drop)
}

fn run<T: Send + 'static>(
    pair: &Pair,
    client: impl FnOnce(&Runtime, Channel) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    pair.run(serve, move |address| {
        let runtime = runtime()?;
        let channel = runtime.block_on(connect(address))?;
        client(&runtime, channel)
    })
}

/// Echo, one at a time.
pub fn echo(pair: &Pair, bytes: usize, time: Duration) -> io::Result<Tail> {
    run(pair, move |runtime, channel| {
        let request = Bytes::from(vec![7; bytes]);
        time_exchanges(time, || runtime.block_on(ask(&channel, &request)).map_err(io::Error::other))
    })
}

/// RPCs per second of `load`, which is for one peer.
pub fn rate(pair: &Pair, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let load = load.clone();
    run(pair, move |runtime, channel| {
        let request = Bytes::from(vec![7; load.sizes[0] as usize]);
        rate_of_tasks(runtime, &load, time, move || {
            let (channel, request) = (channel.clone(), request.clone());
            async move { ask(&channel, &request).await.map_err(io::Error::other) }
        })
    })
}
