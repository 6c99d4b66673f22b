//! Homa's rows: the same loads as the rivals', through the API that users have.
//!
//! The inline engine everywhere but in the blocking echo, whose callers share an engine as they
//! would in a server with threads. In the fan-out rows the 64 servers are 64 engines with a socket
//! each, driven by the server side's only thread: no train can carry RPCs of two peers. Over AF_XDP
//! they are 64 ports of one engine, since one engine uses an interface.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use bytes::Bytes;
use homa::inline::{Completion, Engine, Wait};
use homa::{CallOptions, Config, Keys, ReplyError};

use super::echo::time_exchanges;
use super::pair::{CLIENT, Pair, SERVER, ServerSide};
use super::stats::{Tail, per_second};
use super::tcp_batched::{CountedWindow, RateLoad};

/// Ends a blocking echo server: shorter than any echo.
pub const GOODBYE: &[u8] = b".";

/// What carries the packets of engines that are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The system's UDP sockets.
    Udp,
    /// The same, encrypted.
    Sealed,
    /// AF_XDP sockets.
    Xdp,
}

impl Carrier {
    fn engine(self, address: std::net::IpAddr, mtu: u16) -> io::Result<Engine> {
        let (at, config) = ((address, 0).into(), Config::default().mtu(mtu).plaintext());
        match self {
            Self::Udp => Engine::bind(at, config),
            Self::Sealed => {
                let keys = Keys::cluster([7; 32]).map_err(io::Error::other)?;
                Engine::bind(at, config.keys(keys))
            }
            Self::Xdp => Engine::xdp(at, config),
        }
        .map_err(io::Error::other)
    }
}

/// When a thread that blocks goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// At once, as the rivals that block do.
    AtOnce,
    /// As users get it: after looking for a while, as long as that pays.
    Default,
}

impl Sleep {
    fn config(self, mtu: u16) -> Config {
        let config = Config::default().mtu(mtu).plaintext();
        match self {
            Self::AtOnce => config.spin(Duration::ZERO),
            Self::Default => config,
        }
    }
}

