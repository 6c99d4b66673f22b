//! An attacker on the path of two engines with keys. It sees every datagram, and forges, cuts,
//! delays, reorders and repeats each of them, during the session and after it. Nothing that it
//! sends may count, no request may be executed twice, and every call succeeds that it lets pass.

mod early;

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine, Wait};
use homa::{CallOptions, Config, Keys};

use super::host::Host;
use crate::common::message;

/// Calls take at most this long, even if every second datagram is lost.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Datagrams that are forged, each a hundred times. On a machine that needs longer for that than a
/// RESEND timeout, RESENDs are forged too, and would leave no time for anything else.
const FORGED: usize = 200;

fn open(key: u8) -> Engine {
    open_with(&Keys::cluster([key; 32]).unwrap())
}

fn open_with(keys: &Keys) -> Engine {
    let config = Config::default().keys(keys.clone());
    Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// The attacker: it forwards datagrams between a client and a server.
struct Attacker {
    to_client: UdpSocket,
    to_server: UdpSocket,
    client: Option<SocketAddr>,
    /// Everything that was forwarded, with its direction.
    seen: Vec<(bool, Vec<u8>)>,
    late: VecDeque<(bool, Vec<u8>)>,
}

impl Attacker {
    fn new(server: SocketAddr) -> Self {
        let open = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (to_client, to_server) = (open(), open());
        to_server.connect(server).unwrap();
        Self { to_client, to_server, client: None, seen: Vec::new(), late: VecDeque::new() }
    }

    fn send(&self, to_server: bool, bytes: &[u8]) {
        // A datagram is lost if a buffer is full.
        let _ = match (to_server, self.client) {
            (true, _) => self.to_server.send(bytes),
            (false, Some(client)) => self.to_client.send_to(bytes, client),
            (false, None) => Ok(0),
        };
    }

    /// Forwards what has arrived as `how` wants it.
    fn pass(&mut self, how: &mut impl FnMut(&mut Self, bool, Vec<u8>)) {
        let mut bytes = [0; 65_536];
        for from_client in [true, false] {
            let socket = if from_client { &self.to_client } else { &self.to_server };
            let mut arrived = Vec::new();
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                arrived.push((from, bytes[..len].to_vec()));
            }
            for (from, datagram) in arrived {
                self.client = if from_client { Some(from) } else { self.client };
                self.seen.push((from_client, datagram.clone()));
                how(self, from_client, datagram);
            }
        }
    }
}

/// Changed copies of a datagram: each field of the header, the first and the last bytes behind it,
/// the tag, and shorter copies.
fn forgeries(datagram: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let last = datagram.len() - 1;
    for at in [0, 1, 2, 3, 4, 7, 8, 14, 15, 16, 27, 36, 44, 45, 47, 51, 55, 56, 60, last - 16, last]
    {
        if at <= last {
            for change in [1, 2, 4, 0x80] {
                let mut forged = datagram.to_vec();
                forged[at] ^= change;
                all.push(forged);
            }
        }
    }
    for len in [0, 1, 15, 16, 17, 32, 43, 44, 55, 56, 57, datagram.len() / 2, last] {
        all.push(datagram[..len.min(last)].to_vec());
    }
    // As plaintext, as another session, and as a handshake.
    for (key, flags) in [(0, 0), (0, 1), (77, 0), (0, 4)] {
        let mut forged = datagram.to_vec();
        forged[4..8].copy_from_slice(&u32::to_be_bytes(key));
        forged[1] = flags;
        all.push(forged);
    }
    all
}

/// True for handshakes at the level Initial.
fn is_first_flight(datagram: &[u8]) -> bool {
    datagram[4..8] == [0; 4] && datagram[16 + 29] == 0
}

/// Makes calls through the attacker. Returns how often the server executed each of them.
fn call_through(
    attacker: &mut Attacker,
    (client, server): (&mut Engine, &mut Engine),
    calls: usize,
    mut how: impl FnMut(&mut Attacker, bool, Vec<u8>),
) -> Vec<usize> {
    let at = attacker.to_client.local_addr().unwrap();
    let mut executed = vec![0; calls];
    let began = Instant::now();
    for n in 0..calls {
        let mut request = vec![n as u8; 1 + (n % 3) * 2_000];
        request[0] = n as u8;
        let options = CallOptions::deadline(GIVE_UP);
        client.call(at, request.clone(), n as u64, &options).unwrap();
        let mut answered = false;
        while !answered {
            assert!(began.elapsed() < GIVE_UP, "call {n} of {calls} is not answered");
            client.poll(Wait::For(Duration::from_millis(1))).unwrap();
            attacker.pass(&mut how);
            server.poll(Wait::No).unwrap();
            attacker.pass(&mut how);
            while let Some(completion) = server.next() {
                if let Completion::Request { id, bytes, .. } = completion {
                    executed[usize::from(bytes[0])] += 1;
                    server.reply(id, bytes.to_vec()).unwrap();
                }
            }
            while let Some(completion) = client.next() {
                if let Completion::Response { cookie, result, .. } = completion {
                    assert_eq!(cookie, n as u64);
                    assert_eq!(&result.unwrap()[..], &request[..]);
                    answered = true;
                }
            }
        }
    }
    executed
}

