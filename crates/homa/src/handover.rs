//! Restarts without loss: an engine hands its place at an address over to the engine of the next
//! process.
//!
//! The old process calls [`Engine::hand_over`] and passes the [`Handover`] on, for example in a
//! file. The next process opens its engine with [`Config::handover`](crate::Config::handover), best
//! over the same socket ([`Engine::from_socket`]), because datagrams that arrive in between then
//! wait in the socket's queue. To clients, both are one server: no request is executed twice, and
//! no call fails or is in doubt because of the change.
//!
//! ```
//! use std::time::Duration;
//!
//! use homa::handover::Handover;
//! use homa::{Client, Config, Engine};
//!
//! # fn serve(engine: &Engine) -> std::thread::JoinHandle<()> {
//! #     let server = engine.serve().unwrap();
//! #     std::thread::spawn(move || while let Some(request) = server.accept() {
//! #         let _ = request.reply("done");
//! #     })
//! # }
//! // The socket is inherited from systemd or a parent, so that it outlives this process.
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! let engine = Engine::from_socket(socket.try_clone()?, Config::default())?;
//! let serving = serve(&engine);
//! let client = Client::new()?;
//! assert_eq!(client.call(engine.local_addr(), "first")?, *b"done");
//!
//! // On SIGTERM:
//! let bytes = engine.hand_over(Duration::from_secs(5))?.to_bytes();
//! serving.join().unwrap();
//!
//! // The next process:
//! let config = Config::default().handover(Handover::from_bytes(&bytes)?);
//! let next = Engine::from_socket(socket, config)?;
//! let _serving = serve(&next);
//! assert_eq!(client.call(next.local_addr(), "second")?, *b"done");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use homa_proto::Executions;

use crate::engine::{Engine, clock};
use crate::error::DrainTimeout;

/// The first bytes of a handover: its name and version.
const HEAD: &[u8; 16] = b"homa handover 1\n";

/// What an engine hands over: which requests it executed. It contains secrets of its clients, so
/// other users must not read it. Use it for one engine only, and for none if another engine served
/// at the address in the meantime: the requests of that one would be executed again.
///
/// It has 20 bytes for each client that the server remembers (at most 65,536), and 16 for each
/// range of consecutive requests of a client. A client usually has one range. At most 18 MB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The engine's first address.
    address: SocketAddr,
    executions: Executions,
    /// The time of the handover on the machine's clock.
    at: Duration,
    unfinished: Option<DrainTimeout>,
}

