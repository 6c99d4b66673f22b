//! Servers and proxies that come and go, limits, and keys.

use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Request};

use super::pair::{Client, Pair, Service, proxy};
use crate::common::{code, homa, stderr};
use crate::folder::Folder;
use crate::generated::test_service_client::TestServiceClient;
use crate::generated::test_service_server::TestServiceServer;
use crate::generated::{Empty, SimpleRequest, StreamingOutputCallRequest};
use crate::service::{Seen, reaches};

/// An unused TCP address.
fn unused() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A call that its service does not answer for a long time.
fn sleeping() -> Request<SimpleRequest> {
    let mut request = Request::new(SimpleRequest::default());
    request.metadata_mut().insert("sleep", "1".parse().unwrap());
    request
}

async fn refusal(client: &mut Client) -> String {
    let status = client.empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    status.message().to_owned()
}

#[tokio::test]
async fn a_server_that_is_down_is_named_until_it_is_there() {
    let at = unused();
    let pair = Pair::to(&format!("http://{at}"), &[]);
    let mut client = pair.client();
    let said = refusal(&mut client).await;
    assert!(said.starts_with(&format!("the server at http://{at} cannot be reached: ")), "{said}");
    let service = Service::at(&at).await;
    client.empty_call(Empty {}).await.unwrap();
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary_call(sleeping()).await }
    });
    reaches(&service.seen.slept, 1).await;
    call.abort();
    reaches(&service.seen.dropped, 1).await;
    // The other host's proxy ends.
    let Pair { front, back } = pair;
    let end = tokio::task::spawn_blocking(|| back.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    let said = refusal(&mut client).await;
    assert!(said.contains("server"), "{said}");
    let end = tokio::task::spawn_blocking(|| front.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    assert!(stderr(&end).contains("failed on the way; refused 0"), "{}", stderr(&end));
}

#[tokio::test]
async fn calls_in_progress_end_before_a_proxy_does() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let requests = ReceiverStream::new(requests);
    let mut responses = pair.client().full_duplex_call(requests).await.unwrap().into_inner();
    let Pair { front, back } = pair;
    let address = front.address.clone();
    let ending = tokio::task::spawn_blocking(|| [front.terminate(), back.terminate()]);
    // Until it accepts no more.
    while tokio::net::TcpStream::connect(address.strip_prefix("http://").unwrap()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let parameters = crate::generated::ResponseParameters { size: 7, interval_us: 0 };
    let request = StreamingOutputCallRequest {
        response_parameters: vec![parameters],
        ..StreamingOutputCallRequest::default()
    };
    send.send(request).await.unwrap();
    assert_eq!(responses.next().await.unwrap().unwrap().payload.unwrap().body.len(), 7);
    drop(send);
    assert!(responses.next().await.is_none());
    for end in ending.await.unwrap() {
        assert_eq!(code(&end), 0, "{}", stderr(&end));
        let said = stderr(&end);
        assert!(said.contains("forwarded 1 calls, 0 of them failed"), "{said}");
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused() {
    let service = Service::start().await;
    let back = proxy("homa://127.0.0.1:0", &service.at, &[]);
    let front = proxy("http://127.0.0.1:0", &back.address, &["--concurrency", "1"]);
    let pair = Pair { front, back };
    let call = tokio::spawn({
        let mut client = pair.client();
        async move { client.unary_call(sleeping()).await }
    });
    reaches(&service.seen.slept, 1).await;
    // Another connection, because the first one has no stream left.
    assert!(refusal(&mut pair.client()).await.contains("--concurrency"));
    call.abort();
    reaches(&service.seen.dropped, 1).await;
    let end = tokio::task::spawn_blocking(|| pair.front.terminate()).await.unwrap();
    assert!(stderr(&end).contains("refused 1"), "{}", stderr(&end));
}

#[tokio::test]
async fn streams_of_other_hosts_count_as_calls() {
    let service = Service::start().await;
    let back = proxy("homa://127.0.0.1:0", &service.at, &["--concurrency", "1"]);
    let front = proxy("http://127.0.0.1:0", &back.address, &[]);
    let pair = Pair { front, back };
    let mut client = pair.client();
    let [(first, requests), (_second, others)] = [(); 2].map(|()| tokio::sync::mpsc::channel(1));
    let open = client.full_duplex_call(ReceiverStream::new(requests)).await.unwrap();
    let status = client.full_duplex_call(ReceiverStream::new(others)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("--concurrency"), "{status}");
    // A unary call waits until the stream has ended.
    drop((first, open));
    client.empty_call(Empty {}).await.unwrap();
}

#[tokio::test]
async fn both_local_ends_may_be_unix_sockets() {
    let folder = Folder::new("proxy");
    let [server, clients] = ["server.sock", "clients.sock"].map(|name| folder.path(name));
    let incoming =
        tokio_stream::wrappers::UnixListenerStream::new(UnixListener::bind(&server).unwrap());
    let service = TestServiceServer::new(Seen::default());
    let served = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(incoming));
    // Left by a process that was killed.
    drop(UnixListener::bind(&clients).unwrap());
    let back = proxy("homa://127.0.0.1:0", &format!("unix:{server}"), &[]);
    let front = proxy(&format!("unix:{clients}"), &back.address, &[]);
    assert_eq!(front.address, format!("unix:{clients}"));
    let second = homa(&["proxy", "--listen", &front.address, "--to", &back.address]);
    assert_eq!(code(&second), 2, "a process listens there");
    let path = clients.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move {
            let stream = UnixStream::connect(path).await?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    TestServiceClient::new(channel).empty_call(Empty {}).await.unwrap();
    let end = tokio::task::spawn_blocking(|| front.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    assert!(!std::path::Path::new(&clients).exists());
}

#[test]
fn a_socket_that_takes_datagrams_is_not_replaced() {
    let folder = Folder::new("proxy-datagrams");
    let path = folder.path("other.sock");
    let _other = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let at = format!("unix:{path}");
    let output = homa(&["proxy", "--listen", &at, "--to", "homa://127.0.0.1:1"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("no other process listens"), "{}", stderr(&output));
    assert!(std::path::Path::new(&path).exists());
}

#[tokio::test]
async fn proxies_with_the_same_key_encrypt() {
    let folder = Folder::new("proxy-keys");
    let [key, other] = ["cluster.key", "other.key"].map(|name| folder.path(name));
    for key in [&key, &other] {
        assert_eq!(code(&homa(&["key", "new", key])), 0);
    }
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &["--key", &key]);
    pair.client().empty_call(Empty {}).await.unwrap();
    let front = proxy("http://127.0.0.1:0", &pair.back.address, &["--key", &other]);
    let stranger = Pair { front, back: pair.back };
    let status = stranger.client().empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}