/// Nothing but what the other end has encrypted was accepted.
fn only_genuine(client: &Engine, server: &Engine) {
    let (client, server) = (client.metrics().driver, server.metrics().driver);
    assert!(server.datagrams_opened <= client.datagrams_sealed, "{server:?}");
    assert!(client.datagrams_opened <= server.datagrams_sealed, "{client:?}");
}

/// Lets both engines read what was sent to them. Returns the number of executed requests.
fn settle(engines: &mut [&mut Engine]) -> usize {
    let mut requests = 0;
    for _ in 0..50 {
        for engine in engines.iter_mut() {
            engine.poll(Wait::No).unwrap();
            while let Some(completion) = engine.next() {
                requests += usize::from(matches!(completion, Completion::Request { .. }));
            }
        }
    }
    requests
}

#[test]
fn on_the_path_forged_datagrams_never_count() {
    let (mut client, mut server) = (open(1), open(1));
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    let forge = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        attacker.send(to_server, &datagram);
        // An attacker can always end a handshake that has no keys yet, as if it were lost.
        if !is_first_flight(&datagram) && attacker.seen.len() <= FORGED {
            forgeries(&datagram).iter().for_each(|forged| attacker.send(to_server, forged));
        }
    };
    let began = Instant::now();
    let executed = call_through(&mut attacker, (&mut client, &mut server), 20, forge);
    let seconds = began.elapsed().as_secs();
    assert_eq!(executed, [1; 20]);
    only_genuine(&client, &server);
    let metrics = server.metrics().driver;
    assert!(metrics.datagrams_forged > 100, "{metrics:?}");
    assert!(metrics.datagrams_plaintext_refused > 10, "{metrics:?}");
    // A forged "unknown key" can cause a handshake, at most once a second.
    assert!(metrics.sessions <= 4 + seconds, "in {seconds} s: {metrics:?}");
}

#[test]
fn on_the_path_calls_succeed_after_early_forgeries() {
    let (mut client, mut server) = (open(1), open(1));
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    let mut rounds = 0;
    let forge = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        // In front of the true one, as long as a handshake may be tried again.
        rounds += 1;
        if rounds == 1 {
            forgeries(&datagram).iter().for_each(|forged| attacker.send(to_server, forged));
        }
        attacker.send(to_server, &datagram);
    };
    let executed = call_through(&mut attacker, (&mut client, &mut server), 5, forge);
    assert_eq!(executed, [1; 5]);
    only_genuine(&client, &server);
}

#[test]
fn on_the_path_repeated_and_late_datagrams_run_nothing_twice() {
    let (mut client, mut server) = (open(1), open(1));
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    let mut count = 0u32;
    let reorder = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        count += 1;
        match count % 4 {
            // Lost, but it comes later, twice.
            0 => attacker.late.push_back((to_server, datagram)),
            _ => {
                attacker.send(to_server, &datagram);
                attacker.send(to_server, &datagram);
            }
        }
        if count % 4 == 2
            && let Some((to_server, datagram)) = attacker.late.pop_front()
        {
            attacker.send(to_server, &datagram);
            attacker.send(to_server, &datagram);
        }
    };
    let executed = call_through(&mut attacker, (&mut client, &mut server), 40, reorder);
    assert_eq!(executed, [1; 40]);
    only_genuine(&client, &server);
    // Everything again, after the last call.
    let before = (server.metrics().driver, client.metrics().driver);
    for (to_server, datagram) in attacker.seen.clone() {
        attacker.send(to_server, &datagram);
        assert_eq!(settle(&mut [&mut server]), 0, "a request ran twice");
    }
    settle(&mut [&mut server, &mut client]);
    let after = (server.metrics().driver, client.metrics().driver);
    assert!(after.0.datagrams_replayed > before.0.datagrams_replayed);
    only_genuine(&client, &server);
}

