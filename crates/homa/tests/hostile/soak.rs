//! Clients call for hours over a network that loses and repeats packets, during a trickle of every
//! attack. No call may be lost or run twice, and memory must not grow.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use homa::{CallOptions, Config, Server};

use super::attacks::{HOSTS, OTHERS, PRESSURE};
use super::common::{engine, message};
use super::host::Host;
use super::pressure::host;

/// The lengths of the messages of each caller. Each caller is behind its own relay.
const CALLERS: [usize; 4] = [100, 2_000, 50_000, 1_000_000];
/// One of this many packets is lost, and one is repeated late.
const LOST: u64 = 100;
const LATE: Duration = Duration::from_millis(300);
/// The time between two packets of an attack.
const TRICKLE: Duration = Duration::from_millis(5);
/// The time between two calls of a caller. It is longer after long calls, to leave time for other
/// work.
const PAUSE: Duration = Duration::from_millis(20);
/// A call that takes longer is lost.
const GIVE_UP: Duration = Duration::from_secs(30);
/// The length of responses to strangers.
const GENEROUS: usize = 1 << 20;

/// Forwards datagrams in both directions. It drops some, and repeats others.
struct Relay {
    to_client: UdpSocket,
    to_server: UdpSocket,
    client: Mutex<Option<SocketAddr>>,
    lost: AtomicU64,
}

impl Relay {
    fn new(server: SocketAddr) -> Self {
        let open = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            socket
        };
        let (to_client, to_server) = (open(), open());
        to_server.connect(server).unwrap();
        Self { to_client, to_server, client: Mutex::default(), lost: AtomicU64::new(0) }
    }

    /// Forwards datagrams from one side until `over` is set.
    fn pass(&self, seed: u64, over: &AtomicBool, from_client: bool) {
        let (mut bytes, mut random) = (vec![0; 65_536], seed);
        let mut late = VecDeque::<(Instant, Vec<u8>)>::new();
        let from = if from_client { &self.to_client } else { &self.to_server };
        while !over.load(Ordering::Relaxed) {
            while late.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                late.pop_front().iter().for_each(|(_, copy)| self.send(copy, from_client));
            }
            let Ok((len, source)) = from.recv_from(&mut bytes) else { continue };
            if from_client {
                *self.client.lock().unwrap() = Some(source);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match (random >> 33) % LOST {
                0 => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
                1 => {
                    late.push_back((Instant::now() + LATE, bytes[..len].to_vec()));
                    self.send(&bytes[..len], from_client);
                }
                _ => self.send(&bytes[..len], from_client),
            }
        }
    }

    /// Sends a datagram to the other side. It is lost if the socket's buffer is full.
    fn send(&self, bytes: &[u8], to_server: bool) {
        if to_server {
            let _ = self.to_server.send(bytes);
        } else if let Some(client) = *self.client.lock().unwrap() {
            let _ = self.to_client.send_to(bytes, client);
        }
    }
}

/// The calls that ran.
#[derive(Default)]
struct Ran {
    /// The number of the last call of each caller.
    last: [AtomicU64; CALLERS.len()],
    /// Calls that ran twice, or in a wrong order.
    wrong: AtomicU64,
}

/// Echoes the requests of callers, and answers strangers with longer responses.
fn serve(server: Server, ran: &Arc<Ran>) {
    let ran = ran.clone();
    thread::spawn(move || {
        while let Some(mut request) = server.accept() {
            let bytes = request.take_bytes();
            let number = |at| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().unwrap()));
            match number(0).and_then(|caller| ran.last.get(caller as usize)).zip(number(8)) {
                Some((last, call)) => {
                    let before = last.swap(call, Ordering::Relaxed);
                    ran.wrong.fetch_add(u64::from(call != before + 1), Ordering::Relaxed);
                    let _ = request.reply(bytes);
                }
                None => drop(request.reply(vec![7; GENEROUS])),
            }
        }
    });
}

