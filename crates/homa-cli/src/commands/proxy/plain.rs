//! Requests of HTTP that are not calls of gRPC: what an intermediary changes in their heads (RFC
//! 9110 §7), and the responses of the proxy itself.
//!
//! Left out: upgrades to other protocols, such as WebSocket, whose headers are removed, so that the
//! server answers as if the client had not asked; and caches.

use bytes::Bytes;
use homa_tonic::is_grpc;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Response, StatusCode, request};
use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::{Code, Status};

/// Names this proxy in forwarded messages.
const PSEUDONYM: &str = "1.1 homa";

/// A request that has passed as many proxies beside clients goes around in a circle.
const MOST_PROXIES: usize = 8;

/// Removes what concerns one connection (RFC 9110 §7.6.1).
pub fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let always = [
        CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
    ];
    // `Connection` could otherwise choose another host.
    let named = named.iter().filter(|name| **name != HOST);
    for name in named.chain(&always) {
        headers.remove(name);
    }
}

/// Makes the head of a response fit to be forwarded to its client. Two proxies that a message
/// passes are one entry of `Via`, that of the first or the last one (RFC 9110 §7.6.3).
pub fn answered(headers: &mut HeaderMap) {
    strip(headers);
    headers.append(VIA, HeaderValue::from_static(PSEUDONYM));
}

/// Makes the head of a client's request fit to be forwarded, and returns the server that it names,
/// with HTTP's port if it has none: by its URI, as clients of a proxy write it, or by `Host`. An
/// error if two servers could read it in different ways. A proxy has answered `Expect` by then.
pub fn prepare(head: &mut request::Parts) -> Result<Authority, Status> {
    let wrong = |what: &str| Err(Status::invalid_argument(what));
    if head.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP) {
        return wrong("the URL is not of http: encryption is between the proxies");
    }
    let codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    if codings.into_iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(Status::unimplemented("a transfer coding other than chunked"));
    }
    let passed = head.headers.get_all(VIA).iter().filter(|by| *by == PSEUDONYM).count();
    if passed >= MOST_PROXIES {
        return wrong("the request goes around in a circle of proxies");
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (host, None) => host.cloned(),
        _ => return wrong("the request has several headers Host"),
    };
    let named = match (head.uri.authority(), &host) {
        (Some(named), _) => Some(named.clone()),
        (None, Some(host)) => Authority::try_from(host.as_bytes()).ok(),
        (None, None) => return wrong("the request has no header Host"),
    };
    let Some(named) = named.filter(|named| !named.as_str().contains('@')) else {
        return wrong("the host is not HOST or HOST:PORT");
    };
    strip(&mut head.headers);
    head.headers.remove(EXPECT);
    // Trailers of requests are not forwarded.
    head.headers.remove(TRAILER);
    head.headers.append(VIA, HeaderValue::from_static(PSEUDONYM));
    // The URI replaces a `Host` that says something else (RFC 9112 §3.2.2).
    if let Ok(named) = HeaderValue::try_from(named.as_str()) {
        head.headers.insert(HOST, named);
    }
    join_cookies(&mut head.headers);
    match named.port() {
        Some(_) => Ok(named),
        None => Authority::try_from(format!("{named}:80"))
            .map_err(|_| Status::invalid_argument("the host is not HOST or HOST:PORT")),
    }
}

/// Clients of HTTP/2 may divide cookies, and servers of HTTP/1.1 know one header of them (RFC 9113
/// §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Refuses a request whose headers give another length than its body has, if that is known. A peer
/// could write such headers. The requests of all clients share connections, and on them the server
/// would take the beginning of the next request for the rest of this body.
pub fn check_length(headers: &HeaderMap, body: Option<u64>) -> Result<(), Status> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let said = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(()),
        (Some(length), None) => length.to_str().ok(),
        _ => None,
    };
    // Digits alone: `parse` takes a sign, too.
    let digits = |said: &&str| said.bytes().all(|digit| digit.is_ascii_digit());
    let said = said.filter(digits).and_then(|said| said.parse::<u64>().ok());
    match (said, body) {
        (None, _) => Err(Status::invalid_argument("the length of the body is not a number")),
        (Some(said), Some(bytes)) if said != bytes => {
            Err(Status::invalid_argument("the body has another length than the request says"))
        }
        _ => Ok(()),
    }
}

/// A response with a text for people.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::new(text.into())));
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The response to a request that failed on the way.
pub fn failed(status: &Status) -> Response<Body> {
    let code = match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::BAD_GATEWAY,
    };
    text(code, format!("homa proxy: {}\n", status.message()))
}

