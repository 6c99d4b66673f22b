//! Engines that a tokio runtime drives: every call ends, whatever happens to the runtime. If one
//! does not, the test hangs.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Config, Engine, OpenError, Server};
use tokio::runtime::{Builder, Runtime};

use crate::common::{block_on, echo, engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn open() -> Engine {
    engine("127.0.0.1", Config::default())
}

/// Echoes in tasks of the runtime, until the server drains.
async fn serve(server: Server) {
    while let Some(mut request) = server.accept_async().await {
        let bytes = request.take_bytes();
        tokio::spawn(async move {
            let _ = request.reply_async(bytes).await; // The client may have given up.
        });
    }
}

/// Makes calls of different lengths, each in a task, many at a time.
async fn calls(client: &Client, to: SocketAddr, tasks: u64) {
    let each = |task: u64| {
        let client = client.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let number = task * 20 + round;
                let long = number.is_multiple_of(50);
                let length = if long { 100_000 } else { 1 + number as usize % 3000 };
                let request = message(length, number);
                let response = client.call_async(to, request.clone()).await.unwrap();
                assert!(response[..] == request, "the response to call {number} is another");
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(each).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn both_sides_in(runtime: Runtime) {
    runtime.block_on(async {
        let (asks, answers) = (open(), open());
        asks.drive_on_tokio().unwrap();
        answers.drive_on_tokio().unwrap();
        let (to, server) = (answers.local_addr(), answers.serve().unwrap());
        let serving = tokio::spawn(serve(server));
        calls(&asks.client(), to, 64).await;
        tokio::task::spawn_blocking(move || answers.drain(GIVE_UP).unwrap()).await.unwrap();
        serving.await.unwrap();
    });
}

#[test]
fn a_runtime_of_one_thread_drives_client_and_server() {
    both_sides_in(one_thread());
}

#[test]
fn a_runtime_of_two_threads_drives_client_and_server() {
    both_sides_in(two_threads());
}

/// Notes the thread by which it is woken.
struct Notes {
    by: Mutex<Vec<thread::ThreadId>>,
    waker: Waker,
}

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        self.by.lock().unwrap().push(thread::current().id());
        self.waker.wake_by_ref();
    }
}

#[test]
fn the_threads_of_the_runtime_wake_its_tasks() {
    let answers = open();
    let (to, server) = (answers.local_addr(), answers.serve().unwrap());
    let serving = echo(server);
    let by = one_thread().block_on(async {
        let asks = open();
        asks.drive_on_tokio().unwrap();
        let mut by = Vec::new();
        for round in 0..500 {
            let mut call = pin!(asks.client().call_async(to, message(100, round)));
            let mut notes = None;
            let response = std::future::poll_fn(|context| {
                let waker = context.waker().clone();
                let notes =
                    notes.get_or_insert_with(|| Arc::new(Notes { by: Mutex::default(), waker }));
                call.as_mut().poll(&mut Context::from_waker(&notes.clone().into()))
            });
            response.await.unwrap();
            by.append(&mut notes.unwrap().by.lock().unwrap());
        }
        by
    });
    let here = by.iter().filter(|&&by| by == thread::current().id()).count();
    assert!(here > by.len() / 2, "{here} of {} wake-ups by the runtime", by.len());
    answers.drain(GIVE_UP).unwrap();
    serving.join().unwrap();
}

#[test]
fn timers_run_although_nothing_arrives() {
    let silent = open();
    let _server = silent.serve().unwrap();
    one_thread().block_on(async {
        let asks = open();
        asks.drive_on_tokio().unwrap();
        let options = CallOptions::deadline(Duration::from_millis(50));
        let call = asks.client().call_async_with(silent.local_addr(), "a question", &options);
        assert_eq!(call.await, Err(CallError::DeadlineExceeded));
    });
}

#[test]
fn an_address_that_is_opened_later_is_watched_too() {
    one_thread().block_on(async {
        let (asks, answers) = (open(), open());
        asks.drive_on_tokio().unwrap();
        answers.drive_on_tokio().unwrap();
        for _ in 0..3 {
            let server = answers.serve_at("127.0.0.1:0".parse().unwrap()).unwrap();
            let to = server.local_addr();
            let serving = tokio::spawn(serve(server));
            calls(&asks.client(), to, 2).await;
            serving.abort();
            let _ = serving.await;
        }
    });
}

#[test]
fn other_threads_get_their_responses_while_a_task_blocks() {
    let (shared, answers) = (open(), open());
    let (to, serving) = (answers.local_addr(), echo(answers.serve().unwrap()));
    let (client, outside) = (shared.client(), shared.client());
    let (blocks, starts) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let foreign = thread::spawn(move || {
        starts.recv().unwrap();
        assert_eq!(block_on(outside.call_async(to, "from outside")).unwrap(), *b"from outside");
        ends.send(()).unwrap();
    });
    one_thread().block_on(async move {
        shared.drive_on_tokio().unwrap();
        calls(&client, to, 8).await;
        blocks.send(()).unwrap();
        ended.recv().unwrap();
        calls(&client, to, 8).await;
    });
    foreign.join().unwrap();
    answers.drain(GIVE_UP).unwrap();
    serving.join().unwrap();
}

#[test]
fn messages_leave_although_the_task_that_sent_them_blocks() {
    const CALLS: usize = 40;
    let answers = open();
    let (to, server) = (answers.local_addr(), answers.serve().unwrap());
    let arrived = Arc::new(AtomicUsize::new(0));
    let counts = arrived.clone();
    let serving = thread::spawn(move || {
        while let Some(request) = server.accept() {
            let bytes = request.to_vec();
            counts.fetch_add(usize::from(bytes == b"counted"), Ordering::Relaxed);
            let _ = request.reply(bytes);
        }
    });
    one_thread().block_on(async {
        let asks = open();
        asks.drive_on_tokio().unwrap();
        // From now on the engine lets messages wait for each other.
        calls(&asks.client(), to, 64).await;
        let started: Vec<_> = (0..CALLS).map(|_| asks.client().call_async(to, "counted")).collect();
        while arrived.load(Ordering::Relaxed) < CALLS {
            thread::sleep(Duration::from_millis(1));
        }
        for call in started {
            assert_eq!(call.await.unwrap(), *b"counted");
        }
    });
    answers.drain(GIVE_UP).unwrap();
    serving.join().unwrap();
}

fn survives(runtime: impl Fn() -> Runtime) {
    let (asks, answers) = (open(), open());
    let (to, server) = (answers.local_addr(), answers.serve().unwrap());
    let first = runtime();
    let mut left = first.block_on(async {
        asks.drive_on_tokio().unwrap();
        let mut left: Vec<_> =
            (0..20u32).map(|n| Box::pin(asks.client().call_async(to, n.to_be_bytes()))).collect();
        for call in &mut left {
            let once = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context)));
            assert!(once.await.is_pending(), "nothing answers yet");
        }
        tokio::spawn(asks.client().call_async(to, "dropped with the runtime"));
        left
    });
    drop(first);
    let serving = echo(server);
    for (n, call) in left.drain(..).enumerate() {
        assert_eq!(block_on(call).unwrap()[..], (n as u32).to_be_bytes());
    }
    // Another runtime can drive it then.
    runtime().block_on(async {
        asks.drive_on_tokio().unwrap();
        calls(&asks.client(), to, 8).await;
    });
    answers.drain(GIVE_UP).unwrap();
    serving.join().unwrap();
}

