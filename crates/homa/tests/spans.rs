//! Spans of requests as a subscriber of `tracing` sees them, from the accept to the end. The test
//! is a program of its own because the subscriber is global.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use homa::{CallError, Config, Engine, ReplyError, Request, Server};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span of a request.
#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<&'static str, String>,
    handles: usize,
    entered: usize,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Fields of the spans of calls.
static CALLS: Mutex<BTreeMap<u64, Seen>> = Mutex::new(BTreeMap::new());

/// The client's engine.
static ENGINE: OnceLock<Engine> = OnceLock::new();

static REQUESTS: Mutex<BTreeMap<u64, Seen>> = Mutex::new(BTreeMap::new());

/// A subscriber that records the spans of requests.
struct Keeper(AtomicU64);

fn change(id: &Id, change: impl FnOnce(&mut Seen)) {
    let mut requests = REQUESTS.lock().expect("no panic");
    if let Some(seen) = requests.get_mut(&id.into_u64()) {
        change(seen);
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.fetch_add(1, Ordering::SeqCst);
        if span.metadata().name() == "homa_request" {
            let mut seen = Seen { handles: 1, ..Seen::default() };
            span.record(&mut seen);
            REQUESTS.lock().expect("no panic").insert(id, seen);
        } else if span.metadata().name() == "homa_call" {
            let mut seen = Seen::default();
            span.record(&mut seen);
            CALLS.lock().expect("no panic").insert(id, seen);
        }
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        // A subscriber may use the engine.
        if let Some(engine) = ENGINE.get() {
            engine.metrics();
        }
        change(id, |seen| values.record(seen));
        if let Some(seen) = CALLS.lock().expect("no panic").get_mut(&id.into_u64()) {
            values.record(seen);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        change(id, |seen| seen.entered += 1);
    }

    fn exit(&self, id: &Id) {
        change(id, |seen| seen.entered -= 1);
    }

    fn clone_span(&self, id: &Id) -> Id {
        change(id, |seen| seen.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        change(&id, |seen| seen.handles -= 1);
        true
    }
}

/// Returns the span of the last request.
fn latest() -> Seen {
    let requests = REQUESTS.lock().expect("no panic");
    requests.values().next_back().expect("a request").clone()
}

/// Asserts that the span of the last request has ended with this outcome.
fn assert_over(outcome: &str) {
    let seen = latest();
    let said = seen.fields.get("outcome").map(String::as_str);
    assert_eq!((seen.handles, said), (0, Some(&*format!("{outcome:?}"))), "{seen:?}");
}

fn accept(server: &Server, bytes: usize) -> Request {
    let request = server.accept().expect("it serves");
    let seen = latest();
    assert_eq!(seen.fields["peer"], request.from().to_string());
    assert_eq!(seen.fields["bytes"], bytes.to_string());
    // Both sides name the RPC as `homa pcap` does, and each other as metrics do.
    let calls = CALLS.lock().expect("no panic");
    let call = calls.values().next_back().expect("a call");
    assert_eq!(call.fields["rpc"], seen.fields["rpc"]);
    let digits = seen.fields["rpc"].strip_prefix("0x").expect("hexadecimal");
    assert!(u64::from_str_radix(digits, 16).is_ok_and(|id| id > 0 && id % 2 == 0), "{digits}");
    assert_eq!(call.fields["peer"], server.local_addr().to_string());
    drop(calls);
    assert_eq!((seen.handles, seen.fields.get("outcome")), (1, None), "open: {seen:?}");
    request
}

#[test]
fn a_request_has_a_span_from_its_accept_to_its_end() {
    tracing::subscriber::set_global_default(Keeper(AtomicU64::new(1))).expect("the first one");
    let server = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a server");
    let engine = Engine::bind("127.0.0.1:0".parse().expect("an address"), Config::default());
    let client = ENGINE.get_or_init(|| engine.expect("an engine")).client();
    let wait = |call| tokio::runtime::Runtime::new().expect("a runtime").block_on(call);

    // The request is answered after a reply that was refused.
    let call = client.call_async(server.local_addr(), "four");
    let request = accept(&server, 4);
    request.span().in_scope(|| assert_eq!(latest().entered, 1));
    assert_eq!(latest().entered, 0);
    let refused = request.reply(vec![1; 64 << 20]).expect_err("too long");
    assert!(matches!(refused.error, ReplyError::MessageTooLong { .. }), "{refused}");
    assert_eq!((latest().handles, latest().fields.get("outcome")), (1, None));
    refused.request.reply("short").expect("a reply");
    assert_over("replied");
    assert_eq!(&*wait(call).expect("a response"), b"short");

    // The request is dropped while the application is in the span.
    let call = client.call_async(server.local_addr(), "dropped");
    let request = accept(&server, 7);
    let entered = request.span().entered();
    drop(request);
    assert_eq!((latest().handles, latest().entered), (1, 1));
    drop(entered);
    assert_over("dropped");
    assert!(matches!(wait(call), Err(CallError::Abandoned)));

    // The client gives up.
    let call = client.call_async(server.local_addr(), "never mind");
    let request = accept(&server, 10);
    drop(call);
    let give_up = Instant::now() + Duration::from_secs(60);
    while !request.is_cancelled() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    let gone = request.reply("too late").expect_err("the client gave up");
    assert!(matches!(gone.error, ReplyError::Gone), "{gone}");
    drop(gone);
    assert_over("gone");
}
