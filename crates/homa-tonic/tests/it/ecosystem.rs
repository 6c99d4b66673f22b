//! Crates around tonic work unchanged: health checks, reflection, interceptors and layers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homa_tonic::Server;
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::generated::Empty;
use crate::generated::test_service_client::TestServiceClient;
use crate::generated::test_service_server::TestServiceServer;
use crate::service::{Seen, channel};

fn open() -> homa::Server {
    let engine = homa::Engine::bind("127.0.0.1:0".parse().unwrap(), homa::Config::default());
    let engine = engine.unwrap();
    engine.drive_on_tokio().unwrap();
    engine.serve().unwrap()
}

#[tokio::test]
async fn a_health_check_is_watched() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_serving::<TestServiceServer<Seen>>().await;
    let server = open();
    let at = server.local_addr();
    let router = Server::builder().add_service(service);
    tokio::spawn(router.serve_on(server, std::future::pending()));
    let mut client = HealthClient::new(channel(at).await);
    let request = HealthCheckRequest { service: "grpc.testing.TestService".into() };
    let checked = client.check(request.clone()).await.unwrap().into_inner();
    assert_eq!(checked.status, ServingStatus::Serving as i32);
    let mut watch = client.watch(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status, ServingStatus::Serving as i32);
    reporter.set_not_serving::<TestServiceServer<Seen>>().await;
    let second = watch.message().await.unwrap().unwrap();
    assert_eq!(second.status, ServingStatus::NotServing as i32);
}

#[tokio::test]
async fn services_are_listed_by_reflection() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let descriptors = tonic_health::pb::FILE_DESCRIPTOR_SET;
    let builder = tonic_reflection::server::Builder::configure();
    let service = builder.register_encoded_file_descriptor_set(descriptors).build_v1().unwrap();
    let server = open();
    let at = server.local_addr();
    let router = Server::builder().add_service(service);
    tokio::spawn(router.serve_on(server, std::future::pending()));
    let mut client = ServerReflectionClient::new(channel(at).await);
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let responses = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
    let response = responses.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = response.message_response else {
        panic!("another response: {response:?}");
    };
    assert!(list.service.iter().any(|service| service.name == "grpc.health.v1.Health"));
}

#[derive(Clone)]
struct Token(&'static str);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("token", self.0.parse().unwrap());
        Ok(request)
    }
}

#[tokio::test]
async fn interceptors_see_calls_at_both_ends() {
    let checks = |request: Request<()>| match request.metadata().get("token") {
        Some(token) if token == "right" => Ok(request),
        _ => Err(Status::unauthenticated("no token")),
    };
    let server = open();
    let at = server.local_addr();
    let service = TestServiceServer::with_interceptor(Seen::default(), checks);
    let router = Server::builder().add_service(service);
    tokio::spawn(router.serve_on(server, std::future::pending()));
    let channel = channel(at).await;
    let mut right = TestServiceClient::with_interceptor(channel.clone(), Token("right"));
    right.empty_call(Empty {}).await.unwrap();
    let mut wrong = TestServiceClient::with_interceptor(channel, Token("wrong"));
    assert_eq!(wrong.empty_call(Empty {}).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn layers_of_tower_see_every_call_and_may_refuse_it() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let counts = tower::util::MapRequestLayer::new(move |request: http::Request<_>| {
        count.fetch_add(1, Ordering::SeqCst);
        request
    });
    let refuses =
        tower::filter::FilterLayer::new(|request: http::Request<tonic::body::Body>| match request
            .headers()
            .contains_key("refused")
        {
            true => Err(Status::permission_denied("a layer's word")),
            false => Ok(request),
        });
    let server = open();
    let at = server.local_addr();
    let builder = Server::builder().layer(counts).layer(refuses);
    let router = builder.add_service(TestServiceServer::new(Seen::default()));
    tokio::spawn(router.serve_on(server, std::future::pending()));
    let mut client = TestServiceClient::new(channel(at).await);
    client.empty_call(Empty {}).await.unwrap();
    let mut request = Request::new(Empty {});
    request.metadata_mut().insert("refused", "1".parse().unwrap());
    let status = client.empty_call(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "a layer's word"));
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_fallback_gets_what_no_other_service_has() {
    use http_body::Body as _;
    use tower::ServiceExt;

    let fallback = tower::service_fn(|request: http::Request<tonic::body::Body>| async move {
        let path = request.uri().path();
        Ok(Status::failed_precondition(format!("fallback: {path}")).into_http())
    });
    let server = open();
    let at = server.local_addr();
    let router = Server::builder().add_service(TestServiceServer::new(Seen::default()));
    let router = router.fallback_service::<_, tonic::body::Body>(fallback);
    tokio::spawn(router.serve_on(server, std::future::pending()));
    let channel = channel(at).await;
    TestServiceClient::new(channel.clone()).empty_call(Empty {}).await.unwrap();
    let mut request = http::Request::new(tonic::body::Body::empty());
    *request.uri_mut() = "/other.Service/Method".parse().unwrap();
    let response = channel.oneshot(request).await.unwrap();
    assert_eq!(response.headers()["grpc-message"], "fallback:%20/other.Service/Method");
    // A proxy to HTTP/2 has to send the head as the end of the stream.
    assert!(response.body().is_end_stream());
}