#[test]
fn calls_in_flight_outlive_a_runtime_of_one_thread() {
    survives(one_thread);
}

#[test]
fn calls_in_flight_outlive_a_runtime_of_two_threads() {
    survives(two_threads);
}

#[test]
fn two_runtimes_share_an_engine_that_one_of_them_drives() {
    let (shared, answers) = (open(), open());
    let (to, serving) = (answers.local_addr(), echo(answers.serve().unwrap()));
    let (drives, beside) = (two_threads(), one_thread());
    drives.block_on(async { shared.drive_on_tokio().unwrap() });
    beside.block_on(async {
        assert!(matches!(shared.drive_on_tokio(), Err(OpenError::Driven)));
    });
    thread::scope(|scope| {
        for runtime in [&drives, &beside] {
            scope.spawn(|| runtime.block_on(calls(&shared.client(), to, 32)));
        }
    });
    drop(drives);
    beside.block_on(calls(&shared.client(), to, 8));
    beside.block_on(async { shared.drive_on_tokio().unwrap() });
    beside.block_on(calls(&shared.client(), to, 8));
    answers.drain(GIVE_UP).unwrap();
    serving.join().unwrap();
}

#[test]
fn threads_and_tasks_share_engines_that_a_runtime_drives() {
    let (one, other) = (open(), open());
    let runtime = two_threads();
    let (here, there) = (one.serve().unwrap(), other.serve().unwrap());
    let echoes = [echo(here.clone()), echo(there.clone())];
    runtime.block_on(async {
        one.drive_on_tokio().unwrap();
        other.drive_on_tokio().unwrap();
        tokio::spawn(serve(here));
        tokio::spawn(serve(there));
    });
    thread::scope(|scope| {
        for (client, to) in [(one.client(), other.local_addr()), (other.client(), one.local_addr())]
        {
            let (blocking, awaiting) = (client.clone(), client.clone());
            scope.spawn(move || {
                for round in 0..300 {
                    let request = message(1 + round as usize * 7, round);
                    assert!(blocking.call(to, request.clone()).unwrap()[..] == request);
                }
            });
            scope.spawn(move || {
                for round in 0..300 {
                    let request = message(1 + round as usize * 11, round);
                    assert!(
                        block_on(awaiting.call_async(to, request.clone())).unwrap()[..] == request
                    );
                }
            });
            let handle = runtime.handle();
            scope.spawn(move || handle.block_on(calls(&client, to, 16)));
        }
    });
    for engine in [one, other] {
        engine.drain(GIVE_UP).unwrap();
    }
    for echo in echoes {
        echo.join().unwrap();
    }
}

#[test]
fn an_engine_that_is_dropped_leaves_no_task_and_no_socket() {
    for runtime in [one_thread(), two_threads()] {
        runtime.block_on(async {
            let engine = open();
            let at = engine.local_addr();
            engine.drive_on_tokio().unwrap();
            tokio::task::yield_now().await;
            drop(engine);
            Engine::bind(at, Config::default()).unwrap();
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn without_a_runtime_there_is_an_error() {
    assert!(matches!(open().drive_on_tokio(), Err(OpenError::NoRuntime)));
}