/// An engine cannot hand over, or a handover cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The engine has ended, or handed over before.
    #[error("the engine has ended: there is nothing to hand over")]
    Ended,
    /// The engine is one of several that share an address.
    #[error(
        "engines that share an address cannot hand it over, nor take it over: drain them \
         (`Sharded::drain`), and open them without a handover"
    )]
    Sharded,
    /// The engine was to take the place of one at another address.
    #[error("{at} cannot take the place of an engine at {of}: use the handover at its own address")]
    Elsewhere {
        /// The address of the engine that handed over.
        of: SocketAddr,
        /// The address of this one.
        at: SocketAddr,
    },
    /// The engine was opened before the process was forked.
    #[error("the engine was created before fork(): only the parent process can hand it over")]
    Forked,
    /// The bytes are not those of a handover.
    #[error("this is no handover of this version: open the engine without one")]
    Invalid,
    /// A file with a handover cannot be used.
    #[error("the handover in {path} cannot be used: {source}", path = path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Handover {
    /// The address of the engine. Only an engine at the same address takes it over.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The numbers of calls and requests that were not finished in time; `None` if all were. They
    /// ended as [`CallError::Indeterminate`](crate::CallError::Indeterminate), unless they are
    /// idempotent or were not begun.
    pub fn unfinished(&self) -> Option<DrainTimeout> {
        self.unfinished
    }

    /// The bytes to pass on, for the same version of the program or another.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        let ip = match self.address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes.extend(ip.octets());
        bytes.extend(self.address.port().to_be_bytes());
        let nanos = u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX);
        bytes.extend(nanos.to_be_bytes());
        self.executions.encode(&mut bytes);
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`HandoverError::Invalid`] if the bytes are anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HandoverError> {
        let read = || {
            let (ip, rest) = bytes.strip_prefix(HEAD)?.split_first_chunk::<16>()?;
            let (port, rest) = rest.split_first_chunk()?;
            let ip = Ipv6Addr::from(*ip).to_canonical();
            let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
            let (nanos, rest) = rest.split_first_chunk()?;
            let at = Duration::from_nanos(u64::from_be_bytes(*nanos));
            Some(Self { address, executions: Executions::decode(rest)?, at, unfinished: None })
        };
        read().ok_or(HandoverError::Invalid)
    }

    /// Writes it to a file that only this user can read. An old file is replaced.
    ///
    /// # Errors
    /// [`HandoverError::File`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), HandoverError> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let write = || {
            // A file that an earlier attempt left may have other permissions.
            let _ = fs::remove_file(&beside);
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&self.to_bytes())?;
            fs::rename(&beside, path)
        };
        write().map_err(|source| HandoverError::File { path: path.into(), source })
    }

    /// Reads a file and removes it, so that it is used once; `None` if there is no file.
    ///
    /// # Errors
    /// [`HandoverError::File`] if it cannot be read or removed, and those of [`Self::from_bytes`].
    /// An engine that is opened without it does not execute a request twice either.
    pub fn take(path: impl AsRef<Path>) -> Result<Option<Self>, HandoverError> {
        let path = path.as_ref();
        let bytes = fs::read(path).and_then(|bytes| fs::remove_file(path).map(|()| bytes));
        match bytes {
            Ok(bytes) => Self::from_bytes(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HandoverError::File { path: path.into(), source }),
        }
    }

    /// An error if an engine at another address is to take it over.
    pub(crate) fn check(&self, at: SocketAddr) -> Result<(), HandoverError> {
        let of = self.address;
        match (of.ip(), of.port()) == (at.ip(), at.port()) {
            true => Ok(()),
            false => Err(HandoverError::Elsewhere { of, at }),
        }
    }

    pub(crate) fn executions(&self) -> &Executions {
        &self.executions
    }

    /// For how long nothing was forgotten at a time on the machine's clock. If the machine was
    /// started again, that says less than the truth, which is safe.
    pub(crate) fn covers(&self, now: Duration) -> homa_proto::Duration {
        let since = clock::proto(now.saturating_sub(self.at));
        homa_proto::Duration(self.executions.covers().0.saturating_add(since.0))
    }
}

impl Engine {
    /// Finishes gracefully and hands this engine's place over to the next one at the address. See
    /// [the module](crate::handover).
    ///
    /// Calls and requests in progress are finished and acknowledged, as by [`Self::drain`].
    /// `accept` returns the requests among them, and `None` at the end. New requests are not
    /// refused, but their clients are asked to come back (after 20 ms; later if it takes long),
    /// when the next engine answers them. Afterwards this engine neither receives nor sends. What
    /// has arrived at its socket and was not read stays there for the next engine, if that has the
    /// same socket. Drop this engine then, or end the process.
    ///
    /// # Errors
    /// [`HandoverError::Ended`], [`HandoverError::Sharded`], [`HandoverError::Forked`]. That some
    /// requests are unfinished when `timeout` has passed is no error: [`Handover::unfinished`].
    pub fn hand_over(&self, timeout: Duration) -> Result<Handover, HandoverError> {
        let until = Instant::now().checked_add(timeout);
        self.begin_hand_over()?;
        let left = self.finish(until);
        self.end_hand_over(left)
    }

    /// From now on clients of new requests are asked to come back.
    pub(crate) fn begin_hand_over(&self) -> Result<(), HandoverError> {
        if self.shards().len() > 1 {
            return Err(HandoverError::Sharded);
        }
        let mut access = self.here().ok_or(HandoverError::Forked)?;
        if access.core.ended().is_some() {
            return Err(HandoverError::Ended);
        }
        access.begin_hand_over();
        Ok(())
    }

    /// Hands over, although this many calls and requests are unfinished.
    pub(crate) fn end_hand_over(&self, left: (usize, usize)) -> Result<Handover, HandoverError> {
        let unfinished =
            (left != (0, 0)).then_some(DrainTimeout { calls: left.0, requests: left.1 });
        let mut access = self.here().ok_or(HandoverError::Forked)?;
        if access.core.ended().is_some() {
            return Err(HandoverError::Ended);
        }
        let (executions, at) = access.hand_over();
        drop(access);
        Ok(Handover { address: self.local_addr(), executions, at, unfinished })
    }
}
