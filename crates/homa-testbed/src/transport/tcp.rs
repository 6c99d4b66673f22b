//! RPCs over kernel TCP, tuned as a good engineer would: no Nagle delay, a named congestion
//! control, connections set up and warmed beforehand, several per peer with the least busy taking
//! the next RPC, many messages per system call, windows that survive idleness (see
//! [`crate::link`]). Buffers are left to the kernel's auto-tuning.
//!
//! Invariant: a connection carries the requests of the side that opened it and their responses.

use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use super::framing::{Header, Reader, Writer};
use super::{Done, RackRpc, RpcTransport};
use crate::Host;
use crate::link::address;
use crate::sys::{self, Interest, Readiness};

/// Longest request or response, bytes, that `tcp-classed` puts on the connection of the highest
/// class.
pub const SMALL_RPC_BYTES: u32 = 4_096;
const PORT: u16 = 7_000;
const CLASSED_PORT: u16 = 7_001;
/// CS7: the highest class of the rack's switch.
const HIGHEST_TOS: libc::c_int = 0xe0;
/// The kernel's priority that goes before bulk in the host's own queue (pfifo_fast band 0).
const INTERACTIVE: libc::c_int = 6;
/// Bytes read per system call.
const READ: usize = 65_536;

/// How a host uses TCP.
#[derive(Clone, Debug)]
pub(crate) struct TcpOptions {
    /// Connections per peer.
    pub(crate) connections: usize,
    /// One more connection per peer for small RPCs, in the highest class.
    pub(crate) classed: bool,
    /// Connections ask for marks instead of drops (RFC 3168).
    pub(crate) ecn: bool,
    /// The kernel's name of the congestion control.
    pub(crate) congestion_control: String,
}

/// A host that listens but has not connected yet.
pub(crate) struct ListeningTcp {
    options: TcpOptions,
    own: usize,
    peers: Vec<usize>,
    listeners: [TcpListener; 2],
}

/// See the module's description.
pub(crate) struct TcpTransport {
    readiness: Readiness,
    /// The descriptor of `readiness`.
    handles: [RawFd; 1],
    listeners: [TcpListener; 2],
    /// Token of a connection = its index + [`FIRST_CONNECTION`].
    connections: Vec<Connection>,
    /// Our own connections by peer: the pool, and the one for small RPCs.
    pools: Vec<Pool>,
    ready: Vec<u64>,
    buffer: Box<[u8; READ]>,
    served: u64,
}

const FIRST_CONNECTION: u64 = 2;
/// Index of the listener for small RPCs.
const CLASSED_LISTENER: usize = 1;

#[derive(Default)]
struct Pool {
    bulk: Vec<usize>,
    small: Option<usize>,
}

struct Connection {
    stream: TcpStream,
    reader: Reader,
    writer: Writer,
    /// RPCs of ours without a response yet.
    outstanding: usize,
    interest: Interest,
}

impl ListeningTcp {
    /// Listens for the other hosts. They may connect once every host has come here.
    pub(crate) fn open(host: Host<'_>, options: TcpOptions) -> io::Result<Self> {
        let listen = |port| {
            let listener = TcpListener::bind((host.address(), port))?;
            listener.set_nonblocking(true)?;
            io::Result::Ok(listener)
        };
        negotiate_ecn(options.ecn)?;
        let listeners = [listen(PORT)?, listen(CLASSED_PORT)?];
        tune(&listeners[0], &options, false)?;
        tune(&listeners[1], &options, true)?;
        Ok(Self { options, own: host.index, peers: host.peers().collect(), listeners })
    }

    /// Opens our connections to every other host.
    pub(crate) fn connect(self) -> io::Result<TcpTransport> {
        let readiness = Readiness::new()?;
        for (token, listener) in self.listeners.iter().enumerate() {
            readiness.add(listener.as_fd(), token as u64, Interest { writable: false })?;
        }
        let hosts = self.peers.iter().max().map_or(0, |&last| last.max(self.own) + 1);
        let mut transport = TcpTransport {
            handles: [readiness.fd().as_raw_fd()],
            readiness,
            listeners: self.listeners,
            connections: Vec::new(),
            pools: (0..hosts).map(|_| Pool::default()).collect(),
            ready: Vec::new(),
            buffer: Box::new([0; READ]),
            served: 0,
        };
        for &peer in &self.peers {
            for _ in 0..self.options.connections {
                let index = transport.connect(peer, &self.options, false)?;
                transport.pools[peer].bulk.push(index);
            }
            if self.options.classed {
                let index = transport.connect(peer, &self.options, true)?;
                transport.pools[peer].small = Some(index);
            }
        }
        Ok(transport)
    }
}