#[test]
fn on_the_path_random_attacks_change_nothing() {
    for seed in 1..=8 {
        let (mut client, mut server) = (open(1), open(1));
        server.listen().unwrap();
        let mut attacker = Attacker::new(server.local_addr());
        let mut random = message(1 << 16, seed).into_iter().cycle();
        let attack = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
            let mut below = |most: usize| {
                let bytes = [random.next().unwrap(), random.next().unwrap()];
                usize::from(u16::from_be_bytes(bytes)) % most
            };
            let len = datagram.len();
            if !is_first_flight(&datagram) && below(2) == 0 {
                let mut forged = datagram.clone();
                match below(3) {
                    0 => forged[below(len)] ^= 1 << below(8),
                    1 => forged.truncate(below(len)),
                    _ => forged.extend_from_slice(&datagram[..1 + below(len)]),
                }
                attacker.send(to_server, &forged);
            }
            if below(3) == 0 {
                let (to_server, old) = attacker.seen[below(attacker.seen.len())].clone();
                attacker.send(to_server, &old);
            }
            match below(10) {
                0 => {}
                1 | 2 => attacker.late.push_back((to_server, datagram)),
                _ => attacker.send(to_server, &datagram),
            }
            if below(3) == 0
                && let Some((to_server, late)) = attacker.late.pop_front()
            {
                attacker.send(to_server, &late);
            }
        };
        let executed = call_through(&mut attacker, (&mut client, &mut server), 12, attack);
        assert_eq!(executed, [1; 12], "seed {seed}");
        only_genuine(&client, &server);
        let [client, server] = [client, server].map(|engine| engine.metrics().driver);
        assert!(client.datagrams_forged + server.datagrams_forged > 0, "{client:?} {server:?}");
        assert!(client.datagrams_replayed + server.datagrams_replayed > 0, "{server:?}");
    }
}

#[test]
fn on_the_path_an_old_session_is_of_no_use_later() {
    let (mut client, mut old) = (open(1), open(1));
    old.listen().unwrap();
    let forward = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        attacker.send(to_server, &datagram);
    };
    let mut attacker = Attacker::new(old.local_addr());
    call_through(&mut attacker, (&mut client, &mut old), 5, forward);
    let recorded = attacker.seen.clone();
    // Another server with the same key, which makes a new session.
    let mut server = open(1);
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    call_through(&mut attacker, (&mut client, &mut server), 5, forward);
    let of_server =
        |(to_server, datagram): &&(bool, Vec<u8>)| *to_server && datagram[4..8] != [0; 4];
    let key = attacker.seen.iter().find(of_server).map(|(_, d)| d[4..8].to_vec()).unwrap();
    let before = server.metrics().driver;
    for (to_server, mut datagram) in recorded {
        attacker.send(to_server, &datagram);
        // The same under the key id of the new session.
        datagram[4..8].copy_from_slice(&key);
        attacker.send(to_server, &datagram);
        assert_eq!(settle(&mut [&mut server]), 0, "a recorded request was executed");
    }
    let after = server.metrics().driver;
    assert_eq!(after.datagrams_opened, before.datagrams_opened, "nothing recorded counts");
    let dropped = |of: &homa::metrics::DriverCounters| of.datagrams_forged + of.datagrams_replayed;
    assert!(dropped(&after) > dropped(&before));
}

#[test]
fn on_the_path_a_ticket_is_of_no_use_to_another_host() {
    let (keys, mut server) = (Keys::cluster([1; 32]).unwrap(), open(1));
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    for handshakes in 1..=2 {
        // Two engines with the same keys: the second one has a ticket of the first.
        let mut client = open_with(&keys);
        attacker.seen.clear();
        let forward = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
            attacker.send(to_server, &datagram);
        };
        call_through(&mut attacker, (&mut client, &mut server), 2, forward);
        let metrics = server.metrics().driver;
        assert_eq!(
            (metrics.handshakes_completed, metrics.handshakes_resumed),
            (handshakes, handshakes - 1)
        );
    }
    let before = server.metrics().driver;
    let mut host = Host::new(server.local_addr());
    for _ in 0..2 {
        for (to_server, datagram) in &attacker.seen {
            if *to_server {
                host.send(datagram);
                assert_eq!(settle(&mut [&mut server]), 0, "a request ran for another address");
                host.read();
                assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
            }
        }
    }
    let after = server.metrics().driver;
    assert_eq!(after.handshakes_completed, before.handshakes_completed);
    assert_eq!(
        (after.sessions, after.datagrams_opened),
        (before.sessions, before.datagrams_opened)
    );
}

#[test]
fn on_the_path_no_recorded_datagram_is_amplified() {
    let (mut client, mut server) = (open(1), open(1));
    server.listen().unwrap();
    let forward = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        attacker.send(to_server, &datagram);
    };
    let mut attacker = Attacker::new(server.local_addr());
    call_through(&mut attacker, (&mut client, &mut server), 5, forward);
    let mut host = Host::new(server.local_addr());
    for (_, datagram) in &attacker.seen {
        for bytes in [vec![datagram.clone()], forgeries(datagram)].concat() {
            host.send(&bytes);
            assert_eq!(settle(&mut [&mut server]), 0, "a request ran for another address");
            host.read();
            assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
        }
    }
}
