//! Spans of OpenTelemetry as an exporter gets them. The test is a separate program because the
//! provider is global.
#![cfg(all(feature = "opentelemetry", feature = "tower", feature = "tokio"))]

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use homa::tower::{CallRequest, Incoming, serve};
use homa::{CallError, CallOptions, Client, Server, TraceContext};
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceContextExt, TraceId, Tracer};
use opentelemetry::{Context, Value, global};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tower::{ServiceExt, service_fn};

/// Reached only if a test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Spans of all tests, exported as soon as they end.
fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        global::set_tracer_provider(provider);
        exporter
    })
}

/// The spans of a trace, once there are `count`, in the order of their starts.
async fn spans_of(trace: TraceId, count: usize) -> Vec<SpanData> {
    let until = Instant::now() + GIVE_UP;
    loop {
        let mut spans = exporter().get_finished_spans().expect("spans");
        spans.retain(|span| span.span_context.trace_id() == trace);
        if spans.len() >= count || Instant::now() > until {
            assert_eq!(spans.len(), count, "{spans:#?}");
            spans.sort_by_key(|span| span.start_time);
            return spans;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.clone())
}

fn bind() -> Server {
    Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a server")
}

fn id(trace: TraceContext) -> (TraceId, SpanId) {
    (TraceId::from(trace.trace_id()), SpanId::from(trace.parent_id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_server_and_onward_calls_are_one_trace() {
    exporter();
    let (front, back) = (bind(), bind());
    let (at, behind) = (front.local_addr(), back.local_addr());
    let answers = service_fn(|_: Incoming| async { Ok::<_, Infallible>("found") });
    let serving_back = serve(back, answers).expect("a runtime");

    // One call is made by the request's client in another task, where no context is active, one by
    // a service on behalf of the request, and one by a client that has no relation to it.
    let other = Client::new().expect("a client");
    let passes_on = service_fn(move |request: Incoming| {
        let other = other.clone();
        async move {
            let service = homa::tower::Server::new(other.clone(), behind, CallOptions::default());
            let inner = request.client();
            let first = tokio::spawn(async move { inner.call_async(behind, "first").await });
            first.await.expect("no panic")?;
            let second = CallRequest::new("second").on_behalf_of(&request);
            service.oneshot(second).await?;
            other.call_async(behind, "third").await
        }
    });
    let serving_front = serve(front, passes_on).expect("a runtime");

    let user = global::tracer("user").start("user");
    let context = Context::new().with_span(user);
    let user = context.span().span_context().clone();
    let client = Client::new().expect("a client");
    let call = {
        let _active = context.attach();
        client.call_async(at, "all")
    };
    assert_eq!(call.await.expect("a response"), *b"found");

    let spans = spans_of(user.trace_id(), 9).await;
    let by = |kind: SpanKind, parent: SpanId| -> Vec<&SpanData> {
        let wanted = |span: &&SpanData| span.span_kind == kind && span.parent_span_id == parent;
        spans.iter().filter(wanted).collect()
    };
    let [call] = by(SpanKind::Client, user.span_id())[..] else { panic!("{spans:#?}") };
    assert_eq!(attribute(call, "rpc.system"), Some("homa".into()));
    assert_eq!(attribute(call, "server.address"), Some("127.0.0.1".into()));
    assert_eq!(attribute(call, "server.port"), Some(i64::from(at.port()).into()));
    let [request] = by(SpanKind::Server, call.span_context.span_id())[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!(attribute(request, "server.port"), Some(i64::from(at.port()).into()));
    let port = client.engine().local_addr().port();
    assert_eq!(attribute(request, "client.port"), Some(i64::from(port).into()));
    assert!(request.parent_span_is_remote && request.status == Status::Unset, "{request:?}");
    let onward = by(SpanKind::Client, request.span_context.span_id());
    assert_eq!(onward.len(), 3, "{spans:#?}");
    for call in onward {
        assert_eq!(attribute(call, "server.port"), Some(i64::from(behind.port()).into()));
        assert_eq!(by(SpanKind::Server, call.span_context.span_id()).len(), 1, "{spans:#?}");
    }
    serving_front.drain(GIVE_UP).await.expect("drained");
    serving_back.drain(GIVE_UP).await.expect("drained");
}

#[tokio::test]
async fn the_spans_of_a_failed_call_say_why() {
    exporter();
    let (client, server) = (Client::new().expect("a client"), bind());
    let given = TraceContext::new(0xfa11, 7, 1).expect("a trace");
    let options = CallOptions::default().trace(given);

    let call = client.call_async_with(server.local_addr(), "dropped", &options);
    let request = server.accept_async().await.expect("it serves");
    let parent = id(request.trace_context().expect("a trace"));
    drop(request);
    assert_eq!(call.await, Err(CallError::Abandoned));
    let spans = spans_of(id(given).0, 2).await;
    let [call, request] = &spans[..] else { panic!("{spans:#?}") };
    // The span that is sent is that of the call; its parent is the given one.
    assert_eq!((call.parent_span_id, call.span_context.span_id()), (id(given).1, parent.1));
    assert_eq!(request.parent_span_id, parent.1);
    for (span, kind) in [(call, SpanKind::Client), (request, SpanKind::Server)] {
        assert_eq!(span.span_kind, kind);
        assert!(matches!(span.status, Status::Error { .. }), "{span:?}");
        assert_eq!(attribute(span, "error.type"), Some("abandoned".into()));
    }

    // A call that the caller gives up is no error.
    let given = TraceContext::new(0xca11, 7, 1).expect("a trace");
    let call = client.call_async_with(server.local_addr(), "never", &options.trace(given));
    let request = server.accept_async().await.expect("it serves");
    drop(call);
    request.cancelled().await;
    assert!(request.reply("too late").is_err());
    for span in spans_of(id(given).0, 2).await {
        let outcome = attribute(&span, "homa.outcome");
        let client = span.span_kind == SpanKind::Client;
        assert_eq!(outcome, Some(if client { "cancelled" } else { "gone" }.into()));
        assert_eq!(span.status, Status::Unset);
    }

    // A call that is refused here has a span, too.
    let given = TraceContext::new(0x10a9, 7, 0).expect("a trace");
    let long = vec![0; 64 << 20];
    let call = client.call_async_with(server.local_addr(), long, &options.trace(given));
    assert!(matches!(call.await, Err(CallError::MessageTooLong { .. })));
    // The caller did not sample the trace, and neither do we.
    assert!(
        exporter()
            .get_finished_spans()
            .expect("spans")
            .iter()
            .all(|span| { span.span_context.trace_id() != id(given).0 })
    );
}

#[tokio::test]
async fn without_a_span_a_call_begins_a_trace() {
    exporter();
    let (client, server) = (Client::new().expect("a client"), bind());
    let call = client.call_async(server.local_addr(), "hello");
    let request = server.accept_async().await.expect("it serves");
    let (trace, span) = id(request.trace_context().expect("a trace"));
    request.reply("hello").expect("a reply");
    call.await.expect("a response");
    let spans = spans_of(trace, 2).await;
    assert_eq!(spans[0].parent_span_id, SpanId::INVALID);
    assert_eq!((spans[0].span_context.span_id(), spans[1].parent_span_id), (span, span));
}