/// The status of a response that ended too early, if these are its trailers.
pub fn broken(trailers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(trailers).filter(|status| status.code() != Code::Ok)
}

/// The status that a server of gRPC over Homa ended a request with, if it did: the request was
/// refused, or the server knows gRPC only.
pub async fn status_of(response: &mut Response<Body>) -> Option<Status> {
    if !is_grpc(response.headers()) {
        return None;
    }
    if let Some(status) = Status::from_header_map(response.headers()) {
        return Some(status);
    }
    while let Some(Ok(frame)) = response.body_mut().frame().await {
        if let Ok(trailers) = frame.into_trailers() {
            return Status::from_header_map(&trailers);
        }
    }
    Some(Status::internal("the server answered with gRPC, and without a status"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair =
            |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn headers_of_one_connection_are_not_forwarded() {
        let mut given = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("content-length", "7"),
            ("x-end", "2"),
            ("via", "1.1 other"),
        ]);
        answered(&mut given);
        let mut names: Vec<_> = given.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "via", "x-end"]);
        let via: Vec<_> = given.get_all("via").iter().collect();
        assert_eq!(via, ["1.1 other", PSEUDONYM], "behind those before it");
    }

    /// The server of a request, and the `Host` that is forwarded.
    fn prepared(uri: &str, given: &[(&'static str, &'static str)]) -> Result<[String; 2], Status> {
        let mut request = Request::get(uri).body(()).unwrap();
        *request.headers_mut() = headers(given);
        let (mut head, ()) = request.into_parts();
        let server = prepare(&mut head)?.to_string();
        Ok([server, head.headers["host"].to_str().unwrap().to_owned()])
    }

    #[test]
    fn the_server_is_named_by_the_uri_or_by_the_host() {
        for (uri, host, server, forwarded) in [
            ("http://a:81/x", Some("b"), "a:81", "a:81"),
            ("http://a/x", None, "a:80", "a"),
            ("/x", Some("b"), "b:80", "b"),
            ("/x", Some("b:82"), "b:82", "b:82"),
        ] {
            let given: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
            assert_eq!(prepared(uri, &given).unwrap(), [server, forwarded], "{uri}");
        }
        let named = prepared("/x", &[("host", "b"), ("connection", "host")]).unwrap();
        assert_eq!(named, ["b:80", "b"], "a client does not choose another");
    }

    #[test]
    fn requests_that_servers_could_read_differently_are_refused() {
        let circle = [("host", "a"); 1].into_iter().chain([("via", PSEUDONYM); MOST_PROXIES]);
        let circle: Vec<_> = circle.collect();
        let two = [("host", "a"), ("host", "b")];
        for (uri, given, code) in [
            ("/x", &[][..], Code::InvalidArgument),
            ("/x", &two, Code::InvalidArgument),
            ("/x", &[("host", "a b")], Code::InvalidArgument),
            ("/x", &[("host", "u:p@a")], Code::InvalidArgument),
            ("http://u:p@a/x", &[], Code::InvalidArgument),
            ("https://a/x", &[], Code::InvalidArgument),
            ("/x", &circle, Code::InvalidArgument),
            ("/x", &[("host", "a"), ("transfer-encoding", "gzip, chunked")], Code::Unimplemented),
        ] {
            assert_eq!(prepared(uri, given).unwrap_err().code(), code, "{uri} {given:?}");
        }
    }

    #[test]
    fn a_length_that_is_not_the_bodys_is_refused() {
        let fits = |lengths: &[&'static str], body| {
            let lengths: Vec<_> = lengths.iter().map(|said| ("content-length", *said)).collect();
            check_length(&headers(&lengths), body).is_ok()
        };
        assert!(fits(&[], Some(5)) && fits(&["5"], Some(5)) && fits(&["5"], None));
        assert!(!fits(&["48"], Some(0)) && !fits(&["4"], Some(5)) && !fits(&["5", "5"], None));
        assert!(!fits(&["5, 5"], None) && !fits(&["+5"], Some(5)) && !fits(&["-1"], None));
    }

    #[test]
    fn divided_cookies_become_one() {
        let mut given = headers(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut given);
        let joined: Vec<_> = given.get_all(COOKIE).iter().collect();
        assert_eq!(joined, ["a=1; b=2"]);
    }

    #[test]
    fn gateways_errors_are_told_from_those_of_requests() {
        let code = |code: Code| failed(&Status::new(code, "why")).status().as_u16();
        assert_eq!(code(Code::Unavailable), 502);
        assert_eq!(code(Code::DeadlineExceeded), 504);
        assert_eq!(code(Code::ResourceExhausted), 503);
        assert_eq!(code(Code::InvalidArgument), 400);
    }
}
