//! Engines, runtimes, threads and tasks in random combinations: runtimes of one and two threads,
//! engines that two of them share or none drives, servers of threads and tasks, callers that await,
//! block, or give up, and runtimes that end with all of that in progress. Every call ends with the
//! right response, unless a runtime has taken it along, and every engine drains.
//!
//! A seed repeats the combination, not the order of events. `ARBTEST_BUDGET_MS` makes it longer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use arbtest::arbitrary::{Result, Unstructured};
use homa::{CallError, Client, Config, Engine, Server};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::common::{block_on, echo, engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A runtime, and how it ends.
struct Host {
    number: usize,
    handle: Handle,
    /// It ends after this many calls.
    ends_after: usize,
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
    /// It serves requests.
    serves: bool,
}

impl Host {
    fn draw(u: &mut Unstructured<'_>, number: usize) -> Result<Self> {
        let mut builder = match u.ratio(1, 2)? {
            true => Builder::new_current_thread(),
            false => Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let ends_after = match u.ratio(1, 3)? {
            true => u.int_in_range(0..=60)?,
            false => usize::MAX,
        };
        let (end, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        // Dropping the runtime drops its tasks, with their calls and requests.
        let thread = thread::spawn(move || drop(runtime.block_on(ended)));
        Ok(Self { number, handle, ends_after, end, thread, serves: false })
    }

    fn drive(&self, engine: &Engine) {
        let _inside = self.handle.enter();
        engine.drive_on_tokio().unwrap();
    }

    fn end(self) {
        let _ = self.end.send(());
        self.thread.join().unwrap();
    }
}

/// Who makes calls, and where.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Blocks,
    Awaits,
    AwaitsInTask(usize),
    BlocksInTask(usize),
}

impl Caller {
    fn draw(u: &mut Unstructured<'_>, hosts: &[Host]) -> Result<Self> {
        let host = u.choose_index(hosts.len())?;
        Ok(match u.int_in_range(0..=5)? {
            0 => Self::Blocks,
            1 => Self::Awaits,
            // The requests that a runtime has accepted could not be answered.
            2 if !hosts[host].serves => Self::BlocksInTask(host),
            _ => Self::AwaitsInTask(host),
        })
    }
}

/// What a caller does.
#[derive(Clone)]
struct Calls {
    client: Client,
    to: SocketAddr,
    number: u64,
    calls: u64,
    /// One in this many is given up.
    gives_up: u64,
    /// Calls of all callers that have ended.
    ended: Arc<AtomicUsize>,
    /// A request may be dropped by a runtime that ends.
    forgiving: bool,
}

impl Calls {
    fn request(&self, call: u64) -> Vec<u8> {
        let number = self.number << 32 | call;
        message(if call.is_multiple_of(16) { 70_000 } else { 1 + number as usize % 2_000 }, number)
    }

    fn check(&self, call: u64, response: std::result::Result<homa::Message, CallError>) {
        match response {
            Ok(response) => assert!(response[..] == self.request(call), "another response"),
            Err(CallError::Abandoned) if self.forgiving => {}
            Err(error) => panic!("call {call} of {}: {error}", self.number),
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn block(self) {
        for call in 0..self.calls {
            self.check(call, self.client.call(self.to, self.request(call)));
        }
    }

    async fn make(self) {
        for call in 0..self.calls {
            let mut response = pin!(self.client.call_async(self.to, self.request(call)));
            if call % self.gives_up == self.gives_up - 1 {
                let once = poll_fn(|context| Poll::Ready(response.as_mut().poll(context)));
                drop(once.await);
                self.ended.fetch_add(1, Ordering::Relaxed);
            } else {
                self.check(call, response.await);
            }
        }
    }
}

async fn serve(server: Server) {
    while let Some(mut request) = server.accept_async().await {
        let bytes = request.take_bytes();
        tokio::spawn(request.reply_async(bytes)); // The client may have given up.
    }
}

/// Runs a drawn combination to its end.
fn mix(u: &mut Unstructured<'_>) -> Result<()> {
    let mut hosts = Vec::new();
    for number in 0..u.int_in_range(1..=3)? {
        hosts.push(Host::draw(u, number)?);
    }
    let (mut engines, mut echoes): (Vec<Engine>, Vec<_>) = (Vec::new(), Vec::new());
    let mut driven: Vec<(Engine, usize)> = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        let engine = engine("127.0.0.1", Config::default());
        let server = engine.serve().unwrap();
        if u.ratio(3, 4)? {
            let host = &hosts[u.choose_index(hosts.len())?];
            host.drive(&engine);
            driven.push((engine.clone(), host.number));
        }
        if u.ratio(1, 2)? {
            let host = u.choose_index(hosts.len())?;
            hosts[host].serves = true;
            hosts[host].handle.spawn(serve(server.clone()));
        }
        // It answers if the runtime has ended.
        echoes.push(echo(server));
        engines.push(engine);
    }
    let ended = Arc::new(AtomicUsize::new(0));
    let forgiving = hosts.iter().any(|host| host.serves && host.ends_after < usize::MAX);
    let (mut threads, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..u.int_in_range(2..=6)? {
        let client = engines[u.choose_index(engines.len())?].client();
        let to = engines[u.choose_index(engines.len())?].local_addr();
        let (calls, gives_up) = (u.int_in_range(1..=40)?, u.int_in_range(2..=60)?);
        let calls = Calls { client, to, number, calls, gives_up, ended: ended.clone(), forgiving };
        match Caller::draw(u, &hosts)? {
            Caller::Blocks => threads.push(thread::spawn(|| calls.block())),
            Caller::Awaits => threads.push(thread::spawn(|| block_on(calls.make()))),
            Caller::AwaitsInTask(host) => tasks.push(hosts[host].handle.spawn(calls.make())),
            Caller::BlocksInTask(host) => {
                tasks.push(hosts[host].handle.spawn(async { calls.block() }));
            }
        }
    }
    while threads.iter().any(|thread| !thread.is_finished())
        || tasks.iter().any(|task| !task.is_finished())
    {
        end_one(&mut hosts, &mut driven, ended.load(Ordering::Relaxed));
        thread::sleep(Duration::from_micros(200));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for task in tasks {
        // A task that is dropped with its runtime is no failure, but a panic is.
        if let Err(error) = block_on(task) {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    for engine in &engines {
        assert_eq!(engine.drain(GIVE_UP), Ok(()));
    }
    for echo in echoes {
        echo.join().unwrap();
    }
    hosts.into_iter().for_each(Host::end);
    Ok(())
}

/// Ends a runtime whose time has come, and lets another one drive its engines at once.
fn end_one(hosts: &mut Vec<Host>, driven: &mut [(Engine, usize)], calls: usize) {
    let Some(ends) = hosts.iter().position(|host| host.ends_after <= calls) else { return };
    let number = hosts[ends].number;
    hosts.swap_remove(ends).end();
    let Some(next) = hosts.first() else { return };
    for (engine, by) in driven.iter_mut().filter(|(_, by)| *by == number) {
        next.drive(engine);
        *by = next.number;
    }
}

#[test]
fn mixed_runtimes_threads_and_tasks_lose_no_call() {
    arbtest::arbtest(mix).size_min(256);
}
