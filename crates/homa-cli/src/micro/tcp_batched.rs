//! The rival in rate: tokio TCP with our own framing and coalesced writes, one thread and one core
//! a side.
//!
//! Everything that one read brought is answered with one write, so the batches grow with the load.
//! This is the best that a service engineer gets from async Rust without leaving TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::framing;
use super::pair::{Pair, SERVER, ServerSide};
use super::stats::per_second;

/// Read buffer of a connection that carries small RPCs, bytes.
const READ_BUFFER: usize = 128 << 10;

/// A load of small echo RPCs.
#[derive(Clone)]
pub struct RateLoad {
    /// Connections (or server engines).
    pub peers: usize,
    /// RPCs in progress per peer.
    pub outstanding: usize,
    /// Message sizes in bytes, used in turn.
    pub sizes: Arc<[u32]>,
}

/// The part of a round that is counted.
#[derive(Clone, Copy)]
pub struct CountedWindow {
    /// Counting starts.
    pub from: Instant,
    /// The round ends.
    pub until: Instant,
}

impl CountedWindow {
    /// A round of `time` from now; its first fifth is warm-up.
    pub fn starting_now(time: Duration) -> Self {
        let now = Instant::now();
        Self { from: now + time / 5, until: now + time }
    }

    /// Looks at the clock when an RPC has completed: 1 if it counts, 0 if it does not, `None` if
    /// the round has ended.
    fn look(&self) -> Option<u64> {
        let now = Instant::now();
        (now < self.until).then(|| u64::from(now >= self.from))
    }

    /// The length of the counted part.
    pub fn length(&self) -> Duration {
        self.until - self.from
    }
}

/// One thread per side: no hop between threads, as on the other side of the comparison.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// RPCs per second of `load`.
pub fn rate(pair: &Pair, load: &RateLoad, time: Duration) -> io::Result<f64> {
    let connections = load.peers;
    let load = load.clone();
    let server = move |side: &ServerSide| {
        runtime()?.block_on(accept(side, connections, |stream| tokio::spawn(answer(stream))))
    };
    pair.run(server, move |address| {
        runtime()?.block_on(async move {
            let mut streams = Vec::new();
            for _ in 0..load.peers {
                streams.push(connect(address).await?);
            }
            let window = CountedWindow::starting_now(time);
            let tasks: Vec<_> = streams
                .into_iter()
                .enumerate()
                .map(|(index, stream)| {
                    // Each connection starts elsewhere in the sizes, so they do not move in step.
                    let first = index * load.sizes.len() / load.peers;
                    tokio::spawn(ask(
                        stream,
                        load.outstanding,
                        Arc::clone(&load.sizes),
                        first,
                        window,
                    ))
                })
                .collect();
            let mut completed = 0;
            for task in tasks {
                completed += task.await??;
            }
            Ok(per_second(completed, window.length()))
        })
    })
}

/// RPCs per second of `load`, which is for one peer, made by tasks: each has one in progress, and
/// begins the next when it ends.
pub fn rate_of_tasks<F: Future<Output = io::Result<()>> + Send>(
    runtime: &Runtime,
    load: &RateLoad,
    time: Duration,
    ask: impl Fn() -> F + Clone + Send + 'static,
) -> io::Result<f64> {
    let window = CountedWindow::starting_now(time);
    let task = |_| {
        let ask = ask.clone();
        runtime.spawn(async move {
            let mut completed = 0;
            loop {
                ask().await?;
                match window.look() {
                    Some(counts) => completed += counts,
                    None => return Ok::<_, io::Error>(completed),
                }
            }
        })
    };
    let tasks: Vec<_> = (0..load.outstanding).map(task).collect();
    runtime.block_on(async {
        let mut completed = 0;
        for task in tasks {
            completed += task.await??;
        }
        Ok(per_second(completed, window.length()))
    })
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Accepts `connections` connections, serves each in a task, ends when all are closed.
async fn accept(
    side: &ServerSide,
    connections: usize,
    serve: impl Fn(TcpStream) -> tokio::task::JoinHandle<io::Result<()>>,
) -> io::Result<()> {
    let listener = TcpListener::bind((SERVER, 0)).await?;
    side.listening(listener.local_addr()?);
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tasks.push(serve(stream));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Echoes every RPC of a connection until it is closed.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut inbound = Vec::with_capacity(READ_BUFFER);
    let mut outbound = Vec::with_capacity(READ_BUFFER);
    loop {
        if unless_closed(stream.read_buf(&mut inbound).await)? == 0 {
            return Ok(());
        }
        framing::drain(&mut inbound, |rpc, payload| framing::push(&mut outbound, rpc, payload));
        unless_closed(stream.write_all(&outbound).await)?;
        outbound.clear();
    }
}

/// A client that ends its round closes with RPCs in progress: that ends the connection, not the
/// round.
fn unless_closed<T: Default>(result: io::Result<T>) -> io::Result<T> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match result {
        Err(e) if matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
            Ok(T::default())
        }
        result => result,
    }
}

