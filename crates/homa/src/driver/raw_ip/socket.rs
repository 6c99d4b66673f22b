//! Opening raw sockets, and the MTU of a route.
//!
//! Each socket for protocol 146 has a companion at the same address that accepts nothing and is
//! never read. A host sends ICMP protocol-unreachable if no raw socket took a packet of an unknown
//! protocol, and a socket whose receive queue is full does not count. A kernel peer then abandons
//! every RPC with this host (Linux §1.7), although only some packets were lost, which it would have
//! sent again. The companion's queue is always empty: it takes every packet, and its filter drops
//! it before it is queued.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::filter;
use crate::driver::udp::address::SocketName;
use crate::driver::udp::socket::{prepare, same_network, set};

/// IP protocol number of Homa (IANA).
const HOMA: libc::c_int = 146;

/// A raw socket.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
    /// The address that it is bound to.
    pub ip: IpAddr,
    /// It receives TCP-hijacked packets, and sends nothing.
    pub hijacked: bool,
    /// Takes packets while the queue is full.
    _companion: Option<OwnedFd>,
}

impl AsRawFd for RawSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RawSocket {
    /// A non-blocking socket bound to `ip` that accepts nothing yet.
    pub fn open(ip: IpAddr, hijacked: bool, receive_buffer: usize) -> io::Result<Self> {
        let companion = match hijacked {
            // The host supports TCP, so it needs no companion.
            true => None,
            false => Some(open(ip, HOMA)?),
        };
        let fd = open(ip, if hijacked { libc::IPPROTO_TCP } else { HOMA })?;
        let socket = Self { fd, ip, hijacked, _companion: companion };
        prepare(socket.as_raw_fd(), ip, receive_buffer)?;
        if hijacked {
            // Reports about TCP connections of others are not for us.
            let _ = set(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 0);
            let _ = set(socket.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 0);
        }
        Ok(socket)
    }

    /// Makes the kernel drop packets to other ports, and TCP packets that are not Homa's. If it
    /// refuses, everything is received and dropped later, because the previous filter has other
    /// ports.
    pub fn accept_only(&self, ports: &[u16]) {
        let program = filter::program(self.ip.is_ipv4(), self.hijacked, ports);
        if program.is_none_or(|code| attach(self.as_raw_fd(), code).is_err()) {
            let _ = set(self.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
        }
    }
}

/// A raw socket bound to `ip` that only sends, beside `main`.
pub fn open_sender(main: RawFd, ip: IpAddr) -> io::Result<OwnedFd> {
    let fd = open(ip, HOMA)?;
    same_network(main, fd.as_raw_fd())?;
    prepare(fd.as_raw_fd(), ip, 0)?;
    Ok(fd)
}

/// A non-blocking raw socket bound to `ip` whose filter accepts nothing.
fn open(ip: IpAddr, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers; its result is checked before it is owned.
    let fd = unsafe { libc::socket(family, kind, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created, is valid, and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    attach(fd.as_raw_fd(), filter::nothing())?;
    let (name, length) = SocketName::new(SocketAddr::new(ip, 0), ip.is_ipv6());
    // SAFETY: the pointer is to a socket address of the given length that outlives the call.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Replaces a socket's filter; the kernel may refuse, for example because memory is short.
fn attach(fd: RawFd, mut code: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the pointer is to a program header whose size is passed and whose array has the
    // length it says; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The MTU of the route to an address, bytes: that of the first link, or less if the network
/// reported it. `None` without a route.
pub fn route_mtu(to: SocketAddr) -> Option<u16> {
    let any = match to.is_ipv4() {
        true => SocketAddr::from(([0; 4], 0)),
        false => SocketAddr::from(([0; 16], 0)),
    };
    let (level, option) = match to.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_MTU),
        false => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    // Connecting looks up the route and sends nothing; the port does not matter.
    let mut at = to;
    at.set_port(9);
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect(at).ok()?;
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `len` is the size of the first.
    let result = unsafe {
        libc::getsockopt(probe.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len)
    };
    (result == 0).then(|| u16::try_from(mtu).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_ourselves_has_the_mtu_of_loopback() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let mtu: u32 = mtu.trim().parse().unwrap();
        let asked = route_mtu("127.0.0.1:4000".parse().unwrap());
        assert_eq!(asked, Some(u16::try_from(mtu).unwrap_or(u16::MAX)));
    }
}
