//! Programs that speak HTTP and no gRPC, through two proxies.

use std::convert::Infallible;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::calls::rpcs;
use super::pair::{Pair, proxy};
use crate::common::{code, stderr};
use crate::service::reaches;

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

/// A web server of HTTP/1.1.
#[derive(Clone, Default)]
struct Web {
    /// Requests for `/never`, and those that ended because their client left.
    asked: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

/// Counts when it is dropped.
struct CountsItsEnd(Arc<AtomicUsize>);

impl Drop for CountsItsEnd {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Web {
    /// Serves at a free address of loopback, which it returns.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let web = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let web = web.clone();
                let answer = service_fn(move |request| web.clone().answer(request));
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        at
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let answer = Response::builder().header("x-server", "web").header("connection", "x-hop");
        let answer = answer.header("x-hop", "1");
        let whole = |body: Bytes| Full::new(body).map_err(|never| match never {}).boxed();
        Ok(match head.uri.path() {
            // What came in, in the headers of the answer.
            "/echo" => {
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                let seen =
                    |name| head.headers.get(name).cloned().unwrap_or("none".parse().unwrap());
                let answer = answer
                    .header("x-method", head.method.as_str())
                    .header("x-uri", head.uri.to_string())
                    .header("x-host", seen("host"))
                    .header("x-via", seen("via"))
                    .header("x-length", seen("content-length"))
                    .header("x-te", seen("transfer-encoding"))
                    .header("x-secret", seen("x-secret"))
                    .header("x-expect", seen("expect"));
                answer.body(whole(body)).unwrap()
            }
            // It promises more than it has.
            "/short" => {
                let frames = tokio_stream::iter([
                    Ok(Frame::data(Bytes::from_static(b"abc"))),
                    Err(std::io::Error::other("gone")),
                ]);
                let answer = answer.header("content-length", "100");
                answer.body(BodyExt::boxed(StreamBody::new(frames))).unwrap()
            }
            // It says so before it has read the request.
            "/early" => answer.status(413).body(whole(Bytes::new())).unwrap(),
            "/missing" => answer.status(404).body(whole("not here\n".into())).unwrap(),
            "/stream" => answer.body(BodyExt::boxed(StreamBody::new(numbers()))).unwrap(),
            "/broken" => {
                let frames =
                    numbers().chain(tokio_stream::once(Err(std::io::Error::other("gone"))));
                answer.body(BodyExt::boxed(StreamBody::new(frames))).unwrap()
            }
            "/never" => {
                let _left = CountsItsEnd(self.left.clone());
                self.asked.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                unreachable!()
            }
            _ => {
                let answer = answer.status(400).header("x-uri", head.uri.to_string());
                answer.body(whole(Bytes::new())).unwrap()
            }
        })
    }
}

/// `1` at once, and `2` after longer than a proxy waits for more.
fn numbers() -> impl tokio_stream::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + Sync
{
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        for number in ["1", "2"] {
            let _ = send.send(Ok(Frame::data(Bytes::from_static(number.as_bytes())))).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    ReceiverStream::new(receive)
}

fn port(of: &str) -> &str {
    of.strip_prefix("http://").unwrap()
}

async fn client(pair: &Pair) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(port(&pair.front.address)).await.unwrap();
    let (send, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    send
}

/// Sends a request on an open connection.
async fn ask(
    send: &mut http1::SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Response<Incoming> {
    send.ready().await.unwrap();
    let request = Request::builder().method(method).uri(path).header("host", "web.example");
    let request = request.header("connection", "x-secret").header("x-secret", "1");
    send.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap()
}

fn header(response: &Response<Incoming>, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[tokio::test]
async fn requests_of_http_arrive_as_they_are() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    // All on one connection.
    let mut send = client(&pair).await;
    for (method, body) in [
        (Method::GET, Bytes::new()),
        (Method::PUT, Bytes::from_static(b"seven")),
        (Method::DELETE, Bytes::new()),
        (Method::POST, Bytes::from(vec![b'x'; 100_000])),
        (Method::POST, Bytes::from(vec![b'y'; 9_000_000])),
        ("PURGE".parse().unwrap(), Bytes::new()),
    ] {
        let asked = ask(&mut send, method.clone(), "/echo?q=a%20b", body.clone()).await;
        assert_eq!(asked.status(), StatusCode::OK, "{method}");
        assert_eq!(header(&asked, "x-method"), method.as_str());
        assert_eq!(header(&asked, "x-uri"), "/echo?q=a%20b");
        assert_eq!(header(&asked, "x-host"), "web.example");
        assert_eq!(header(&asked, "x-secret"), "none", "it concerns one connection");
        assert_eq!(
            (header(&asked, "x-hop"), header(&asked, "x-server")),
            ("".into(), "web".into())
        );
        assert_eq!(header(&asked, "x-via"), "1.1 homa");
        let length = if body.is_empty() { "none".to_owned() } else { body.len().to_string() };
        let (seen, chunked) = (header(&asked, "x-length"), header(&asked, "x-te"));
        assert!(seen == length || seen == "0" && body.is_empty(), "{method}: {seen} {chunked}");
        assert_eq!(header(&asked, "content-length"), body.len().to_string(), "{method}");
        assert!(asked.into_body().collect().await.unwrap().to_bytes() == body, "{method}");
    }
    let head = ask(&mut send, Method::HEAD, "/missing", "").await;
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (404, "9".into()));
    assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
    let missing = ask(&mut send, Method::GET, "/missing", "").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(missing.into_body().collect().await.unwrap().to_bytes(), "not here\n");
    let end = tokio::task::spawn_blocking(|| pair.front.terminate()).await.unwrap();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    assert!(stderr(&end).contains("forwarded 8 calls, 0 of them failed"), "{}", stderr(&end));
}

#[tokio::test]
async fn a_request_with_its_response_is_one_rpc() {
    let at = Web::default().serve().await;
    let mut pair = Pair::to(&at, &["--metrics", "127.0.0.1:0"]);
    let metrics = pair.front.line("metrics at http://");
    let mut send = client(&pair).await;
    for size in [0, 100, 200_000, 4 << 20] {
        let mut taken = Vec::new();
        // A busy machine may be slower than the proxy waits.
        while taken.len() < 10 && !taken.contains(&1) {
            let before = rpcs(&metrics);
            let asked = ask(&mut send, Method::POST, "/echo", vec![b'x'; size]).await;
            assert_eq!(asked.into_body().collect().await.unwrap().to_bytes().len(), size);
            taken.push(rpcs(&metrics) - before);
        }
        assert!(taken.contains(&1), "{size} bytes took {taken:?} RPCs");
    }
}

#[tokio::test]
async fn http2_reaches_a_server_of_http1() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    let stream = TokioIo::new(TcpStream::connect(port(&pair.front.address)).await.unwrap());
    let (mut send, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://web.example:81/echo").version(Version::HTTP_2);
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let asked = send.send_request(request).await.unwrap();
    assert_eq!((asked.status().as_u16(), header(&asked, "x-method")), (200, "GET".into()));
    assert_eq!(header(&asked, "x-host"), "web.example:81");
}

#[tokio::test]
async fn parts_of_a_response_arrive_before_its_end_and_a_break_is_no_end() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    let mut send = client(&pair).await;
    let mut body = ask(&mut send, Method::GET, "/stream", "").await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "1", "without 2");
    assert_eq!(body.collect().await.unwrap().to_bytes(), "2");
    let broken = ask(&mut send, Method::GET, "/broken", "").await;
    assert_eq!(broken.status(), StatusCode::OK, "the head came before");
    broken.into_body().collect().await.unwrap_err();
}

