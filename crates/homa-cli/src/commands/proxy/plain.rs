//! Requests of HTTP that are no calls of gRPC: what an intermediary changes in their heads (RFC
//! 9110 §7), and the responses of the proxy itself.
//!
//! Left out: upgrades to other protocols, such as WebSocket, whose headers are removed, so that the
//! server answers as if the client had not asked; and caches.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::{Code, Status};

/// Names this proxy in forwarded messages.
const PSEUDONYM: &str = "1.1 homa";

/// Whether a message is of gRPC. `application/grpc-web` is not: it needs no trailers of HTTP.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Whether a request may be executed more than once, or before the handshake is complete: its
/// method is safe (RFC 9110 §9.2.1, RFC 8470 §4).
pub fn is_repeatable(method: &Method) -> bool {
    method.is_safe()
}

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
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
    ];
    for name in named.iter().chain(&always) {
        headers.remove(name);
    }
}

/// Makes the head of a response fit to be forwarded to its client. Two proxies that a message
/// passes are one entry of `Via`, that of the first or the last one (RFC 9110 §7.6.3).
pub fn answered(headers: &mut HeaderMap) {
    strip(headers);
    headers.append(VIA, HeaderValue::from_static(PSEUDONYM));
}

/// Makes the head of a client's request fit to be forwarded. A proxy has answered `Expect` itself
/// by then. The authority of the URI replaces a `Host` that says something else (RFC 9112 §3.2.2).
pub fn prepare(head: &mut request::Parts) {
    strip(&mut head.headers);
    head.headers.append(VIA, HeaderValue::from_static(PSEUDONYM));
    head.headers.remove(EXPECT);
    let named = head.uri.authority().and_then(|named| HeaderValue::try_from(named.as_str()).ok());
    if let Some(named) = named {
        head.headers.insert(HOST, named);
    }
}

/// The server that a request names, with HTTP's port if it has none: by its URI, as clients of a
/// proxy write it, or by `Host`.
pub fn server_of(head: &request::Parts) -> Option<Authority> {
    let host = || head.headers.get(HOST)?.to_str().ok()?.parse().ok();
    let named: Authority = head.uri.authority().cloned().or_else(host)?;
    match named.port() {
        Some(_) => Some(named),
        None => format!("{named}:80").parse().ok(),
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

    #[test]
    fn the_server_is_named_by_the_uri_or_by_the_host() {
        let server = |uri: &str, host: Option<&str>| {
            let mut request = Request::get(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            let server = server_of(&head).map(|server| server.to_string());
            prepare(&mut head);
            let host = head.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
            (server, host)
        };
        let both = |server: &str, host: &str| (Some(server.to_owned()), Some(host.to_owned()));
        assert_eq!(server("http://a:81/x", Some("b")), both("a:81", "a:81"));
        assert_eq!(server("http://a/x", None), both("a:80", "a"));
        assert_eq!(server("/x", Some("b")), both("b:80", "b"));
        assert_eq!(server("/x", Some("b:82")), both("b:82", "b:82"));
        assert_eq!(server("/x", None), (None, None));
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
