//! Spans of OpenTelemetry (feature `opentelemetry`), by its API alone: the program brings the SDK
//! and the exporter. Attributes follow the semantic conventions for RPC spans.
//!
//! The tracer is that of the global provider, which may be set at any time.
//!
//! Left out: `tracestate` and baggage, which do not travel with requests.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use homa_proto::wire::datagram::TraceContext;
use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer,
};
use opentelemetry::{InstrumentationScope, KeyValue};

use super::RequestEnd;
use crate::error::CallError;

pub(crate) use opentelemetry::Context;

/// Name of the spans and of the system: a method has no name here.
const NAME: &str = "homa";
const OUTCOME: &str = "homa.outcome";
const ERROR: &str = "error.type";

/// The span of a call. Its parent is the trace that was given; otherwise the active span, except if
/// that belongs to another trace than the request on whose behalf the call is made.
pub(super) fn call(
    to: SocketAddr,
    given: Option<TraceContext>,
    behalf: Option<&Context>,
) -> Context {
    let parent = given.map(remote).unwrap_or_else(|| {
        let current = Context::current();
        match behalf {
            Some(behalf) if is_other_trace(behalf, &current) => behalf.clone(),
            _ => current,
        }
    });
    span(SpanKind::Client, parent, || attributes([("server.address", "server.port", to)]))
}

/// The span of a request. Its parent is the client's, if it sent one.
pub(super) fn request(from: SocketAddr, local: SocketAddr, trace: Option<TraceContext>) -> Context {
    let parent = trace.map(remote).unwrap_or_default();
    span(SpanKind::Server, parent, || {
        attributes([
            ("server.address", "server.port", local),
            ("client.address", "client.port", from),
        ])
    })
}

pub(super) fn trace_of(context: &Context) -> Option<TraceContext> {
    let span = context.span();
    let of = span.span_context();
    let ids = (u128::from_be_bytes(of.trace_id().to_bytes()), of.span_id().to_bytes());
    TraceContext::new(ids.0, u64::from_be_bytes(ids.1), of.trace_flags().to_u8())
}

pub(super) fn call_ended(context: &Context, error: Option<&CallError>) {
    let span = context.span();
    if let Some(error) = error.filter(|_| span.is_recording()) {
        failed(context, kind_of(error), error.to_string());
    }
    span.end();
}

pub(super) fn call_cancelled(context: &Context) {
    context.span().set_attribute(KeyValue::new(OUTCOME, "cancelled"));
    context.span().end();
}

pub(super) fn request_ended(context: &Context, end: RequestEnd) {
    match end {
        RequestEnd::Replied => {}
        RequestEnd::Gone => context.span().set_attribute(KeyValue::new(OUTCOME, "gone")),
        RequestEnd::Dropped => {
            let text = "the request was dropped without an answer".to_owned();
            failed(context, "abandoned".into(), text);
        }
    }
    context.span().end();
}

#[cfg(all(feature = "tower", feature = "tokio"))]
pub(super) fn within<T>(context: &Context, work: impl FnOnce() -> T) -> T {
    let _attached = context.clone().attach();
    work()
}

fn failed(context: &Context, kind: Cow<'static, str>, text: String) {
    context.span().set_attribute(KeyValue::new(ERROR, kind));
    context.span().set_status(Status::error(text));
}

/// The name of an error: that of its variant, as `deadline_exceeded`, or the code of a status.
fn kind_of(error: &CallError) -> Cow<'static, str> {
    if let CallError::Status(status) = error {
        return status.code().name().into();
    }
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    crate::metrics::snake(&text[..end]).into()
}

fn is_other_trace(behalf: &Context, current: &Context) -> bool {
    let (of_behalf, of_current) = (behalf.span(), current.span());
    let of_behalf = of_behalf.span_context();
    of_behalf.is_valid() && of_behalf.trace_id() != of_current.span_context().trace_id()
}

/// A context whose span is that of another process.
fn remote(trace: TraceContext) -> Context {
    let ids = (TraceId::from(trace.trace_id()), SpanId::from(trace.parent_id()));
    let flags = TraceFlags::new(trace.flags());
    let span = SpanContext::new(ids.0, ids.1, flags, true, TraceState::default());
    Context::new().with_remote_span_context(span)
}

fn attributes<const N: usize>(of: [(&'static str, &'static str, SocketAddr); N]) -> Vec<KeyValue> {
    let mut all = vec![KeyValue::new("rpc.system", NAME)];
    for (address, port, at) in of {
        if !at.ip().is_unspecified() {
            all.push(KeyValue::new(address, at.ip().to_canonical().to_string()));
        }
        all.push(KeyValue::new(port, i64::from(at.port())));
    }
    all
}

/// The parent with a new span, or the parent alone if the program has no provider.
fn span(kind: SpanKind, parent: Context, attributes: impl FnOnce() -> Vec<KeyValue>) -> Context {
    /// A provider has made a span. Until then no attributes are collected.
    static PROVIDED: AtomicBool = AtomicBool::new(false);
    let provided = PROVIDED.load(Ordering::Relaxed);
    let scope = InstrumentationScope::builder(NAME).with_version(env!("CARGO_PKG_VERSION"));
    let tracer = global::tracer_with_scope(scope.build());
    let mut builder = SpanBuilder::from_name(NAME).with_kind(kind);
    if provided {
        // Samplers see what is given at the start.
        builder = builder.with_attributes(attributes());
        return parent.with_span(tracer.build_with_context(builder, &parent));
    }
    let mut span = tracer.build_with_context(builder, &parent);
    if !is_new(&span, &parent) {
        return parent;
    }
    PROVIDED.store(true, Ordering::Relaxed);
    span.set_attributes(attributes());
    parent.with_span(span)
}

/// Without a provider, a new span has the ids of its parent, or none.
fn is_new(span: &BoxedSpan, parent: &Context) -> bool {
    let (span, parent) = (span.span_context(), parent.span());
    span.is_valid() && span.span_id() != parent.span_context().span_id()
}
