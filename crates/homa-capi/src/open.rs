//! Opening, naming, watching and closing sockets.

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use homa::driver::Driver;
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::{Config, OpenError, Socket};
use libc::{sockaddr, socklen_t};

use crate::address;
use crate::error::{Error, guard};
use crate::options::{DriverKind, Settings, homa_options};
use crate::table::{self, Handle};

/// Opens a socket, client and server at once, for any number of peers.
///
/// With an address (port 0: any free one) it accepts requests there. With a null address it is only
/// a client, at any port. `options` may be null: all defaults.
///
/// The descriptor is readable exactly when homa_recv would not fail with EAGAIN: watch it with
/// poll, select or epoll, but neither read nor write it, and close it with homa_close.
///
/// Returns the descriptor, or -1: EINVAL (an option, homa_strerror says which), EADDRINUSE,
/// EADDRNOTAVAIL, EAFNOSUPPORT, EPERM (raw-ip without CAP_NET_RAW), EMFILE and others of bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket(
    bind_addr: *const sockaddr,
    addrlen: socklen_t,
    options: *const homa_options,
) -> c_int {
    guard(|| {
        // SAFETY: our caller vouches for the options.
        let settings = unsafe { Settings::read(options)? };
        let at = match bind_addr.is_null() {
            true => None,
            // SAFETY: our caller vouches for the address and its length.
            false => Some(unsafe { address::read(bind_addr, addrlen, "bind_addr")? }),
        };
        let socket = open(at, &settings)?;
        if at.is_some() {
            socket.listen();
        }
        let max_message = settings.config.protocol.max_message;
        table::insert(Handle::new(socket, settings.deadline, max_message))
    })
}

fn open(at: Option<SocketAddr>, settings: &Settings) -> Result<Socket, Error> {
    let any = |ip: IpAddr| SocketAddr::new(ip, 0);
    match (at, settings.driver) {
        (Some(at), _) => open_at(at, settings),
        (None, DriverKind::Memory) => open_at(any(Ipv4Addr::LOCALHOST.into()), settings),
        // IPv6 also reaches IPv4 hosts, where there is IPv6.
        (None, _) => open_at(any(Ipv6Addr::UNSPECIFIED.into()), settings)
            .or_else(|_| open_at(any(Ipv4Addr::UNSPECIFIED.into()), settings)),
    }
}

fn open_at(at: SocketAddr, settings: &Settings) -> Result<Socket, Error> {
    let config: Config = settings.config.clone();
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

/// Tells where a socket is bound: at most *addrlen bytes are written to `addr`, and *addrlen is set
/// to the length of the whole address.
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
        // SAFETY: neither is null, and our caller vouches for them and for `*addrlen` bytes.
        unsafe { *addrlen = address::write(handle.socket.local_addr(), addr, *addrlen) };
        Ok(0)
    })
}

/// Finishes gracefully: from here on nothing new is sent or accepted, and the call blocks until
/// every RPC in progress is finished and acknowledged, or `timeout_ms` have passed (negative: no
/// limit; 0: does not wait). What has arrived, and the ends of calls in progress, can still be
/// received, also by threads that wait for them; then homa_recv fails with ESHUTDOWN, and the
/// descriptor stays readable. homa_close has yet to be called.
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

/// Closes a socket and ends what is in progress: calls are forgotten, replies that were not
/// delivered whole are lost (homa_drain first if they matter), threads that wait in homa_recv
/// return with ESHUTDOWN. Buffers from homa_recv_message stay valid.
///
/// Returns 0, or -1: EBADF (also when the descriptor was closed with close(2), by mistake: the
/// socket is closed then, and a file that has got its number is not).
#[unsafe(no_mangle)]
pub extern "C" fn homa_close(sockfd: c_int) -> c_int {
    guard(|| {
        table::remove(sockfd, |handle| handle.socket.close())?;
        Ok(0)
    })
}

/// Writes what a socket has counted, as OpenMetrics text, and a zero byte: at most `len` bytes
/// altogether. `buf` may be null if `len` is 0.
///
/// Returns the length of the whole text without the zero byte (as snprintf: at least `len` means
/// that it was cut), or -1: EBADF, EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_metrics(sockfd: c_int, buf: *mut c_char, len: usize) -> c_int {
    guard(|| {
        let text = table::get(sockfd)?.socket.metrics().to_openmetrics();
        if len > 0 {
            if buf.is_null() {
                return Err(Error::null("buf"));
            }
            let fits = text.len().min(len - 1);
            // SAFETY: our caller vouches for `len` bytes, of which these are fewer.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, fits);
                *buf.add(fits) = 0;
            }
        }
        Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
    })
}

/// The version of libhoma, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn homa_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
