//! Answers to everything that is not a call of gRPC, from either side.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;

use super::pair::{Pair, Service};
use crate::common::{code, homa, stderr};
use crate::generated;

/// What a TCP server says to some bytes.
fn say(to: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    // A reset is an answer, too.
    let _ = stream.read_to_end(&mut said);
    said
}

#[tokio::test]
async fn requests_that_are_no_calls_are_answered_and_counted() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let at = pair.front.address.strip_prefix("http://").unwrap().to_owned();
    let raw = at.clone();
    let said = tokio::task::spawn_blocking(move || {
        let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        preface.extend([0xff; 100]);
        let noise = b"\x16\x03\x01\x02\x00\x01\x00".as_slice();
        let http1 = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\r\n";
        [http1.as_slice(), noise, &preface].map(|bytes| say(&raw, bytes))
    });
    let [http1, noise, preface] = said.await.unwrap();
    let http1 = String::from_utf8_lossy(&http1);
    assert!(http1.starts_with("HTTP/1.1 505 ") && http1.contains("gRPC over HTTP/2"), "{http1}");
    assert!(noise.is_empty() || noise.starts_with(b"HTTP/1.1 400 "), "{noise:?}");
    // Settings, and that the connection ends.
    assert!(preface.len() > 9, "{preface:?}");

    let stream = TokioIo::new(tokio::net::TcpStream::connect(&at).await.unwrap());
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = || Request::builder().uri(format!("http://{at}/a.B/C"));
    let long = "x".repeat(100_000);
    let of_type = |method: &str, kind| request().method(method).header("content-type", kind);
    let requests = [
        (of_type("GET", "application/grpc+proto"), StatusCode::METHOD_NOT_ALLOWED),
        // They go to the server, which speaks gRPC over HTTP/2 only.
        (request().method("GET"), StatusCode::BAD_GATEWAY),
        (of_type("POST", "application/grpc-web"), StatusCode::BAD_GATEWAY),
        (
            of_type("POST", "application/grpc").header("x", &long),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ];
    for (request, expected) in requests {
        let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected);
        response.into_body().collect().await.unwrap();
    }
    pair.client().empty_call(generated::Empty {}).await.unwrap();
    let end = tokio::task::spawn_blocking(|| pair.front.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    // h2 refuses the head that is too long itself.
    assert!(stderr(&end).contains("forwarded 3 calls, 0 of them failed"), "{}", stderr(&end));
    assert!(stderr(&end).contains("refused 4"), "{}", stderr(&end));
}

#[tokio::test]
async fn messages_that_are_no_calls_do_not_reach_the_server() {
    let service = Service::start().await;
    let pair = Pair::to(&service.at, &[]);
    let homa_at = pair.back.address.strip_prefix("homa://").unwrap().to_owned();
    let call = tokio::task::spawn_blocking(move || homa(&["call", &homa_at, "--data", "noise"]));
    let answered = call.await.unwrap();
    assert_eq!((code(&answered), &answered.stdout[..]), (0, &[1, 16][..]), "refused");
    // A server that does not speak HTTP/2.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            use tokio::io::AsyncWriteExt;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let other = Pair::to(&at, &[]);
    let status = other.client().empty_call(generated::Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(&at), "{status}");
    pair.client().empty_call(generated::Empty {}).await.unwrap();
}