impl RpcTransport for TcpTransport {
    fn submit(&mut self, rpc: RackRpc) -> io::Result<()> {
        let pool = &self.pools[rpc.server];
        let small = rpc.request_bytes.max(rpc.response_bytes) <= SMALL_RPC_BYTES;
        let least_busy = || {
            let outstanding = |&index: &usize| self.connections[index].outstanding;
            pool.bulk.iter().copied().min_by_key(outstanding)
        };
        let index = pool.small.filter(|_| small).or_else(least_busy);
        let index = index.ok_or_else(|| io::Error::other("no connection to that host"))?;
        let connection = &mut self.connections[index];
        connection.outstanding += 1;
        connection.writer.push(Header {
            id: rpc.id,
            bytes: rpc.request_bytes,
            wanted: Some(rpc.response_bytes),
        });
        self.write(index)
    }

    fn turn(&mut self, _readable: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.readiness.take(&mut ready)?;
        for &token in &ready {
            match token.checked_sub(FIRST_CONNECTION) {
                None => self.accept(token as usize)?,
                Some(index) => {
                    self.read(index as usize, done)?;
                    self.write(index as usize)?;
                }
            }
        }
        self.ready = ready;
        Ok(())
    }

    fn handles(&self) -> &[RawFd] {
        &self.handles
    }

    fn wake_at_ns(&mut self) -> Option<u64> {
        None
    }

    fn served(&self) -> u64 {
        self.served
    }
}

impl TcpTransport {
    fn connect(&mut self, peer: usize, options: &TcpOptions, classed: bool) -> io::Result<usize> {
        let port = if classed { CLASSED_PORT } else { PORT };
        let to = SocketAddr::from((address(peer), port));
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        tune(&stream, options, classed)?;
        self.add(stream)
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, _)) => {
                    // Congestion control comes from the listener; the kernel resets the priority.
                    if listener == CLASSED_LISTENER {
                        set_highest_class(&stream)?;
                    }
                    self.add(stream)?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn add(&mut self, stream: TcpStream) -> io::Result<usize> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let interest = Interest { writable: false };
        let index = self.connections.len();
        self.readiness.add(stream.as_fd(), index as u64 + FIRST_CONNECTION, interest)?;
        self.connections.push(Connection {
            stream,
            reader: Reader::default(),
            writer: Writer::default(),
            outstanding: 0,
            interest,
        });
        Ok(index)
    }

    fn read(&mut self, index: usize, done: &mut Vec<Done>) -> io::Result<()> {
        let Connection { stream, reader, writer, outstanding, .. } = &mut self.connections[index];
        loop {
            let n = match stream.read(&mut self.buffer[..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let at_ns = sys::monotonic_ns();
            reader.take(&self.buffer[..n], |Header { id, wanted, .. }| match wanted {
                Some(bytes) => {
                    self.served += 1;
                    writer.push(Header { id, bytes, wanted: None });
                }
                None => {
                    *outstanding = outstanding.saturating_sub(1);
                    done.push(Done { id, at_ns, error: None });
                }
            });
            if n < READ {
                return Ok(());
            }
        }
    }

    /// Writes the bytes that wait, and watches for room as long as some still wait.
    fn write(&mut self, index: usize) -> io::Result<()> {
        let Connection { stream, writer, interest, .. } = &mut self.connections[index];
        if !writer.is_empty() {
            writer.flush(stream)?;
        }
        let wanted = Interest { writable: !writer.is_empty() };
        if *interest != wanted {
            *interest = wanted;
            self.readiness.change(stream.as_fd(), index as u64 + FIRST_CONNECTION, wanted)?;
        }
        Ok(())
    }
}

/// Whether connections of the calling thread's network ask for ECN; they always agree to it.
fn negotiate_ecn(asked: bool) -> io::Result<()> {
    const SETTING: &str = "/proc/sys/net/ipv4/tcp_ecn";
    match fs::write(SETTING, if asked { "1" } else { "2" }) {
        // If it cannot be set, it is off, because the kernel does not use ECN by default.
        Err(error) if asked => Err(io::Error::new(
            error.kind(),
            format!("ECN cannot be turned on in this sandbox ({SETTING}: {error})"),
        )),
        _ => Ok(()),
    }
}

fn tune(socket: &impl AsFd, options: &TcpOptions, classed: bool) -> io::Result<()> {
    let fd = socket.as_fd();
    let name = options.congestion_control.as_bytes();
    sys::set_option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    if classed { set_highest_class(socket) } else { Ok(()) }
}

/// The highest class in the switch, and first place in the host's own queue.
fn set_highest_class(socket: &impl AsFd) -> io::Result<()> {
    let fd = socket.as_fd();
    sys::set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, HIGHEST_TOS)?;
    // After IP_TOS, which also sets a priority.
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, INTERACTIVE)
}
