//! Two proxies, with a service behind them and a client in front.

use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::common::program;
use crate::generated::test_service_client::TestServiceClient;
use crate::generated::test_service_server::TestServiceServer;
use crate::server::Server;
use crate::service::Seen;

pub type Client = TestServiceClient<Channel>;

/// A service over TCP.
pub struct Service {
    pub at: String,
    pub seen: Seen,
    /// The metadata of the last call.
    pub metadata: Arc<Mutex<MetadataMap>>,
}

impl Service {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(at: &str) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let (seen, metadata) = (Seen::default(), Arc::<Mutex<MetadataMap>>::default());
        let last = metadata.clone();
        let intercept = move |request: Request<()>| {
            *last.lock().unwrap() = request.metadata().clone();
            refuse(request)
        };
        let service = TestServiceServer::new(seen.clone()).max_decoding_message_size(32 << 20);
        let service = tonic::service::interceptor::InterceptedService::new(service, intercept);
        // What many servers allow.
        let server = tonic::transport::Server::builder().max_concurrent_streams(100);
        let served =
            { server }.add_service(service).serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(served);
        Self { at, seen, metadata }
    }
}

/// Calls with `refuse` end with a status that has details and metadata, in trailers alone.
fn refuse(request: Request<()>) -> Result<Request<()>, Status> {
    if !request.metadata().contains_key("refuse") {
        return Ok(request);
    }
    let mut trailers = MetadataMap::new();
    trailers.insert_bin("x-trailing-bin", tonic::metadata::MetadataValue::from_bytes(&[0xab; 3]));
    let (code, details) = (Code::FailedPrecondition, vec![1, 2, 3].into());
    Err(Status::with_details_and_metadata(code, "not now: é", details, trailers))
}

/// The proxies.
pub struct Pair {
    pub front: Server,
    pub back: Server,
}

/// A proxy with these options.
pub fn proxy(listen: &str, to: &str, options: &[&str]) -> Server {
    let mut command = program();
    command.args(["proxy", "--listen", listen, "--to", to]).args(options);
    Server::of(command)
}

impl Pair {
    /// To a local server.
    pub fn to(at: &str, options: &[&str]) -> Self {
        let back = proxy("homa://127.0.0.1:0", at, options);
        let front = proxy("http://127.0.0.1:0", &back.address, options);
        Self { front, back }
    }

    pub fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(self.front.address.clone()).unwrap();
        TestServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(32 << 20)
    }
}
