//! Servers that hand their place over to the next process, with real processes, under load, on a
//! path that repeats datagrams: every call is answered, and executed once.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::handover::{Handover, HandoverError};
use homa::{CallError, CallOptions, Client, Config, Engine, OpenError, Server};

use crate::alone::process_of;
use crate::common::{echo, engine};

/// Set in the process of the server: the file by which it takes over and hands over.
const FILE: &str = "HOMA_TEST_HANDOVER_FILE";
/// Set if the engines have keys.
const KEYS: &str = "HOMA_TEST_HANDOVER_KEYS";
/// The call that tells a server to hand over.
const END: u64 = u64::MAX;
const CALLERS: usize = 6;

fn config(keys: bool) -> Config {
    let config = Config::default();
    #[cfg(feature = "encryption")]
    if keys {
        return config.keys(homa::Keys::cluster([7; 32]).unwrap());
    }
    let _ = keys;
    config
}

/// The server's process if [`FILE`] is set, and otherwise an empty test. Its socket is its standard
/// input. It prints what it executed.
#[test]
fn another_process_takes_over_and_hands_over() {
    let Ok(file) = std::env::var(FILE) else { return };
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().unwrap();
    let before = Handover::take(&file).unwrap();
    let config = config(std::env::var_os(KEYS).is_some()).handover(before);
    let server = Server::from_socket(socket, config).unwrap();
    let mut executed = Vec::new();
    let mut end = None;
    while let Some(request) = server.accept() {
        let id = u64::from_be_bytes(request[..].try_into().unwrap());
        if id == END {
            let engine = server.engine().clone();
            end = Some(thread::spawn(move || engine.hand_over(Duration::from_secs(30))));
        } else {
            executed.push(id);
        }
        let _ = request.reply("done");
    }
    let handover = end.expect("it was told to end").join().unwrap().unwrap();
    assert_eq!(handover.unfinished(), None);
    handover.save(&file).unwrap();
    let executed: Vec<String> = executed.iter().map(u64::to_string).collect();
    println!("\nexecuted {}", executed.join(" "));
    io::stdout().flush().unwrap();
}

struct Successor {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Successor {
    fn start(socket: &UdpSocket, file: &Path, keys: bool) -> Self {
        let socket: OwnedFd = socket.try_clone().unwrap().into();
        let mut command = process_of("handover::another_process_takes_over_and_hands_over");
        if keys {
            command.env(KEYS, "1");
        }
        command.env(FILE, file).stdin(Stdio::from(socket)).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// What it executed, once it has handed over.
    fn ended(mut self) -> Vec<u64> {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server's process ended");
            if let Some(executed) = line.trim_end().strip_prefix("executed") {
                let _ = self.process.wait();
                return executed.split_whitespace().map(|id| id.parse().unwrap()).collect();
            }
        }
    }
}

/// The process is killed if an assertion fails.
impl Drop for Successor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Carries datagrams of one client to a server and back. It repeats what it carries to the server:
/// at once, and again after a while.
fn repeat(path: &UdpSocket, server: SocketAddr, over: &AtomicBool) {
    const LATER: Duration = Duration::from_millis(150);
    let out = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [path, &out] {
        socket.set_nonblocking(true).unwrap();
    }
    let (mut client, mut buffer) = (None, vec![0; 65_536]);
    let mut again: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    while !over.load(Ordering::Relaxed) {
        let mut idle = true;
        while let Ok((n, from)) = path.recv_from(&mut buffer) {
            (client, idle) = (Some(from), false);
            for _ in 0..2 {
                let _ = out.send_to(&buffer[..n], server);
            }
            // A sample, so that the queue of the server does not overflow while none reads it.
            if again.len() < 200 {
                again.push_back((Instant::now() + LATER, buffer[..n].to_vec()));
            }
        }
        while let (Ok((n, _)), Some(client)) = (out.recv_from(&mut buffer), client) {
            idle = false;
            let _ = path.send_to(&buffer[..n], client);
        }
        while again.front().is_some_and(|(at, _)| *at <= Instant::now()) {
            let _ = again.pop_front().map(|(_, copy)| out.send_to(&copy, server));
        }
        if idle {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A file of this test that is removed at its end.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("homa-{name}-{}", std::process::id())))
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sets a flag at the end, also if an assertion fails.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every call through `handovers` handovers is answered and executed once.
fn loses_nothing(handovers: usize, keys: bool) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (server, at) = (socket.local_addr().unwrap(), path.local_addr().unwrap());
    let file = TestFile::new(if keys { "sealed" } else { "plain" });
    let client = engine("127.0.0.1", config(keys));
    let (next, over, ended) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let mut executed: HashMap<u64, usize> = HashMap::new();
    let options = CallOptions::deadline(Duration::from_secs(60));
    thread::scope(|scope| {
        let _ends = [Sets(&ended), Sets(&over)];
        scope.spawn(|| repeat(&path, server, &ended));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        let answer = client.client().call_with(at, id.to_be_bytes(), &options);
                        assert_eq!(answer.map(|_| ()), Ok(()), "call {id}");
                        thread::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        for n in 0..=handovers {
            let process = Successor::start(&socket, &file.0, keys);
            // It executes some, whatever the speed of this machine.
            let so_far = next.load(Ordering::Relaxed);
            while next.load(Ordering::Relaxed) < so_far + 2 * CALLERS as u64 {
                thread::sleep(Duration::from_millis(1));
                assert!(callers.iter().all(|caller| !caller.is_finished()), "handover {n}");
            }
            if n == handovers {
                over.store(true, Ordering::Relaxed);
                while callers.iter().any(|caller| !caller.is_finished()) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            client.client().call_with(at, END.to_be_bytes(), &options).unwrap();
            process.ended().into_iter().for_each(|id| *executed.entry(id).or_default() += 1);
        }
    });
    let calls = next.into_inner();
    let twice = executed.values().filter(|times| **times > 1).count();
    println!("{calls} calls, {} executed, {twice} twice", executed.len());
    assert_eq!((executed.len() as u64, twice), (calls, 0));
}

#[test]
fn twenty_five_handovers_lose_and_repeat_no_call() {
    loses_nothing(25, false);
}

#[cfg(feature = "encryption")]
#[test]
fn handovers_of_encrypted_engines_lose_and_repeat_no_call() {
    loses_nothing(5, true);
}

/// The error counts the unfinished requests, and the calls of their clients end.
#[test]
fn a_handover_ends_although_a_request_is_never_answered() {
    let server = engine("127.0.0.1", Config::default());
    let (to, accepting) = (server.local_addr(), server.serve().unwrap().concurrency(1));
    let client = Client::new().unwrap();
    let call = |text: &'static str| {
        let client = client.clone();
        thread::spawn(move || client.call(to, text))
    };
    let stuck = call("stuck");
    let held = accepting.accept().unwrap();
    let waiting = call("waits, and is not begun");
    while server.metrics().engine.requests_in_progress < 2 {
        thread::sleep(Duration::from_millis(1));
    }
    let handover = server.hand_over(Duration::from_millis(50)).unwrap();
    assert_eq!(handover.unfinished().map(|left| (left.calls, left.requests)), Some((0, 2)));
    assert!(accepting.accept().is_none());
    assert_eq!(waiting.join().unwrap(), Err(CallError::PortUnreachable));
    assert_eq!(held.reply("too late").unwrap_err().error, homa::ReplyError::Gone);
    assert_eq!(server.client().call(to, "x"), Err(CallError::ShuttingDown));
    assert!(matches!(server.hand_over(Duration::ZERO), Err(HandoverError::Ended)));
    drop((server, accepting));
    let next = Engine::bind(to, Config::default().handover(handover)).unwrap();
    let serving = echo(next.serve().unwrap());
    assert_eq!(stuck.join().unwrap(), Err(CallError::Indeterminate));
    next.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(serving.join().unwrap(), 0, "neither is executed again");
}

/// A task of the only thread answers while another hands over.
#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_handover_lets_the_tasks_of_its_thread_answer() {
    let server = engine("127.0.0.1", Config::default());
    server.drive_on_tokio().unwrap();
    let accepting = server.serve().unwrap();
    let client = engine("127.0.0.1", Config::default());
    client.drive_on_tokio().unwrap();
    let call = client.client().call_async(accepting.local_addr(), "work");
    let request = accepting.accept_async().await.unwrap();
    let answering = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        request.reply("done").unwrap();
    });
    let handover = server.hand_over_async(Duration::from_secs(5)).await.unwrap();
    assert_eq!(handover.unfinished(), None);
    answering.await.unwrap();
    assert_eq!(call.await.unwrap(), *b"done");
    let again = server.hand_over_async(Duration::ZERO).await;
    assert!(matches!(again, Err(HandoverError::Ended)));
}

