//! A socket that the application bound: checks that an engine can use it, and sets the options that
//! [`socket::open`](super::socket::open) sets.
//!
//! Other processes may have descriptors of the same socket, for example systemd, or the process
//! that serves there next. So nothing is done to it that outlives the engine, except options.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::socket::{get, grow_queue, set, set_options};

/// Why a descriptor cannot be an engine's socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFault {
    /// It is open, but not as a socket, or it is closed.
    #[error("it is no socket: pass a UDP socket that is bound")]
    NoSocket,
    /// The socket's family is neither IPv4 nor IPv6.
    #[error("its address family is {family}: pass a UDP socket of IPv4 or IPv6")]
    Family {
        /// The family, as the system numbers it.
        family: i32,
    },
    /// The socket is of another type or protocol, for example TCP.
    #[error(
        "it is of type {kind} and protocol {protocol}: pass a UDP socket (SOCK_DGRAM; for systemd, \
         ListenDatagram= in the socket unit)"
    )]
    NotUdp {
        /// Its type, as the system numbers it.
        kind: i32,
        /// Its protocol, as the system numbers it.
        protocol: i32,
    },
    /// The socket has no local address.
    #[error("it has no local address: bind it first")]
    NotBound,
    /// The socket is connected, so it receives nothing from others.
    #[error("it is connected to {to}, so it receives from nowhere else: pass one that is not")]
    Connected {
        /// The peer.
        to: SocketAddr,
    },
    /// The socket is an IPv6 socket at an IPv4 address.
    #[error("it is an IPv6 socket at the IPv4 address {at}: bind an IPv4 socket there")]
    Mapped {
        /// Its address.
        at: SocketAddr,
    },
    /// The system refused to set it up.
    #[error("the system refuses to set it up: {0}")]
    Refused(#[source] io::Error),
}

/// A new descriptor for what a number of this process stands for, for example 3: the first socket
/// that systemd passes to a service (`LISTEN_FDS`). The old one stays open. Programs that this one
/// starts do not inherit the new one.
///
/// # Errors
/// [`SocketFault::NoSocket`] if nothing is open under the number; [`SocketFault::Refused`] if the
/// system has no descriptor left.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd, SocketFault> {
    // SAFETY: the call takes no pointers; its result is checked before it is owned.
    let new = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if new < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EBADF) => SocketFault::NoSocket,
            _ => SocketFault::Refused(error),
        });
    }
    // SAFETY: `new` was just created, is valid, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Takes over a bound UDP socket. Its receive queue is as large as before, or larger.
pub fn adopt(socket: OwnedFd, receive_buffer: usize) -> Result<UdpSocket, SocketFault> {
    let fd = socket.as_raw_fd();
    let option = |option| get(fd, libc::SOL_SOCKET, option).ok_or(SocketFault::NoSocket);
    let family = option(libc::SO_DOMAIN)?;
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(SocketFault::Family { family });
    }
    let (kind, protocol) = (option(libc::SO_TYPE)?, option(libc::SO_PROTOCOL)?);
    if (kind, protocol) != (libc::SOCK_DGRAM, libc::IPPROTO_UDP) {
        return Err(SocketFault::NotUdp { kind, protocol });
    }
    let socket = UdpSocket::from(socket);
    let local = socket.local_addr().map_err(SocketFault::Refused)?;
    if local.port() == 0 {
        return Err(SocketFault::NotBound);
    }
    if let Ok(to) = socket.peer_addr() {
        return Err(SocketFault::Connected { to });
    }
    // A socket at a mapped address reaches IPv4 hosts only, which is what an IPv4 socket is for.
    if local.is_ipv6() && local.ip().to_canonical().is_ipv4() {
        return Err(SocketFault::Mapped { at: local });
    }
    let ready = || -> io::Result<()> {
        socket.set_nonblocking(true)?;
        // An inherited descriptor is one that programs started by this one would inherit, too.
        // SAFETY: the call takes no pointers.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        grow_queue(fd, receive_buffer)
    };
    ready().map_err(SocketFault::Refused)?;
    set_options(fd, local.ip());
    let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::socket::receive_buffer;
    use super::*;

    #[test]
    fn the_queue_of_an_adopted_socket_never_shrinks() {
        let bound = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let holds = |socket: &UdpSocket| receive_buffer(socket.as_raw_fd()).expect("a queue");
        let usual = holds(&bound());
        for wanted in [0, usual as usize / 2, usual as usize, usual as usize + 1, usize::MAX] {
            let adopted = adopt(bound().into(), wanted).expect("an engine's socket");
            assert!(holds(&adopted) >= usual, "{wanted}: {} of {usual}", holds(&adopted));
        }
    }
}