/// Answers each request that is ready with the result of `answer`.
pub fn answer_ready(
    engine: &mut Engine,
    answer: impl Fn(homa::Message) -> Vec<u8>,
) -> io::Result<()> {
    while let Some(completion) = engine.next() {
        if let Completion::Request { id, bytes, .. } = completion {
            match engine.reply(id, answer(bytes)) {
                // A client that ends its round cancels its calls in progress.
                Ok(()) | Err(ReplyError::Gone) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
    Ok(())
}

/// Serves one engine until the client is done.
fn serve(
    side: &ServerSide,
    (carrier, mtu): (Carrier, u16),
    answer: impl Fn(homa::Message) -> Vec<u8>,
) -> io::Result<()> {
    let mut engine = carrier.engine(SERVER, mtu)?;
    engine.listen().map_err(io::Error::other)?;
    side.listening(engine.local_addr());
    while !side.stopped() {
        engine.poll(Wait::No)?;
        answer_ready(&mut engine, &answer)?;
    }
    Ok(())
}

/// Echo with an engine on each side that the caller's thread polls.
pub fn echo_inline(
    pair: &Pair,
    carrier: Carrier,
    bytes: usize,
    time: Duration,
) -> io::Result<Tail> {
    let mtu = pair.mtu;
    pair.run(
        move |side| serve(side, (carrier, mtu), homa::Message::into_vec),
        move |address| {
            let mut engine = carrier.engine(CLIENT, mtu)?;
            let (request, options) = (vec![7; bytes], CallOptions::default());
            time_exchanges(time, || {
                engine.call(address, request.clone(), 0, &options).map_err(io::Error::other)?;
                loop {
                    engine.poll(Wait::No)?;
                    if let Some(Completion::Response { result, .. }) = engine.next() {
                        return result.map(drop).map_err(io::Error::other);
                    }
                }
            })
        },
    )
}

/// Echo with callers that block on an engine they could share with other threads.
pub fn echo_blocking(pair: &Pair, sleep: Sleep, bytes: usize, time: Duration) -> io::Result<Tail> {
    let mtu = pair.mtu;
    let server = move |side: &ServerSide| {
        let engine = homa::Engine::bind((SERVER, 0).into(), sleep.config(mtu));
        let server = engine.and_then(|engine| engine.serve()).map_err(io::Error::other)?;
        side.listening(server.local_addr());
        while let Some(mut request) = server.accept() {
            let bytes = request.take_bytes();
            let last = *bytes == *GOODBYE;
            request.reply(bytes).map_err(io::Error::other)?;
            if last {
                break;
            }
        }
        // The last reply leaves and is acknowledged, or the client has gone: both are fine.
        let _ = server.engine().drain(Duration::from_millis(100));
        Ok(())
    };
    pair.run(server, move |address| {
        let engine = homa::Engine::bind((CLIENT, 0).into(), sleep.config(mtu));
        let client = engine.map_err(io::Error::other)?.client();
        let request = vec![7; bytes];
        let measured = time_exchanges(time, || {
            client.call(address, request.clone()).map(drop).map_err(io::Error::other)
        });
        client.call(address, GOODBYE).map_err(io::Error::other)?;
        measured
    })
}

/// RPCs per second of `load`.
pub fn rate(pair: &Pair, carrier: Carrier, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let (peers, mtu) = (load.peers, pair.mtu);
    let load = load.clone();
    let server = move |side: &ServerSide| match (peers, carrier) {
        (1, _) => serve(side, (carrier, mtu), homa::Message::into_vec),
        (_, Carrier::Udp | Carrier::Sealed) => serve_many(side, carrier, peers, mtu),
        (_, Carrier::Xdp) => serve_ports(side, peers, mtu),
    };
    pair.run_many(server, peers, move |servers| {
        Caller::new((carrier, mtu), &servers, load)?
            .completed_per_second(CountedWindow::starting_now(time))
    })
}

/// A client that replaces every completed RPC by another to the same server.
pub struct Caller {
    engine: Engine,
    wait: Wait,
    servers: Vec<SocketAddr>,
    load: RateLoad,
    payload: Bytes,
    options: CallOptions,
    turn: usize,
}

impl Caller {
    fn new(
        (carrier, mtu): (Carrier, u16),
        servers: &[SocketAddr],
        load: RateLoad,
    ) -> io::Result<Self> {
        Ok(Self::over(carrier.engine(CLIENT, mtu)?, Wait::No, servers, load))
    }

    /// One that waits so in each turn.
    pub fn over(engine: Engine, wait: Wait, servers: &[SocketAddr], load: RateLoad) -> Self {
        let largest = load.sizes.iter().copied().max().unwrap_or(1) as usize;
        let (payload, options) = (vec![7; largest].into(), CallOptions::default());
        Self { engine, wait, servers: servers.to_vec(), load, payload, options, turn: 0 }
    }

    /// Keeps the load up for a window.
    pub fn completed_per_second(&mut self, window: CountedWindow) -> io::Result<f64> {
        for server in 0..self.servers.len() {
            for _ in 0..self.load.outstanding {
                self.start(server)?;
            }
        }
        let mut completed = 0;
        loop {
            let batch = self.turn()?;
            let now = Instant::now();
            if now >= window.until {
                return Ok(per_second(completed, window.length()));
            }
            if now >= window.from {
                completed += batch;
            }
        }
    }

    fn start(&mut self, server: usize) -> io::Result<()> {
        let size = self.load.sizes[self.turn % self.load.sizes.len()] as usize;
        self.turn += 1;
        self.engine
            .call(self.servers[server], self.payload.slice(..size), server as u64, &self.options)
            .map_err(io::Error::other)?;
        Ok(())
    }

    /// One turn of the engine; returns how many RPCs completed.
    fn turn(&mut self) -> io::Result<u64> {
        self.engine.poll(self.wait)?;
        let mut completed = 0;
        while let Some(completion) = self.engine.next() {
            if let Completion::Response { cookie, result, .. } = completion {
                result.map_err(io::Error::other)?;
                completed += 1;
                self.start(cookie as usize)?;
            }
        }
        Ok(completed)
    }
}

/// How often the engines of [`serve_many`] look at their timers, which are milliseconds.
const TIMERS: Duration = Duration::from_millis(1);

/// Serves `count` engines with one thread, which asks the kernel who has something to receive, as
/// the rival does.
fn serve_many(side: &ServerSide, carrier: Carrier, count: usize, mtu: u16) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut engines = Vec::with_capacity(count);
    for index in 0..count {
        let mut engine = carrier.engine(SERVER, mtu)?;
        engine.listen().map_err(io::Error::other)?;
        epoll.add(&engine, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        side.listening(engine.local_addr());
        engines.push(engine);
    }
    let mut ready = vec![EpollEvent::empty(); count];
    let mut ticked = Instant::now();
    while !side.stopped() {
        let found = epoll.wait(&mut ready, EpollTimeout::ZERO)?;
        for event in &ready[..found] {
            visit(&mut engines[event.data() as usize])?;
        }
        if ticked.elapsed() >= TIMERS {
            ticked = Instant::now();
            let due = |engine: &mut Engine| engine.timeout().is_some_and(|left| left.is_zero());
            engines.iter_mut().filter_map(|e| due(e).then_some(e)).try_for_each(visit)?;
        }
    }
    Ok(())
}

/// Serves `count` ports of one engine.
fn serve_ports(side: &ServerSide, count: usize, mtu: u16) -> io::Result<()> {
    let mut engine = Carrier::Xdp.engine(SERVER, mtu)?;
    engine.listen().map_err(io::Error::other)?;
    side.listening(engine.local_addr());
    for _ in 1..count {
        side.listening(engine.listen_also((SERVER, 0).into()).map_err(io::Error::other)?);
    }
    while !side.stopped() {
        engine.poll(Wait::No)?;
        answer_ready(&mut engine, homa::Message::into_vec)?;
    }
    Ok(())
}

/// Takes in what arrived at an engine and sends its answers.
fn visit(engine: &mut Engine) -> io::Result<()> {
    engine.turn();
    answer_ready(engine, homa::Message::into_vec)?;
    engine.flush();
    Ok(())
}

/// Megabytes of requests per second: requests of `bytes`, replies of 16 B, `outstanding` at a time.
pub fn throughput(
    pair: &Pair,
    carrier: Carrier,
    bytes: usize,
    outstanding: usize,
    time: Duration,
) -> io::Result<f64> {
    let load = RateLoad { peers: 1, outstanding, sizes: Arc::new([bytes as u32]) };
    let mtu = pair.mtu;
    let server = move |side: &ServerSide| serve(side, (carrier, mtu), |_| vec![0; 16]);
    pair.run(server, move |address| {
        let mut client = Caller::new((carrier, mtu), &[address], load)?;
        let rpcs = client.completed_per_second(CountedWindow::starting_now(time))?;
        Ok(rpcs * bytes as f64 / 1e6)
    })
}

/// Why there can be no rows over AF_XDP; `None` if there can.
pub fn without_xdp(pair: &Pair) -> Option<String> {
    let mtu = pair.mtu;
    let tried = move |_: &ServerSide| Carrier::Xdp.engine(SERVER, mtu).map(drop);
    pair.run_many(tried, 0, |_| Ok(())).err().map(|error| error.to_string())
}
