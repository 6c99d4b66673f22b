//! The service: it answers each call with bytes that have the length for which the call asks.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

use super::super::homa::response;

/// The method.
pub(super) const METHOD: &str = "/homa.rack.Echo/Call";

/// gRPC's messages as they are, so that no time goes into their encoding.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A server's part, with the number of its requests.
#[derive(Clone, Debug)]
pub(super) struct GrpcEcho(pub(super) Arc<AtomicU64>);

impl NamedService for GrpcEcho {
    const NAME: &'static str = "homa.rack.Echo";
}

impl UnaryService<Bytes> for GrpcEcho {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        let answer = response(request.into_inner().into());
        std::future::ready(Ok(Response::new(answer.into())))
    }
}

impl tonic::codegen::Service<http::Request<Body>> for GrpcEcho {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(RawCodec).max_decoding_message_size(usize::MAX);
            Ok(grpc.unary(service, request).await)
        })
    }
}
