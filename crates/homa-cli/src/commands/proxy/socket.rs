//! TCP and Unix sockets at the end of local programs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use super::{LocalEnd, is_loopback};

/// How long a local server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A stream of bytes that hyper can use.
pub type LocalStream = TokioIo<TcpOrUnix>;

/// A connection of either kind.
#[derive(Debug)]
pub enum TcpOrUnix {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum LocalListener {
    Tcp(TcpListener),
    /// The file is removed before the socket is closed. Otherwise another process could replace it
    /// in between, and lose its own.
    Unix(SocketFile, UnixListener),
}

/// The file of a Unix socket, which is removed at the end.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl LocalListener {
    /// Listens at a path. A socket that an earlier process has left there is replaced.
    pub async fn unix(path: &Path) -> io::Result<Self> {
        let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        // Other errors are those of a socket in use: its queue is full, it belongs to another user,
        // or it takes datagrams.
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(path).await.is_err_and(refuses) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self::Unix(SocketFile(path.to_owned()), listener))
    }

    /// Its address, if it is TCP's.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<LocalStream> {
        match self {
            Self::Tcp(listener) => Ok(tcp(listener.accept().await?.0)),
            Self::Unix(_, listener) => {
                Ok(TokioIo::new(TcpOrUnix::Unix(listener.accept().await?.0)))
            }
        }
    }
}

impl fmt::Display for LocalListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(at) => write!(f, "http://{at}"),
                Err(_) => f.write_str("http"),
            },
            Self::Unix(SocketFile(path), _) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Connects to a local server, which has to be at loopback or may be `anywhere`.
pub async fn connect(to: &LocalEnd, anywhere: bool) -> io::Result<LocalStream> {
    let connecting = async {
        match to {
            LocalEnd::Tcp(at) => {
                let stream = TcpStream::connect(at).await?;
                if !anywhere && !is_loopback(&stream.peer_addr()?) {
                    let why = "the name stands for an address off loopback, for which the proxy \
                               needs --plain-http";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                Ok(tcp(stream))
            }
            LocalEnd::Unix(path) => {
                Ok(TokioIo::new(TcpOrUnix::Unix(UnixStream::connect(path).await?)))
            }
        }
    };
    timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn tcp(stream: TcpStream) -> LocalStream {
    // Short messages would otherwise wait for acknowledgements of those before. If it fails, the
    // connection has ended already, which its next read says.
    let _ = stream.set_nodelay(true);
    TokioIo::new(TcpOrUnix::Tcp(stream))
}

impl AsyncRead for TcpOrUnix {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for TcpOrUnix {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
