//! Requests that a `tower` service answers in tasks of a tokio runtime.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homa::proto::wire::datagram::TraceContext;
use homa::tower::{CallRequest, Incoming, serve};
use homa::{CallError, CallOptions, Client, Reply, Server, Status, StatusCode};
use tower::{ServiceBuilder, ServiceExt, service_fn};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

fn bind() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn never(error: Infallible) -> CallError {
    match error {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_onward_call_inherits_through_shared_middleware() {
    let last = bind();
    let to = last.local_addr();
    // Answers with the trace and the remaining time of the request.
    let says = service_fn(|request: Incoming| async move {
        let (trace, left) = (request.trace_context().unwrap(), request.remaining().unwrap());
        Ok::<_, Infallible>(format!("{:x} {}", trace.trace_id(), left.as_millis()))
    });
    let serving_last = serve(last, says).unwrap();

    let first = bind();
    let at = first.local_addr();
    let onward = homa::tower::Server::new(first.engine().client(), to, CallOptions::default());
    let shared = ServiceBuilder::new().concurrency_limit(4).service(onward);
    let passes_on = service_fn(move |request: Incoming| {
        let call = CallRequest::new("onward").on_behalf_of(&request);
        shared.clone().oneshot(call)
    });
    let serving_first = serve(first, passes_on).unwrap();

    let trace = TraceContext::new(0xabc, 1, 1).unwrap();
    let options = CallOptions::deadline(GIVE_UP / 2).trace(trace);
    let said = Client::new().unwrap().call_async_with(at, "hello", &options).await.unwrap();
    let said = String::from_utf8(said.to_vec()).unwrap();
    let (trace, left) = said.split_once(' ').unwrap();
    assert_eq!(trace, "abc");
    // The default of the onward call is 10 s, and the first request has 30 s.
    assert!(left.parse::<u64>().unwrap() <= 10_000, "{left} ms");

    let short = CallOptions::deadline(Duration::from_secs(5)).trace(options.trace.unwrap());
    let said = Client::new().unwrap().call_async_with(at, "hello", &short).await.unwrap();
    let left = String::from_utf8(said.to_vec()).unwrap();
    let left = left.split_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert!(left <= 5_000, "{left} ms although the first request had 5 s");
    serving_first.drain(GIVE_UP).await.unwrap();
    serving_last.drain(GIVE_UP).await.unwrap();
    serving_first.await.unwrap();
    serving_last.await.unwrap();
}

#[tokio::test]
async fn a_service_that_panics_or_fails_ends_only_that_request() {
    let server = bind();
    let to = server.local_addr();
    let service = service_fn(|request: Incoming| {
        assert!(*request != *b"panic before", "as it was asked to");
        async move {
            assert!(*request != *b"panic within", "as it was asked to");
            if *request == *b"fail" { Err("as it was asked to") } else { Ok(request.into_bytes()) }
        }
    });
    let serving = serve(server, service).unwrap();
    let client = Client::new().unwrap();
    for request in ["panic before", "panic within", "fail"] {
        assert_eq!(client.call_async(to, request).await, Err(CallError::Abandoned), "{request}");
        assert_eq!(client.call_async(to, "continues").await.unwrap(), *b"continues");
    }
    serving.drain(GIVE_UP).await.unwrap();
}

#[tokio::test]
async fn a_service_answers_with_a_status_that_the_client_reads() {
    let server = bind();
    let to = server.local_addr();
    let service = service_fn(|request: Incoming| async move {
        let refused = Status::new(StatusCode::ResourceExhausted, "a quota of 3 bytes");
        let answer = if request.len() > 3 { Err(refused) } else { Ok(request.into_bytes()) };
        Ok::<_, Infallible>(Reply::from(answer))
    });
    let serving = serve(server, service).unwrap();
    let options = CallOptions::default().status();
    let client = homa::tower::Server::new(Client::new().unwrap(), to, options);
    assert_eq!(client.clone().oneshot("abc").await.unwrap(), *b"abc");
    let error = client.oneshot("abcd").await.unwrap_err();
    let CallError::Status(status) = &error else { panic!("{error}") };
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    assert_eq!(error.to_string(), "RESOURCE_EXHAUSTED: a quota of 3 bytes");
    // The service has seen the request, so the call is not made again by itself.
    assert!(!error.not_executed() && !error.is_retryable());
    serving.drain(GIVE_UP).await.unwrap();
}

/// Counts how often it is dropped.
struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn work_is_dropped_if_its_client_gives_up() {
    let server = bind();
    let to = server.local_addr();
    let (began, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begins, drops) = (began.clone(), dropped.clone());
    let service = service_fn(move |_: Incoming| {
        let counts = Counts(drops.clone());
        begins.fetch_add(1, Ordering::Relaxed);
        async move {
            std::future::pending::<()>().await;
            drop(counts);
            Ok::<_, Infallible>("never")
        }
    });
    let _serving = serve(server, service).unwrap();
    let call = tokio::spawn(Client::new().unwrap().call_async(to, "for ever"));
    while began.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    call.abort();
    while dropped.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_drain_finishes_what_began_and_refuses_the_rest() {
    let server = bind();
    let to = server.local_addr();
    let (begins, mut began) = tokio::sync::mpsc::unbounded_channel();
    let (ends, ended) = tokio::sync::watch::channel(false);
    let service = service_fn(move |request: Incoming| {
        let mut ended = ended.clone();
        begins.send(()).unwrap();
        async move {
            ended.wait_for(|ended| *ended).await.unwrap();
            Ok::<_, Infallible>(request.into_bytes())
        }
    });
    let serving = Arc::new(serve(server, service.map_err(never)).unwrap());
    let client = Client::new().unwrap();
    let call = client.call_async(to, "began");
    began.recv().await.unwrap();
    let drains = serving.clone();
    let drained = tokio::spawn(async move { drains.drain(GIVE_UP).await });
    // Until the server refuses, a late call waits for the end, too.
    let options = CallOptions::deadline(Duration::from_millis(100));
    while client.call_async_with(to, "late", &options).await != Err(CallError::PortUnreachable) {}
    ends.send(true).unwrap();
    assert_eq!(call.await.unwrap(), *b"began");
    drained.await.unwrap().unwrap();
    Arc::into_inner(serving).unwrap().await.unwrap();
}

#[test]
fn errors_say_what_a_caller_may_do() {
    let busy = CallError::TooManyCalls { max: 1 };
    assert!(busy.is_overloaded() && busy.is_retryable() && busy.not_executed());
    let closed = CallError::PortUnreachable;
    assert!(!closed.is_overloaded() && closed.is_retryable() && closed.not_executed());
    assert!(CallError::Overloaded.is_overloaded() && CallError::Overloaded.is_retryable());
    let long = CallError::RequestTooLong { max: 1 };
    assert!(!long.is_retryable() && long.not_executed());
    for unknown in [CallError::Indeterminate, CallError::DeadlineExceeded, CallError::Unreachable] {
        assert!(!unknown.is_retryable() && !unknown.not_executed(), "{unknown}");
    }
}
