//! Spans of calls and requests: those of `tracing`, and with feature `opentelemetry` those of
//! OpenTelemetry, which do not depend on the levels of `tracing`.
//!
//! Invariant: the trace that is sent with a request is that of a span that exists, or the one that
//! was given. No id is invented.

#[cfg(not(feature = "opentelemetry"))]
#[path = "off.rs"]
mod otel;
#[cfg(feature = "opentelemetry")]
mod otel;

use std::net::SocketAddr;

use homa_proto::wire::datagram::TraceContext;
use tracing::Span;
use tracing::field::Empty;

use crate::error::CallError;

pub(crate) use otel::Context;

/// The spans of a call, from its start to its end.
#[derive(Debug)]
pub(crate) struct CallSpan {
    span: Span,
    context: Context,
}

impl CallSpan {
    /// A call begins, perhaps with a trace in its options, perhaps on behalf of a request.
    pub(crate) fn begin(
        to: SocketAddr,
        bytes: usize,
        given: Option<TraceContext>,
        behalf: Option<&Context>,
    ) -> Self {
        // `rpc` is the id in the format of `homa pcap`. If no subscriber is active, this costs one
        // atomic load.
        let span = tracing::debug_span!("homa_call", rpc = Empty, peer = %to, bytes, trace = Empty);
        Self { span, context: otel::call(to, given, behalf) }
    }

    /// The span of `tracing`.
    pub(crate) fn tracing(&self) -> &Span {
        &self.span
    }

    /// The trace that the request belongs to, if OpenTelemetry knows one.
    pub(crate) fn sent(&self) -> Option<TraceContext> {
        otel::trace_of(&self.context)
    }

    /// The call has ended.
    pub(crate) fn ended(&self, error: Option<&CallError>) {
        otel::call_ended(&self.context, error);
    }

    /// The caller no longer waits.
    pub(crate) fn cancelled(&self) {
        otel::call_cancelled(&self.context);
    }
}

/// The spans of a request at its server, from the accept to the answer.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    span: Span,
    context: Context,
}

/// How a request ended at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Replied,
    /// The client had given up before the reply.
    Gone,
    /// It was dropped without an answer.
    Dropped,
}

impl RequestSpan {
    /// A request was accepted.
    pub(crate) fn begin(
        rpc: u64,
        from: SocketAddr,
        local: SocketAddr,
        bytes: usize,
        trace: Option<TraceContext>,
    ) -> Self {
        // If no subscriber is active, this costs one atomic load.
        let span = tracing::debug_span!(
            "homa_request",
            rpc = format_args!("{rpc:#x}"),
            peer = %from,
            bytes,
            trace = trace.map(tracing::field::display),
            outcome = Empty
        );
        Self { span, context: otel::request(from, local, trace) }
    }

    /// The span of `tracing`.
    pub(crate) fn tracing(&self) -> &Span {
        &self.span
    }

    /// The context of OpenTelemetry, with the request's span.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Runs a part of the work for the request in its context.
    #[cfg(all(feature = "tower", feature = "tokio"))]
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        otel::within(&self.context, work)
    }

    /// The request has ended.
    pub(crate) fn ended(&self, end: RequestEnd) {
        let outcome = match end {
            RequestEnd::Replied => "replied",
            RequestEnd::Gone => "gone",
            RequestEnd::Dropped => "dropped",
        };
        self.span.record("outcome", outcome);
        otel::request_ended(&self.context, end);
    }
}