/// Keeps `outstanding` RPCs in progress on a connection; returns how many the window saw complete.
async fn ask(
    mut stream: TcpStream,
    outstanding: usize,
    sizes: Arc<[u32]>,
    first: usize,
    window: CountedWindow,
) -> io::Result<u64> {
    let largest = sizes.iter().copied().max().unwrap_or(1) as usize;
    let payload = vec![7; largest];
    let mut inbound = Vec::with_capacity(READ_BUFFER);
    let mut outbound = Vec::with_capacity(READ_BUFFER);
    let mut turn = first;
    let mut next = |outbound: &mut Vec<u8>| {
        let size = sizes[turn % sizes.len()] as usize;
        framing::push(outbound, turn as u64, &payload[..size]);
        turn += 1;
    };
    (0..outstanding).for_each(|_| next(&mut outbound));
    let mut completed = 0;
    loop {
        stream.write_all(&outbound).await?;
        outbound.clear();
        if stream.read_buf(&mut inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut batch = 0;
        framing::drain(&mut inbound, |_, _| {
            batch += 1;
            next(&mut outbound);
        });
        let now = Instant::now();
        if now >= window.until {
            return Ok(completed);
        }
        if now >= window.from {
            completed += batch;
        }
    }
}

/// Megabytes of requests per second: requests of `bytes`, replies of 16 B, `outstanding` at a time.
pub fn throughput(
    pair: &Pair,
    bytes: usize,
    outstanding: usize,
    time: Duration,
) -> io::Result<f64> {
    let server =
        |side: &ServerSide| runtime()?.block_on(accept(side, 1, |s| tokio::spawn(swallow(s))));
    pair.run(server, move |address| {
        runtime()?.block_on(async move {
            let mut stream = connect(address).await?;
            let mut request = Vec::new();
            framing::push(&mut request, 0, &vec![7; bytes]);
            for _ in 0..outstanding {
                stream.write_all(&request).await?;
            }
            let window = CountedWindow::starting_now(time);
            let mut inbound = Vec::with_capacity(4096);
            let mut completed = 0u64;
            loop {
                if stream.read_buf(&mut inbound).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let mut replies = 0;
                framing::drain(&mut inbound, |_, _| replies += 1);
                let now = Instant::now();
                if now >= window.until {
                    return Ok(per_second(completed * bytes as u64, window.length()) / 1e6);
                }
                if now >= window.from {
                    completed += replies;
                }
                for _ in 0..replies {
                    stream.write_all(&request).await?;
                }
            }
        })
    })
}

/// Receives each request whole in one buffer, answers 16 B.
async fn swallow(mut stream: TcpStream) -> io::Result<()> {
    let mut message = Vec::new();
    let mut header = [0; framing::HEADER];
    let mut reply = Vec::new();
    loop {
        if unless_closed(stream.read_exact(&mut header).await)? == 0 {
            return Ok(());
        }
        let Some((length, rpc)) = framing::header(&header) else { return Ok(()) };
        message.resize(length, 0);
        unless_closed(stream.read_exact(&mut message).await)?;
        reply.clear();
        framing::push(&mut reply, rpc, &[0; 16]);
        unless_closed(stream.write_all(&reply).await)?;
    }
}