/// A client that repeats a request after an empty answer would execute it twice.
#[tokio::test]
async fn a_response_that_breaks_at_once_is_a_bad_gateway() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    let mut send = client(&pair).await;
    let mut seen = Vec::new();
    // A busy server may write its head earlier than the rest.
    while seen.len() < 10 && !seen.contains(&502) {
        match send.ready().await {
            Ok(()) => seen.push(ask(&mut send, Method::POST, "/short", "").await.status().as_u16()),
            Err(_) => send = client(&pair).await,
        }
    }
    assert!(seen.contains(&502), "{seen:?}");
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_rest_of_its_request() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    let mut stream = TcpStream::connect(port(&pair.front.address)).await.unwrap();
    let head = b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nbegin";
    stream.write_all(head).await.unwrap();
    let mut said = [0; 12];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_query_without_a_path_arrives() {
    let server = proxy("homa://127.0.0.1:0", &Web::default().serve().await, &[]);
    let front = proxy("http://127.0.0.1:0", "homa://*", &[]);
    let mut stream = TcpStream::connect(port(&front.address)).await.unwrap();
    let at = server.address.strip_prefix("homa://").unwrap();
    let head = format!("GET http://{at}?q=1 HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 400 "), "of the server, which has no page there: {said}");
    assert!(said.contains("x-uri: /?q=1\r\n"), "{said}");
}

