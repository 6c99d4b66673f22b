//! `--to homa://*`: the client names the server, by CONNECT or by its authority.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

use super::pair::{Client, Service, proxy};
use crate::common::{code, stderr};
use crate::generated::test_service_client::TestServiceClient;
use crate::generated::{Empty, ResponseParameters, StreamingOutputCallRequest};
use crate::server::Server;

/// A proxy beside clients, for all servers.
fn front() -> Server {
    proxy("http://127.0.0.1:0", "homa://*", &[])
}

/// Host and port of a proxy.
fn host_and_port(proxy: &Server) -> String {
    proxy.address.split_once("://").unwrap().1.to_owned()
}

/// A client that names the server by its authority.
fn by_authority(front: &Server, server: &str) -> Client {
    let endpoint = Endpoint::from_shared(front.address.clone()).unwrap();
    let origin: Uri = format!("http://{server}").parse().unwrap();
    TestServiceClient::new(endpoint.origin(origin).connect_lazy())
}

/// What a proxy answers to CONNECT, and the stream.
async fn connect(front: String, server: &str, version: &str) -> io::Result<(String, TcpStream)> {
    let mut stream = TcpStream::connect(front).await?;
    let request = format!("CONNECT {server} HTTP/{version}\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok((String::from_utf8(head).unwrap(), stream))
}

/// A client as with `grpc_proxy` in its environment: it knows the server's name alone.
async fn by_tunnel(front: &Server, server: &str, version: &'static str) -> Channel {
    let front = host_and_port(front);
    let connector = tower::service_fn(move |uri: Uri| {
        let front = front.clone();
        async move {
            let server = uri.authority().unwrap().as_str().to_owned();
            let (head, stream) = connect(front, &server, version).await?;
            let ok = head.split(' ').nth(1) == Some("200");
            if ok { Ok(TokioIo::new(stream)) } else { Err(io::Error::other(head)) }
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
    endpoint.connect_with_connector(connector).await.unwrap()
}

async fn refusal(client: &mut Client) -> Status {
    client.empty_call(Empty {}).await.unwrap_err()
}

#[tokio::test]
async fn calls_reach_the_server_that_they_name() {
    let services = [Service::start().await, Service::start().await];
    let [one, other] = [0, 1].map(|index| proxy("homa://127.0.0.1:0", &services[index].at, &[]));
    let front = front();
    // gRPC's library for C and Python writes HTTP/1.0.
    let mut tunnel = TestServiceClient::new(by_tunnel(&front, &host_and_port(&one), "1.0").await);
    let mut later = TestServiceClient::new(by_tunnel(&front, &host_and_port(&other), "1.1").await);
    let mut named = by_authority(&front, &host_and_port(&other));
    for (client, called) in [(&mut tunnel, 0), (&mut later, 1), (&mut named, 1)] {
        services.iter().for_each(|service| service.metadata.lock().unwrap().clear());
        client.empty_call(Empty {}).await.unwrap();
        let reached =
            services.each_ref().map(|service| !service.metadata.lock().unwrap().is_empty());
        assert_eq!(reached, [called == 0, called == 1]);
    }
    // The name of the tunnel holds, and not another authority inside it.
    services.iter().for_each(|service| service.metadata.lock().unwrap().clear());
    let channel = by_tunnel(&front, &host_and_port(&one), "1.1").await;
    let origin = format!("http://{}", host_and_port(&other)).parse().unwrap();
    let mut client = TestServiceClient::with_origin(channel, origin);
    client.empty_call(Empty {}).await.unwrap();
    assert!(services[1].metadata.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_call_without_another_server_is_refused_with_what_to_do() {
    let front = front();
    let own = host_and_port(&front);
    for name in [own.as_str(), "search.example", "search.example:0"] {
        let status = refusal(&mut by_authority(&front, name)).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
        assert!(status.message().contains("grpc_proxy"), "{name}: {status}");
    }
    let status = refusal(&mut by_authority(&front, "no.such.host.invalid:4000")).await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("no.such.host.invalid"), "{status}");
    // Nothing protects the packets, which is allowed on loopback alone.
    let status = refusal(&mut by_authority(&front, "192.0.2.1:4000")).await;
    assert!(status.message().contains("plaintext"), "{status}");
    for name in [own.as_str(), "search.example:0"] {
        let (head, mut stream) = connect(own.clone(), name, "1.1").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("grpc_proxy"), "{text}");
    }
    let end = tokio::task::spawn_blocking(|| front.terminate()).await.unwrap();
    assert!(stderr(&end).contains("refused 2"), "{}", stderr(&end));
}

#[tokio::test]
async fn a_proxy_with_one_server_makes_no_tunnels() {
    let front = proxy("http://127.0.0.1:0", "homa://127.0.0.1:1", &[]);
    let (head, mut stream) = connect(host_and_port(&front), "127.0.0.1:4000", "1.1").await.unwrap();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("homa://*"), "{text}");
}

#[tokio::test]
async fn what_is_no_http2_in_a_tunnel_ends_it_alone() {
    let service = Service::start().await;
    let back = proxy("homa://127.0.0.1:0", &service.at, &[]);
    let front = front();
    let (server, at) = (host_and_port(&back), host_and_port(&front));
    // It waits for nothing, also not at the end.
    let _idle = connect(at.clone(), &server, "1.1").await.unwrap();
    let mut client = TestServiceClient::new(by_tunnel(&front, &server, "1.1").await);
    client.empty_call(Empty {}).await.unwrap();
    for noise in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n"] {
        let (head, mut stream) = connect(at.clone(), &server, "1.1").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream.write_all(&noise.repeat(100)).await.unwrap();
        let mut said = Vec::new();
        // A reset is an answer, too.
        let _ = stream.read_to_end(&mut said).await;
        assert!(!said.starts_with(b"HTTP/1.1 200"), "{said:?}");
    }
    // Its client leaves it before and after the answer.
    drop(connect(at.clone(), &server, "1.1").await.unwrap());
    let mut stream = TcpStream::connect(&at).await.unwrap();
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\n").as_bytes()).await.unwrap();
    drop(stream);
    client.empty_call(Empty {}).await.unwrap();
    let end = tokio::task::spawn_blocking(|| front.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    assert!(stderr(&end).contains("forwarded 2 calls, 0 of them failed"), "{}", stderr(&end));
}

#[tokio::test]
async fn calls_in_a_tunnel_end_before_the_proxy_does() {
    let service = Service::start().await;
    let back = proxy("homa://127.0.0.1:0", &service.at, &[]);
    let front = front();
    let mut client = TestServiceClient::new(by_tunnel(&front, &host_and_port(&back), "1.1").await);
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let mut responses =
        client.full_duplex_call(ReceiverStream::new(requests)).await.unwrap().into_inner();
    let at = host_and_port(&front);
    let ending = tokio::task::spawn_blocking(|| front.terminate());
    // Until it accepts no more.
    while TcpStream::connect(&at).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let request = StreamingOutputCallRequest {
        response_parameters: vec![ResponseParameters { size: 7, interval_us: 0 }],
        ..StreamingOutputCallRequest::default()
    };
    send.send(request).await.unwrap();
    assert_eq!(responses.next().await.unwrap().unwrap().payload.unwrap().body.len(), 7);
    drop(send);
    assert!(responses.next().await.is_none());
    let end = ending.await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
}