/// The same with a group of engines that drains.
#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_sharded_engine_drains_beside_the_tasks_of_its_thread() {
    let sharded = Engine::sharded("127.0.0.1:0".parse().unwrap(), 2, Config::default()).unwrap();
    let accepted = std::sync::Arc::new(AtomicU64::new(0));
    let serving: Vec<_> = sharded
        .serve()
        .unwrap()
        .into_iter()
        .map(|server| {
            server.engine().drive_on_tokio().unwrap();
            let accepted = accepted.clone();
            tokio::spawn(async move {
                while let Some(request) = server.accept_async().await {
                    accepted.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        request.reply("done").unwrap();
                    });
                }
            })
        })
        .collect();
    let calls: Vec<_> =
        (0..4).map(|_| Client::new().unwrap().call_async(sharded.local_addr(), "work")).collect();
    while accepted.load(Ordering::Relaxed) < 4 {
        tokio::task::yield_now().await;
    }
    sharded.drain_async(Duration::from_secs(5)).await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap(), *b"done");
    }
    for task in serving {
        task.await.unwrap();
    }
}

#[test]
fn a_handover_is_used_once_and_read_by_its_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let file = TestFile::new("once");
    assert!(Handover::take(&file.0).unwrap().is_none());
    let handover = engine("127.0.0.1", Config::default()).hand_over(Duration::ZERO).unwrap();
    handover.save(&file.0).unwrap();
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Handover::take(&file.0).unwrap(), Some(handover.clone()));
    assert!(Handover::take(&file.0).unwrap().is_none());
    std::fs::write(&file.0, "no handover").unwrap();
    assert!(matches!(Handover::take(&file.0), Err(HandoverError::Invalid)));
    let nowhere = Handover::take("/dev/null/x").unwrap_err();
    assert!(nowhere.to_string().contains("/dev/null/x"), "{nowhere}");
    let elsewhere = Config::default().handover(handover.clone());
    let elsewhere = Engine::bind("127.0.0.1:0".parse().unwrap(), elsewhere).unwrap_err();
    assert!(elsewhere.to_string().contains("at its own address"), "{elsewhere}");
    let sharded =
        Engine::sharded("127.0.0.1:0".parse().unwrap(), 2, Config::default().handover(handover));
    assert!(matches!(sharded, Err(OpenError::Handover(HandoverError::Sharded))));
    let sharded = Engine::sharded("127.0.0.1:0".parse().unwrap(), 2, Config::default()).unwrap();
    let engine = sharded.engines().next().unwrap();
    assert!(matches!(engine.hand_over(Duration::ZERO), Err(HandoverError::Sharded)));
}
