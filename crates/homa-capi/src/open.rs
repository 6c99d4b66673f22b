//! Opens, names, watches and closes sockets.

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::driver::{Driver, duplicate};
use homa::{Config, OpenError, Socket};
use libc::{sockaddr, socklen_t};

use crate::address;
use crate::error::{Error, guard};
use crate::options::{DriverKind, Settings, homa_options};
use crate::table::{self, Handle};
use crate::text;

/// Opens a socket, which is a client and a server at once, for any number of peers.
///
/// If an address is given (port 0: any free port), it accepts requests there. If the address is
/// null, it is only a client, at any port. Over UDP, an address that is not on loopback needs a key
/// file or HOMA_PLAINTEXT, and so do calls to other hosts. If `options` is null, all options have
/// their defaults.
///
/// The descriptor is readable exactly if homa_recv would not fail with EAGAIN. Watch it with poll,
/// select or epoll. Do not read or write it, and close it with homa_close.
///
/// Returns the descriptor, or -1: EINVAL (a wrong option, named by homa_strerror), E2BIG (an option
/// of a later version), ENOENT or EACCES (the key file), EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT,
/// EPERM (raw-ip without CAP_NET_RAW), ENOKEY (an address that is not on loopback, and neither a
/// key file nor HOMA_PLAINTEXT), EMFILE and other errors of bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket(
    bind_addr: *const sockaddr,
    addrlen: socklen_t,
    options: *const homa_options,
) -> c_int {
    guard(|| {
        // SAFETY: the caller guarantees the options.
        let settings = unsafe { Settings::read(options)? };
        // SAFETY: the caller guarantees the address and its length.
        let at = unsafe { address::read_given(bind_addr, addrlen, "bind_addr")? };
        let socket = open(at, &settings)?;
        if at.is_some() {
            listen(&socket, &settings)?;
        }
        table::insert(Handle::new(socket, &settings))
    })
}

/// Opens a socket, as homa_socket does, over a UDP socket that is already bound, for example one
/// that systemd passes (descriptor 3, if LISTEN_FDS is set). It accepts requests, also those that
/// wait in the queue. The options of `fd` are changed, but the descriptor is not used any more, and
/// may be closed. Only one process should use the UDP socket at a time.
///
/// Returns the descriptor, or -1: ENOTSOCK (`fd` is closed, or no socket), EINVAL (`fd` is not a
/// UDP socket of IPv4 or IPv6 that is bound and not connected, or an option is wrong; homa_strerror
/// says which), ENOKEY (as homa_socket), EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_from_fd(fd: c_int, options: *const homa_options) -> c_int {
    guard(|| {
        // SAFETY: the caller guarantees the options.
        let settings = unsafe { Settings::read(options)? };
        if settings.driver != DriverKind::Udp {
            return Err(Error::invalid("a UDP socket needs the driver \"udp\" in `options`"));
        }
        let socket = duplicate(fd).map_err(OpenError::from)?;
        let socket = Socket::from_socket(socket, settings.config.clone())?;
        listen(&socket, &settings)?;
        table::insert(Handle::new(socket, &settings))
    })
}

fn listen(socket: &Socket, settings: &Settings) -> Result<(), OpenError> {
    match settings.early {
        0 => socket.listen(),
        window => socket.listen_early(window as usize),
    }
}

fn open(at: Option<SocketAddr>, settings: &Settings) -> Result<Socket, Error> {
    let any = |ip: IpAddr| SocketAddr::new(ip, 0);
    match (at, settings.driver) {
        (Some(at), _) => open_at(at, settings),
        (None, DriverKind::Memory) => open_at(any(Ipv4Addr::LOCALHOST.into()), settings),
        // On hosts with IPv6, a socket at an IPv6 address also reaches IPv4 hosts.
        (None, _) => open_client(any(Ipv6Addr::UNSPECIFIED.into()), settings)
            .or_else(|_| open_client(any(Ipv4Addr::UNSPECIFIED.into()), settings)),
    }
}