/// All clients share the connections to the server.
#[tokio::test]
async fn a_peer_cannot_hide_a_request_in_that_of_another() {
    let at = Web::default().serve().await;
    let back = proxy("homa://127.0.0.1:0", &at, &[]);
    let endpoint = homa_tonic::Endpoint::from_shared(back.address.clone()).unwrap();
    let channel = endpoint.connect_lazy().await.unwrap();
    let ask = |lengths: &'static [&'static str], body: &'static str| {
        let mut request = Request::post("/echo").body(tonic::body::Body::new(
            Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {}),
        ));
        for length in lengths {
            let headers = request.as_mut().unwrap().headers_mut();
            headers.append("content-length", length.parse().unwrap());
        }
        let mut channel = channel.clone();
        async move { tower::Service::call(&mut channel, request.unwrap()).await.unwrap() }
    };
    for lengths in [&["48"][..], &["3", "3"], &["3, 3"], &["+0"]] {
        assert_eq!(ask(lengths, "").await.status(), StatusCode::BAD_REQUEST, "{lengths:?}");
    }
    let honest = ask(&["5"], "seven").await;
    assert_eq!(honest.headers()["x-length"], "5");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let web = Web::default();
    let pair = Pair::to(&web.serve().await, &[]);
    let mut stream = TcpStream::connect(port(&pair.front.address)).await.unwrap();
    stream.write_all(b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    reaches(&web.asked, 1).await;
    drop(stream);
    reaches(&web.left, 1).await;
}

#[tokio::test]
async fn a_server_that_is_down_is_a_bad_gateway() {
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", down.local_addr().unwrap());
    drop(down);
    let pair = Pair::to(&at, &[]);
    let mut send = client(&pair).await;
    let said = ask(&mut send, Method::POST, "/", "x").await;
    assert_eq!(said.status(), StatusCode::BAD_GATEWAY);
    let why = said.into_body().collect().await.unwrap().to_bytes();
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains(&format!("the server at {at} cannot be reached: ")), "{why}");
}

#[tokio::test]
async fn curl_needs_one_variable() {
    let server = proxy("homa://127.0.0.1:0", &Web::default().serve().await, &[]);
    let front = proxy("http://127.0.0.1:0", "homa://*", &[]);
    let url = format!("http://{}/echo", server.address.strip_prefix("homa://").unwrap());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "-d", "data", "-H", "expect: 100-continue", &url]);
    curl.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    curl.env("http_proxy", &front.address);
    let Ok(output) = tokio::task::spawn_blocking(move || curl.output()).await.unwrap() else {
        return skip::test("curl (apt-get install curl)");
    };
    let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(said.contains("x-uri: /echo\r\n") && said.ends_with("data"), "{said}");
    assert!(said.contains(&format!("x-host: {}", url.split('/').nth(2).unwrap())), "{said}");
    assert!(said.contains("x-expect: none\r\n"), "{said}");
}

/// What one proxy reads as one request must not be two at the server.
#[tokio::test]
async fn no_request_is_hidden_in_another() {
    let at = Web::default().serve().await;
    let pair = Pair::to(&at, &[]);
    let hidden = "GET /missing HTTP/1.1\r\nhost: a\r\n\r\n";
    let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for lengths in [
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
    ] {
        let request =
            format!("POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{lengths}\r\n{chunk}");
        let mut stream = TcpStream::connect(port(&pair.front.address)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said).await;
        let answers = ["HTTP/1.1 200 ", "HTTP/1.1 4"].map(|begin| said.matches(begin).count());
        assert!(answers == [0, 1] || answers == [1, 0] && said.ends_with(hidden), "{said}");
    }
}
