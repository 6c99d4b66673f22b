//! Opening UDP sockets with the options that the transport needs.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::address::SocketName;
use super::steering::{self, Steering};
use crate::error::OpenError;

/// A non-blocking socket that reports traffic class, coalesced trains, overflows, and ICMP errors.
pub fn open(at: SocketAddr, receive_buffer: usize) -> io::Result<UdpSocket> {
    let socket = create(at, at.ip().is_unspecified())?;
    bind(&socket, at)?;
    prepare(socket.as_raw_fd(), at.ip(), receive_buffer)?;
    let _ = set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(socket)
}

/// A socket for each shard of `steering` at one address, each as [`open`] opens it.
///
/// The first is bound as if it were alone, so no other socket can be at the address, no matter who
/// asks to share it. No socket receives anything until all of them are there.
///
/// Afterwards the kernel admits other sockets of this user that ask to share (SO_REUSEPORT, which
/// must remain set because the kernel steers only with it), but no engine's. A socket that joins a
/// complete group receives nothing unless it replaces the program. A socket that binds a more
/// specific address receives everything for it. A socket that joins before our last one takes one
/// of our numbers and its datagrams, and shifts the others by one: they then drop and count each
/// other's datagrams. We cannot detect this, because a group does not report its size, nor a socket
/// its number.
pub fn open_group(
    at: SocketAddr,
    receive_buffer: usize,
    steering: &Steering,
) -> Result<Vec<UdpSocket>, OpenError> {
    let refused = |source| OpenError::bind(at, source);
    let first = create_shut(at, receive_buffer)?;
    bind(&first, at).map_err(refused)?;
    share(&first)?;
    let at = first.local_addr().map_err(refused)?;
    let mut sockets = vec![first];
    while sockets.len() < steering.shards() {
        let socket = create_shut(at, receive_buffer)?;
        share(&socket)?;
        bind(&socket, at).map_err(OpenError::Steering)?;
        sockets.push(socket);
    }
    let steered = steering.attach(sockets[0].as_raw_fd());
    let opened = |()| sockets.iter().try_for_each(|socket| steering::open_up(socket.as_raw_fd()));
    steered.and_then(opened).map_err(OpenError::Steering)?;
    Ok(sockets)
}

/// A socket of a group that receives nothing yet.
fn create_shut(at: SocketAddr, receive_buffer: usize) -> Result<UdpSocket, OpenError> {
    let socket = create(at, at.ip().is_unspecified()).map_err(|e| OpenError::bind(at, e))?;
    let fd = socket.as_raw_fd();
    steering::shut(fd).map_err(OpenError::Steering)?;
    prepare(fd, at.ip(), receive_buffer).map_err(OpenError::Resources)?;
    let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(socket)
}

/// Lets sockets of this user that also ask for it share the address.
fn share(socket: &UdpSocket) -> Result<(), OpenError> {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(OpenError::Steering)
}

/// A socket at the address `at` of `main` that only sends. It is an IPv6 socket, which also
/// supports IPv4.
///
/// Both share the address (SO_REUSEPORT) only while this one is bound, so that no other socket can
/// join them. Datagrams arrive at `main`: for IPv4 the kernel prefers IPv4 sockets, and of two
/// equal sockets it uses the first that it finds, and IPv6 sockets that share an address are
/// inserted behind existing ones (Linux 4.5).
pub fn open_sender(main: RawFd, at: SocketAddr) -> io::Result<OwnedFd> {
    let share = |fd, shared| set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, shared);
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut mapped = at;
    mapped.set_ip(ip.into());
    let socket = create(mapped, true)?;
    let fd = socket.as_raw_fd();
    share(fd, 1)?;
    share(main, 1)?;
    let bound = bind(&socket, mapped);
    share(main, 0)?;
    bound?;
    share(fd, 0)?;
    same_network(main, fd)?;
    prepare(fd, at.ip(), 0)?;
    Ok(socket.into())
}

