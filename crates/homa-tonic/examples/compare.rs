//! Unary calls of one generated service over Homa and over TCP, in one run.
//!
//! `cargo run --release -p homa-rpc-tonic --example compare [SECONDS] [OUTSTANDING]` runs a server
//! and a client of each transport in this process, on loopback, a round of each in turn, and prints
//! the medians of five rounds: calls per second, p50 and p99 in microseconds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tonic::body::Body;
use tonic::codegen::{Service, StdError};
use tonic::{Request, Response, Status};

#[allow(missing_docs, dead_code, unused_qualifications, clippy::all)]
mod generated {
    include!("../tests/it/generated/grpc.testing.rs");
}

use generated::test_service_client::TestServiceClient;
use generated::test_service_server::{TestService, TestServiceServer};
use generated::*;

const ROUNDS: usize = 5;

#[derive(Clone, Copy)]
struct EchoService;

type Outputs = tokio_stream::Empty<Result<StreamingOutputCallResponse, Status>>;

#[tonic::async_trait]
impl TestService for EchoService {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        Ok(Response::new(SimpleResponse { payload: request.into_inner().payload }))
    }

    type StreamingOutputCallStream = Outputs;

    async fn streaming_output_call(
        &self,
        _: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Outputs>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }

    async fn streaming_input_call(
        &self,
        _: Request<tonic::Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size: 0 }))
    }

    type FullDuplexCallStream = Outputs;

    async fn full_duplex_call(
        &self,
        _: Request<tonic::Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }

    async fn unimplemented_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("never"))
    }
}

/// Calls per second, p50 and p99 in microseconds.
type Round = [f64; 3];

/// Keeps `outstanding` calls in progress for some seconds.
async fn round<T>(client: &TestServiceClient<T>, seconds: f64, outstanding: usize) -> Round
where
    T: tonic::client::GrpcService<Body> + Clone + Send + 'static,
    T: Service<http::Request<Body>>,
    <T as tonic::client::GrpcService<Body>>::Future: Send,
    <T as tonic::client::GrpcService<Body>>::Error: Into<StdError>,
    T::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let callers = (0..outstanding).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let payload = Some(Payload { r#type: 0, body: vec![7; 100] });
                let request = SimpleRequest { payload, ..SimpleRequest::default() };
                let called = Instant::now();
                client.unary_call(request).await.expect("the call succeeds");
                times.push(called.elapsed().as_secs_f64() * 1e6);
            }
            times
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("no caller panics"));
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    [rate, at(0.5), at(0.99)]
}

/// The median of each column.
fn medians(rounds: &[Round]) -> Round {
    [0, 1, 2].map(|column| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let outstanding: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;

    let free = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let homa = homa_tonic::Server::builder().add_service(TestServiceServer::new(EchoService));
    tokio::spawn(homa.serve(free));
    let at: SocketAddr = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let tcp = tonic::transport::Server::builder().add_service(TestServiceServer::new(EchoService));
    tokio::spawn(tcp.serve(at));
    tokio::time::sleep(Duration::from_millis(200)).await;

    let homa = homa_tonic::Endpoint::from_shared(format!("homa://{free}"))?.connect().await?;
    let homa = TestServiceClient::new(homa);
    let tcp = tonic::transport::Endpoint::from_shared(format!("http://{at}"))?.tcp_nodelay(true);
    let tcp = TestServiceClient::new(tcp.connect().await?);

    let (mut over_homa, mut over_tcp) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        over_homa.push(round(&homa, seconds, outstanding).await);
        over_tcp.push(round(&tcp, seconds, outstanding).await);
    }
    println!("{outstanding} outstanding calls of 100 bytes, medians of {ROUNDS} rounds");
    println!("{:<12} {:>12} {:>10} {:>10}", "", "calls/s", "p50 us", "p99 us");
    for (name, rounds) in [("homa-tonic", &over_homa), ("tonic, TCP", &over_tcp)] {
        let [rate, p50, p99] = medians(rounds);
        println!("{name:<12} {rate:>12.0} {p50:>10.1} {p99:>10.1}");
    }
    Ok(())
}
