//! CONNECT (RFC 9110 §9.3.6), by which clients of gRPC ask a proxy for a server: with `grpc_proxy`
//! in their environment they send it before HTTP/2, and need no other change.
//!
//! Left out: TLS in a tunnel, because it would hide the calls. Clients need cleartext credentials.

use std::sync::{Arc, Mutex, PoisonError};

use http::uri::Authority;
use http::{Method, Request, Version};
use hyper::upgrade::{OnUpgrade, Upgraded, on};

/// The tunnel that a connection becomes, if its client asks for one.
#[derive(Clone, Debug, Default)]
pub struct Tunnel(Arc<Mutex<Option<(OnUpgrade, Authority)>>>);

/// Whether a request asks for a tunnel.
pub fn is_asked<B>(request: &Request<B>) -> bool {
    request.method() == Method::CONNECT && request.version() <= Version::HTTP_11
}

impl Tunnel {
    /// The client gets a tunnel to a server when the response to its request has been sent.
    pub fn begin<B>(&self, request: Request<B>, server: Authority) {
        let mut tunnel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *tunnel = Some((on(request), server));
    }

    /// The stream that follows the response, if there is one, and its server.
    pub async fn entered(self) -> Option<(Upgraded, Authority)> {
        let tunnel = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (stream, server) = tunnel?;
        Some((stream.await.ok()?, server))
    }
}