/// A non-blocking socket for the family of `at`. An IPv6 socket that should also support IPv4 does
/// so regardless of `net.ipv6.bindv6only`, if the system allows it: [`speaks_ipv4`].
fn create(at: SocketAddr, dual: bool) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers; its result is checked before it is owned.
    let fd = unsafe { libc::socket(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created, is valid, and has no other owner.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    if at.is_ipv6() && dual {
        let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    }
    Ok(socket)
}

/// Binds a socket of the family of `at`.
fn bind(socket: &UdpSocket, at: SocketAddr) -> io::Result<()> {
    let (name, length) = SocketName::new(at, at.is_ipv6());
    // SAFETY: the pointer is to a socket address of the given length that outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), length) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the system refuse what arrives from now on (ICMP port unreachable), as if the socket,
/// bound to `local`, were closed: it is connected to itself, and a connected socket is not that of
/// other senders.
pub fn accept_only_from(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    let mut itself = local;
    match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => itself.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => itself.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    socket.connect(itself)
}

/// True for a socket at every IPv6 address that supports IPv4.
pub fn speaks_ipv4(fd: RawFd) -> bool {
    get(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(0)
}

/// Sizes the receive queue of a socket bound to `ip`, and sets the options of all sockets.
pub fn prepare(fd: RawFd, ip: IpAddr, receive_buffer: usize) -> io::Result<()> {
    size_queue(fd, receive_buffer)?;
    set_options(fd, ip);
    Ok(())
}

/// Makes the receive queue hold `bytes`, or as many as the kernel grants.
fn size_queue(fd: RawFd, bytes: usize) -> io::Result<()> {
    let size = i32::try_from(bytes).unwrap_or(i32::MAX);
    // The first option needs a privilege, and the second is limited by the system's maximum.
    match set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size) {
        Ok(()) => Ok(()),
        Err(_) => set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, size),
    }
}

/// Makes the receive queue hold `bytes`, or as many as the kernel grants, but never fewer than
/// before: a process with more privileges, for example systemd, may have made it larger than this
/// one can.
pub fn grow_queue(fd: RawFd, bytes: usize) -> io::Result<()> {
    let holds = receive_buffer(fd).map_or(0, |holds| holds as usize);
    if holds >= bytes {
        return Ok(());
    }
    // A new socket shows what this process is granted.
    let trial = create(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false)?;
    size_queue(trial.as_raw_fd(), bytes)?;
    match receive_buffer(trial.as_raw_fd()).is_some_and(|granted| granted as usize > holds) {
        true => size_queue(fd, bytes),
        false => Ok(()),
    }
}

/// Sets what improves the service but is not required; old kernels may refuse some of it.
pub fn set_options(fd: RawFd, ip: IpAddr) {
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    // Packets have the size of the path's MTU, which the engine finds (RFC 8899). They are neither
    // fragmented here nor in transit, and the system's cached MTU of the path is not used, because
    // any host could forge it.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    if ip.is_unspecified() {
        // A host with several addresses must answer from the address that was called.
        let _ = match ip.is_ipv4() {
            true => set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            false => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        };
    }
    if ip.is_ipv6() {
        let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
        let probe = libc::IPV6_PMTUDISC_PROBE;
        let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe);
    }
}

/// Fails if a socket was opened in another network namespace than `main`, because the opening
/// thread may be another one.
pub fn same_network(main: RawFd, socket: RawFd) -> io::Result<()> {
    let cookie = |fd| {
        let mut cookie = 0u64;
        let mut len = size_of::<u64>() as libc::socklen_t;
        // SAFETY: both pointers are to live variables, and `len` is the size of the first.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut len,
            )
        };
        (result == 0).then_some(cookie)
    };
    match cookie(main).is_some() && cookie(main) == cookie(socket) {
        true => Ok(()),
        false => Err(io::Error::other("another network namespace, or Linux before 5.14")),
    }
}

/// Sets the default class of a socket: for both families, or `before` again if one fails.
pub fn set_class(fd: RawFd, is_v6: bool, class: u8, before: u8) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_TOS, class.into())?;
    if is_v6 && let Err(error) = set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into()) {
        set(fd, libc::IPPROTO_IP, libc::IP_TOS, before.into())?;
        return Err(error);
    }
    Ok(())
}

/// Sets an option that is a C int.
pub fn set(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to a C int that outlives the call, and its size is passed.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option that is a C int.
pub fn get(fd: RawFd, level: i32, option: i32) -> Option<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `len` is the size of the first.
    let result =
        unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) };
    (result == 0).then_some(value)
}

/// Bytes of datagrams that fit in the socket's receive queue: the kernel grants twice the requested
/// size, and charges about twice the bytes.
pub fn receive_buffer(fd: RawFd) -> Option<u32> {
    u32::try_from(get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? / 2).ok()
}

/// Memory of the socket's receive queue, bytes: the bytes of each entry and the kernel's overhead.
pub fn unread(fd: RawFd) -> u64 {
    // The first number is the memory of the queue (Linux `sock_diag.h`).
    let mut info = [0u32; 16];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `len` is the size of the first.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    match result {
        0 => info[0].into(),
        // Before Linux 4.12: the largest possible value.
        _ => 2 * u64::from(receive_buffer(fd).unwrap_or(u32::MAX)),
    }
}

/// Bytes sent on the socket that have not left the host, in the kernel's accounting: buffers, not
/// payload.
pub fn queued(fd: RawFd) -> Option<u32> {
    let mut queued: libc::c_int = 0;
    // SAFETY: this request writes one C int through the pointer.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut queued) };
    if result < 0 { None } else { u32::try_from(queued).ok() }
}
