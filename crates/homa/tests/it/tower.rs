//! A server as a `tower` service below other layers.

use std::time::Duration;

use homa::{CallOptions, Config, Engine, Message, Server};
use tower::{Service, ServiceBuilder, ServiceExt};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_a_service_that_is_ready_when_there_is_room() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = server.local_addr();
    let mut config = Config::default();
    config.protocol.max_rpcs = 1;
    let client = Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap().client();
    let service = homa::tower::Server::new(client, at, CallOptions::deadline(GIVE_UP));
    let mut layered = ServiceBuilder::new().timeout(GIVE_UP).concurrency_limit(8).service(service);
    let first = ServiceExt::<&str>::ready(&mut layered).await.unwrap().call("one");
    // There is no capacity while the first request is in progress, so the service waits.
    let mut second = layered.clone();
    let calls = tokio::spawn(async move {
        let response = ServiceExt::<&str>::ready(&mut second).await.unwrap().call("two").await;
        response.unwrap()
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!calls.is_finished());
    server.accept_async().await.unwrap().reply("one").unwrap();
    assert_eq!(&tokio::time::timeout(GIVE_UP, first).await.unwrap().unwrap()[..], b"one");
    server.accept_async().await.unwrap().reply("two").unwrap();
    let response: Message = tokio::time::timeout(GIVE_UP, calls).await.unwrap().unwrap();
    assert_eq!(&response[..], b"two");
}