/// Makes calls one after the other until `over` is set. Returns how many.
fn call(caller: usize, to: SocketAddr, ran: &Ran, over: &AtomicBool) -> u64 {
    let client = engine("127.0.0.1", Config::default()).client();
    let mut bytes = message(CALLERS[caller], caller as u64);
    bytes[..8].copy_from_slice(&(caller as u64).to_le_bytes());
    for n in 1u64.. {
        bytes[8..16].copy_from_slice(&n.to_le_bytes());
        let answer = client.call_with(to, bytes.clone(), &CallOptions::deadline(GIVE_UP));
        let answer = answer.unwrap_or_else(|error| panic!("call {n} of {caller}: {error}"));
        assert!(answer == bytes[..], "call {n} of {caller} has another's answer");
        assert_eq!(ran.last[caller].load(Ordering::Relaxed), n, "an answer without an execution");
        if over.load(Ordering::Relaxed) {
            return n;
        }
        thread::sleep(PAUSE + Duration::from_nanos(100 * bytes.len() as u64));
    }
    unreachable!("numbers end")
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn soak() {
    let seconds = std::env::var("HOMA_SOAK").map_or(Ok(6), |text| text.parse());
    let lasts = Duration::from_secs(seconds.expect("HOMA_SOAK is a number of seconds"));
    let ran = Arc::<Ran>::default();
    let [over, closed] = [0; 2].map(|_| AtomicBool::new(false));
    let server = engine("127.0.0.1", Config::default());
    serve(server.serve().unwrap(), &ran);
    let relays = CALLERS.map(|_| Relay::new(server.local_addr()));
    let mut hosts: Vec<Host> = (0..HOSTS).map(|n| host(n, server.local_addr())).collect();
    let begun = Instant::now();
    // The peaks of memory in each quarter of the time.
    let mut most = [0; 4];
    let calls: Vec<u64> = thread::scope(|scope| {
        for (relay, seed) in relays.iter().zip((1u64..).step_by(2)) {
            let closed = &closed;
            scope.spawn(move || relay.pass(seed, closed, true));
            scope.spawn(move || relay.pass(seed + 1, closed, false));
        }
        scope.spawn(|| {
            for n in 0.. {
                for attack in PRESSURE.iter().chain(&OTHERS) {
                    (attack.send)(&mut hosts, n);
                }
                thread::sleep(TRICKLE);
                if closed.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let to = |caller: usize| relays[caller].to_client.local_addr().unwrap();
        let (ran, over) = (&ran, &over);
        let callers: Vec<_> = (0..CALLERS.len())
            .map(|caller| scope.spawn(move || call(caller, to(caller), ran, over)))
            .collect();
        while begun.elapsed() < lasts && !callers.iter().any(|caller| caller.is_finished()) {
            thread::sleep(Duration::from_millis(100));
            let quarter = (4.0 * begun.elapsed().as_secs_f64() / lasts.as_secs_f64()) as usize;
            let most = &mut most[quarter.min(3)];
            *most = resident().max(*most);
        }
        over.store(true, Ordering::Relaxed);
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        closed.store(true, Ordering::Relaxed);
        ended.into_iter().map(Result::unwrap).collect()
    });
    let lost: u64 = relays.iter().map(|relay| relay.lost.load(Ordering::Relaxed)).sum();
    let metrics = server.metrics();
    println!(
        "{:.0} s: {calls:?} calls of {CALLERS:?} B, {lost} packets lost, {} requests delivered, \
         {} challenges, resident by quarters {:?} MB",
        begun.elapsed().as_secs_f64(),
        metrics.protocol.requests_delivered,
        metrics.protocol.challenges_sent,
        most.map(|bytes| bytes >> 20),
    );
    assert_eq!(ran.wrong.load(Ordering::Relaxed), 0, "calls that ran twice, or out of turn");
    assert!(lost > 0 && calls.iter().all(|&calls| calls > 1), "{calls:?}, {lost} lost");
    // Before the last quarter, tables of bounded size fill, and the memory that attackers hold
    // varies.
    let before = most[..3].iter().copied().max().unwrap_or(0);
    assert!(most[3] <= before + before / 10 + (16 << 20), "memory grows: {most:?}");
}
