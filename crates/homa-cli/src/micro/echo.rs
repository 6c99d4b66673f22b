//! One echo RPC at a time over plain sockets: what the kernel itself costs.
//!
//! The raw UDP paths are the floor that a user-space transport over UDP stands on; 10 kB go as one
//! GSO train and come back through GRO, as a good engineer would send them. TCP runs with Nagle's
//! algorithm off. Spinning paths never sleep, blocking paths sleep in the kernel.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use super::pair::{CLIENT, Pair, SERVER};
use super::stats::{Tail, tail};

/// Payload of a UDP datagram in a frame of 1500 B.
const SEGMENT: u16 = 1472;
/// Share of a round that is not counted: caches, branch predictors and the scheduler settle.
const WARM_UP: f64 = 0.2;

/// How a side waits for its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoWait {
    /// Poll without sleeping.
    Spin,
    /// Sleep in the kernel.
    Block,
}

/// Calls `exchange` for `time` and reduces the latencies of what came after the warm-up; of
/// everything, when a disturbed machine leaves nothing after it.
pub fn time_exchanges(
    time: Duration,
    mut exchange: impl FnMut() -> io::Result<()>,
) -> io::Result<Tail> {
    let start = Instant::now();
    let (warm, end) = (start + time.mul_f64(WARM_UP), start + time);
    let mut latencies = Vec::with_capacity(1 << 18);
    let mut warming_up = true;
    let mut sent = start;
    while sent < end {
        if warming_up && sent >= warm {
            latencies.clear();
            warming_up = false;
        }
        exchange()?;
        let received = Instant::now();
        latencies.push((received - sent).as_nanos() as u64);
        sent = received;
    }
    tail(latencies).ok_or_else(|| io::Error::new(ErrorKind::TimedOut, "the round had no time"))
}

/// Repeats a call on a socket that does not block until it has something to say.
fn spin<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Echo over UDP.
pub fn udp(pair: &Pair, wait: EchoWait, bytes: usize, time: Duration) -> io::Result<Tail> {
    let server = move |side: &super::pair::ServerSide| {
        let socket = udp_socket((SERVER, 0).into(), wait, bytes)?;
        side.listening(socket.local_addr()?);
        let mut buffer = vec![0; 1 << 16];
        let (mut missing, mut client) = (bytes, None);
        while let Some((length, from)) = receive_from(&socket, &mut buffer, side)? {
            if client.is_none() {
                socket.connect(from)?;
                client = Some(from);
            }
            if length == GOODBYE.len() {
                break;
            }
            missing = missing.saturating_sub(length);
            if missing == 0 {
                socket.send(&buffer[..bytes])?;
                missing = bytes;
            }
        }
        Ok(())
    };
    pair.run(server, move |address| {
        let socket = udp_socket((CLIENT, 0).into(), wait, bytes)?;
        socket.connect(address)?;
        let (request, mut reply) = (vec![7; bytes], vec![0; 1 << 16]);
        let measured = time_exchanges(time, || {
            socket.send(&request)?;
            let mut missing = bytes;
            while missing > 0 {
                missing = missing.saturating_sub(spin(|| socket.recv(&mut reply))?);
            }
            Ok(())
        });
        socket.send(GOODBYE)?;
        measured
    })
}

/// Ends a UDP echo server: shorter than any echo.
const GOODBYE: &[u8] = b".";

/// The next datagram; `None` when the client is done.
fn receive_from(
    socket: &UdpSocket,
    buffer: &mut [u8],
    side: &super::pair::ServerSide,
) -> io::Result<Option<(usize, SocketAddr)>> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if side.stopped() {
                    return Ok(None);
                }
            }
            result => return result.map(Some),
        }
    }
}

/// A UDP socket that sends more than a datagram's worth as one GSO train.
fn udp_socket(local: SocketAddr, wait: EchoWait, bytes: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    socket.set_nonblocking(wait == EchoWait::Spin)?;
    if bytes > usize::from(SEGMENT) {
        setsockopt(&socket, sockopt::UdpGsoSegment, &i32::from(SEGMENT))?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    }
    Ok(socket)
}

/// Echo over one TCP connection.
pub fn tcp(pair: &Pair, wait: EchoWait, bytes: usize, time: Duration) -> io::Result<Tail> {
    let server = move |side: &super::pair::ServerSide| {
        let listener = TcpListener::bind((SERVER, 0))?;
        side.listening(listener.local_addr()?);
        let mut stream = tcp_stream(listener.accept()?.0, wait)?;
        let mut buffer = vec![0; bytes];
        while read_whole(&mut stream, &mut buffer)? {
            write_whole(&mut stream, &buffer)?;
        }
        Ok(())
    };
    pair.run(server, move |address| {
        let mut stream = tcp_stream(TcpStream::connect(address)?, wait)?;
        let (request, mut reply) = (vec![7; bytes], vec![0; bytes]);
        time_exchanges(time, || {
            write_whole(&mut stream, &request)?;
            match read_whole(&mut stream, &mut reply)? {
                true => Ok(()),
                false => Err(ErrorKind::UnexpectedEof.into()),
            }
        })
    })
}

fn tcp_stream(stream: TcpStream, wait: EchoWait) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(wait == EchoWait::Spin)?;
    Ok(stream)
}

/// Fills `buffer`; false when the other side closed.
fn read_whole(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match spin(|| stream.read(&mut buffer[filled..]))? {
            0 => return Ok(false),
            n => filled += n,
        }
    }
    Ok(true)
}

fn write_whole(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        written += spin(|| stream.write(&bytes[written..]))?;
    }
    Ok(())
}
