//! The service of the interoperability cases, and a channel to it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homa_tonic::{Channel, Endpoint, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::generated::test_service_client::TestServiceClient;
use crate::generated::test_service_server::{TestService, TestServiceServer};
use crate::generated::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};

pub type Client = TestServiceClient<Channel>;

/// What the service has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Responses that it wrote to streams.
    pub written: Arc<AtomicUsize>,
    /// Calls that it began to sleep in.
    pub slept: Arc<AtomicUsize>,
    /// Streams and calls that were dropped before they ended.
    pub dropped: Arc<AtomicUsize>,
}

/// Counts if it is dropped before it is forgotten.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn payload(bytes: usize) -> Option<Payload> {
    Some(Payload { r#type: 0, body: vec![7; bytes] })
}

fn echoed(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) => Err(Status::new(Code::from(code), message)),
        None => Ok(()),
    }
}

/// Returns the two entries of metadata that `custom_metadata` sends.
fn with_metadata<T, U>(request: &Request<T>, response: U) -> Response<U> {
    let mut response = Response::new(response);
    for name in ["x-grpc-test-echo-initial"] {
        if let Some(value) = request.metadata().get(name) {
            response.metadata_mut().insert(name, value.clone());
        }
    }
    if let Some(value) = request.metadata().get_bin("x-grpc-test-echo-trailing-bin") {
        response.metadata_mut().insert_bin("x-grpc-test-echo-trailing-bin", value.clone());
    }
    response
}

type Outputs = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

impl Seen {
    fn outputs(&self, wanted: Vec<ResponseParameters>) -> Outputs {
        let (seen, guard) = (self.clone(), Guard(self.dropped.clone()));
        let mut left = wanted.len();
        let mut guard = (left > 0).then_some(guard);
        let outputs =
            tokio_stream::iter(wanted).then(move |ResponseParameters { size, interval_us }| {
                seen.written.fetch_add(1, Ordering::SeqCst);
                left -= 1;
                if left == 0 {
                    std::mem::forget(guard.take());
                }
                async move {
                    tokio::time::sleep(Duration::from_micros(interval_us as u64)).await;
                    Ok(StreamingOutputCallResponse { payload: payload(size as usize) })
                }
            });
        Box::pin(outputs)
    }
}

#[tonic::async_trait]
impl TestService for Seen {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        echoed(request.get_ref().response_status.clone())?;
        if request.metadata().contains_key("sleep") {
            let guard = Guard(self.dropped.clone());
            self.slept.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(30)).await;
            std::mem::forget(guard);
        }
        assert!(!request.metadata().contains_key("panic"), "as the client asked");
        let size = request.get_ref().response_size as usize;
        Ok(with_metadata(&request, SimpleResponse { payload: payload(size) }))
    }

    type StreamingOutputCallStream = Outputs;

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Outputs>, Status> {
        Ok(Response::new(self.outputs(request.into_inner().response_parameters)))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut inputs = request.into_inner();
        let mut sum = 0;
        while let Some(input) = inputs.try_next().await? {
            sum += input.payload.map_or(0, |payload| payload.body.len());
        }
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size: sum as i32 }))
    }

    type FullDuplexCallStream = Outputs;

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        let (initial, seen) = (with_metadata(&request, ()), self.clone());
        let inputs = request.into_inner();
        let outputs = inputs.then(move |input| {
            let seen = seen.clone();
            async move {
                let input = input?;
                echoed(input.response_status)?;
                let outputs = seen.outputs(input.response_parameters);
                Ok::<_, Status>(outputs.collect::<Vec<_>>().await)
            }
        });
        let outputs = Box::pin(flatten(outputs)) as Outputs;
        let mut response = Response::new(outputs);
        *response.metadata_mut() = initial.metadata().clone();
        Ok(response)
    }

    async fn unimplemented_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("as the case asks"))
    }
}

type Output = Result<StreamingOutputCallResponse, Status>;

/// The outputs for each input, one after another.
fn flatten(inputs: impl Stream<Item = Result<Vec<Output>, Status>> + Send + 'static) -> Outputs {
    let mut inputs = Box::pin(inputs);
    let (to, outputs) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(outputs) = inputs.next().await {
            let outputs = outputs.unwrap_or_else(|status| vec![Err(status)]);
            for output in outputs {
                if to.send(output).await.is_err() {
                    return;
                }
            }
        }
    });
    Box::pin(tokio_stream::wrappers::ReceiverStream::new(outputs))
}

/// A server in progress; it drains when it is asked to.
pub struct Running {
    pub at: std::net::SocketAddr,
    pub seen: Seen,
    pub drain: oneshot::Sender<()>,
    pub served: JoinHandle<Result<(), homa_tonic::ServeError>>,
}

pub async fn serve() -> Running {
    serve_with(homa::Config::default()).await
}

pub async fn serve_with(config: homa::Config) -> Running {
    serve_by(Server::builder(), config).await
}

pub async fn serve_by(builder: Server, config: homa::Config) -> Running {
    let seen = Seen::default();
    let engine = homa::Engine::bind("127.0.0.1:0".parse().unwrap(), config);
    let engine = engine.unwrap();
    engine.drive_on_tokio().unwrap();
    let server = engine.serve().unwrap();
    let (drain, asked) = oneshot::channel();
    let at = server.local_addr();
    let router = builder.add_service(TestServiceServer::new(seen.clone()));
    let served = tokio::spawn(router.serve_on(server, async move {
        let _ = asked.await;
    }));
    Running { at, seen, drain, served }
}

pub async fn channel(at: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("homa://{at}")).unwrap().connect().await.unwrap()
}

pub async fn client(running: &Running) -> Client {
    TestServiceClient::new(channel(running.at).await)
}

/// Waits until a count reaches a number.
pub async fn reaches(count: &AtomicUsize, number: usize) {
    let wait = async {
        while count.load(Ordering::SeqCst) < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it is reached");
}
