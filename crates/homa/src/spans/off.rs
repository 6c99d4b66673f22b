//! In place of OpenTelemetry if its feature is off: nothing, at no cost.

use std::net::SocketAddr;

use homa_proto::wire::datagram::TraceContext;

use super::RequestEnd;
use crate::error::CallError;

#[derive(Clone, Debug)]
pub(crate) struct Context;

pub(super) fn call(_: SocketAddr, _: Option<TraceContext>, _: Option<&Context>) -> Context {
    Context
}

pub(super) fn trace_of(_: &Context) -> Option<TraceContext> {
    None
}

pub(super) fn call_ended(_: &Context, _: Option<&CallError>) {}

pub(super) fn call_cancelled(_: &Context) {}

pub(super) fn request(_: SocketAddr, _: SocketAddr, _: Option<TraceContext>) -> Context {
    Context
}

pub(super) fn request_ended(_: &Context, _: RequestEnd) {}

#[cfg(all(feature = "tower", feature = "tokio"))]
pub(super) fn within<T>(_: &Context, work: impl FnOnce() -> T) -> T {
    work()
}
