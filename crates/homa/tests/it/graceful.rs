//! Servers that are restarted gracefully under load, with real processes: no call that was not
//! executed is reported as one that may have been, unless it began while a server started
//! (docs/operating/upgrade.md).

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::inline::{self, Completion, Wait};
use homa::{CallError, CallOptions, Config, Engine};

use crate::alone::process_of;
use crate::common::engine;

/// Set in the process of the server: its address.
const SERVE_AT: &str = "HOMA_TEST_GRACEFUL_AT";
const RESTARTS: usize = 10;
/// Threads that make calls, each one after the other.
const CALLERS: usize = 8;
/// The pause of a caller to whom no server listens. The system sends at most 1,000 ICMP messages a
/// second, and without one, the next server cannot know what the last one executed.
const PAUSE: Duration = Duration::from_millis(20);
/// A call that begins within one network delay of a server's start may be in doubt. On a busy host
/// the delay is as long as the wait for a processor.
const DELAY: Duration = Duration::from_millis(100);
/// How long each server serves. So calls that are in progress at its end began later than that.
const SERVES: Duration = Duration::from_millis(150);

/// The server's process if [`SERVE_AT`] is set, and otherwise an empty test. It drains when it is
/// told to by a line, and prints what it executed.
#[test]
fn another_process_serves_until_told() {
    let Ok(at) = std::env::var(SERVE_AT) else { return };
    let at: SocketAddr = at.parse().unwrap();
    let engine = Engine::bind(at, Config::default()).unwrap();
    let server = engine.serve().unwrap();
    println!("\nat {}", engine.local_addr());
    std::io::stdout().flush().unwrap();
    let serving = thread::spawn(move || {
        let mut executed = Vec::new();
        while let Some(request) = server.accept() {
            executed.push(u64::from_be_bytes(request[..].try_into().unwrap()));
            let _ = request.reply("done");
        }
        executed
    });
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    let _ = engine.drain(Duration::from_secs(10));
    let executed = serving.join().unwrap();
    drop(engine);
    let executed: Vec<String> = executed.iter().map(u64::to_string).collect();
    println!("executed {}", executed.join(" "));
}

pub struct Server {
    process: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(at: &str) -> (Self, SocketAddr) {
        let mut process = process_of("graceful::another_process_serves_until_told")
            .env(SERVE_AT, at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, orders, lines };
        let at = server.line_after("at ").parse().unwrap();
        (server, at)
    }

    fn line_after(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server's process ended");
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.into();
            }
        }
    }

    /// Ends the process gracefully. Returns what it executed.
    pub fn end(mut self) -> Vec<u64> {
        self.orders.write_all(b"end\n").unwrap();
        let executed = self.line_after("executed");
        let _ = self.process.wait();
        executed.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }
}

/// A call that its client cannot tell the fate of.
struct Unsure {
    id: u64,
    began: Instant,
}

#[test]
fn a_call_that_was_not_executed_is_never_indeterminate() {
    let client = engine("127.0.0.1", Config::default());
    let (first, at) = Server::start("127.0.0.1:0");
    let mut server = Some(first);
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let unsure = Mutex::new(Vec::new());
    let (mut executed, mut starts) = (HashSet::new(), Vec::new());
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let options = CallOptions::deadline(Duration::from_secs(60));
                while !over.load(Ordering::Relaxed) {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let began = Instant::now();
                    match client.client().call_with(at, id.to_be_bytes(), &options) {
                        Ok(_) => {}
                        // Not executed: another server could be tried.
                        Err(CallError::PortUnreachable) => thread::sleep(PAUSE),
                        Err(CallError::Indeterminate) => {
                            unsure.lock().unwrap().push(Unsure { id, began });
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        for _ in 0..RESTARTS {
            thread::sleep(SERVES);
            executed.extend(server.take().unwrap().end());
            // Every caller finds that no server listens.
            thread::sleep(PAUSE);
            let begins = Instant::now();
            server = Some(Server::start(&at.to_string()).0);
            starts.push(begins..Instant::now() + DELAY);
        }
        over.store(true, Ordering::Relaxed);
    });
    executed.extend(server.unwrap().end());
    let mut unsure = unsure.into_inner().unwrap();
    unsure.retain(|call| !executed.contains(&call.id));
    let during = |call: &Unsure| starts.iter().position(|start| start.contains(&call.began));
    let disturbed: HashSet<usize> = unsure.iter().filter_map(during).collect();
    let wrong = unsure.iter().filter(|call| during(call).is_none()).count();
    let (calls, starts) = (next.into_inner(), starts.len());
    println!(
        "of {calls} calls {} unsure and not executed, {disturbed:?} of {starts}",
        unsure.len()
    );
    assert_eq!(wrong, 0, "of {} calls that were not executed", unsure.len());
    assert!(disturbed.len() < starts, "every start left calls in doubt");
    assert!(executed.len() > 100, "{} calls were executed", executed.len());
}

/// The requests lie in the socket of the server when it ends.
#[test]
fn a_server_that_ends_refuses_the_requests_that_it_did_not_read() {
    for at in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let open = |at: &str| {
            inline::Engine::bind(at.parse().unwrap(), Config::default().plaintext()).unwrap()
        };
        let (mut client, mut server) = (open(at), open(at));
        server.listen().unwrap();
        let (to, options) = (server.local_addr(), CallOptions::deadline(Duration::from_secs(60)));
        client.call(to, "first", 0, &options).unwrap();
        while client.next().is_none() {
            client.poll(Wait::No).unwrap();
            server.poll(Wait::No).unwrap();
            if let Some(Completion::Request { id, .. }) = server.next() {
                server.reply(id, "done").unwrap();
            }
        }
        for n in 1..=20 {
            client.call(to, "left in the socket", n, &options).unwrap();
        }
        let before = client.metrics().driver.datagrams_sent;
        while client.metrics().driver.datagrams_sent == before {
            client.flush();
        }
        drop(server);
        let mut ended = 0;
        while ended < 20 {
            client.poll(Wait::Forever).unwrap();
            while let Some(Completion::Response { result, .. }) = client.next() {
                assert_eq!(result, Err(CallError::PortUnreachable), "{at}");
                ended += 1;
            }
        }
    }
}