fn open_client(at: SocketAddr, settings: &Settings) -> Result<Socket, Error> {
    open_with(at, settings, settings.config.clone().calls_only())
}

fn open_at(at: SocketAddr, settings: &Settings) -> Result<Socket, Error> {
    open_with(at, settings, settings.config.clone())
}

fn open_with(at: SocketAddr, settings: &Settings, config: Config) -> Result<Socket, Error> {
    let driver: Box<dyn Driver> = match settings.driver {
        DriverKind::Udp => <dyn Driver>::udp(at, config.receive_buffer)?,
        DriverKind::RawIp => <dyn Driver>::raw_ip(at, config.receive_buffer)?,
        DriverKind::Memory => {
            static NETWORK: OnceLock<MemoryNetwork> = OnceLock::new();
            let network = NETWORK.get_or_init(|| MemoryNetwork::new(1, NetworkFaults::default()));
            Box::new(network.driver(at).map_err(|source| OpenError::bind(at, source))?)
        }
    };
    Ok(Socket::with_driver(driver, config)?)
}

/// Writes the address of a socket, and sets *addrlen to its length. If the address is longer than
/// the old *addrlen, only that many bytes are written to `addr`.
///
/// Returns 0, or -1: EBADF, EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_getsockname(
    sockfd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        if addr.is_null() || addrlen.is_null() {
            return Err(Error::null("addr or addrlen"));
        }
        // SAFETY: neither is null, and the caller guarantees both and `*addrlen` bytes.
        unsafe { *addrlen = address::write(handle.socket.local_addr(), addr, *addrlen) };
        Ok(0)
    })
}

/// Shuts a socket down gracefully. New calls and requests are refused. Blocks until every RPC in
/// progress is finished and acknowledged, or `timeout_ms` have passed (negative: no limit; 0: does
/// not wait). Messages that have arrived, and the ends of calls in progress, can still be received,
/// also by threads that already wait. After that, homa_recv fails with ESHUTDOWN, and the
/// descriptor stays readable. If a call was sent early (HOMA_EARLY_DATA), it also waits for the end
/// of the handshake, with which the ticket for the next socket comes unless it is lost. Call
/// homa_close when done.
///
/// Returns 0, or -1: EBADF, ETIMEDOUT (some RPCs are unfinished; homa_strerror says how many).
#[unsafe(no_mangle)]
pub extern "C" fn homa_drain(sockfd: c_int, timeout_ms: c_int) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        let timeout = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        handle.socket.drain(timeout).map_err(|e| Error::new(libc::ETIMEDOUT, e.to_string()))?;
        Ok(0)
    })
}

/// Closes a socket and ends its RPCs. Calls are forgotten, and replies that are not yet fully
/// delivered are lost, so call homa_drain first if they matter. Threads that wait in homa_recv,
/// homa_read or homa_balancer_call return with ESHUTDOWN. Buffers from homa_recv_message stay
/// valid.
///
/// Returns 0, or -1: EBADF. This is also the result if the descriptor was closed with close(2) by
/// mistake. Then the socket is closed, but a new file with the same number is not.
#[unsafe(no_mangle)]
pub extern "C" fn homa_close(sockfd: c_int) -> c_int {
    guard(|| {
        table::remove(sockfd, |handle| handle.socket.close())?;
        Ok(0)
    })
}

/// Writes the counters of a socket as OpenMetrics text, and a zero byte, at most `len` bytes in
/// total. `buf` may be null if `len` is 0.
///
/// Returns the length of the whole text without the zero byte, as snprintf does, or -1: EBADF,
/// EFAULT. If the result is at least `len`, the text was cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_metrics(sockfd: c_int, buf: *mut c_char, len: usize) -> c_int {
    guard(|| {
        let text = table::get(sockfd)?.socket.metrics().to_openmetrics();
        // SAFETY: the caller guarantees `len` bytes unless the pointer is null.
        unsafe { text::write(&text, buf, len) }
    })
}

/// Returns the version of libhoma, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn homa_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
