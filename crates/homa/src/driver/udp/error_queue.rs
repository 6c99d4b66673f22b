//! What the network reported about datagrams sent earlier (ICMP), read from a socket's error queue.

use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use super::address::Name;
use super::control::Control;
/// Bytes kept of a packet that came back: addresses of ports and no more.
const QUOTED: usize = 8;

/// What the network said about a packet sent earlier.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Where it was sent; the port is 0 on raw sockets.
    pub to: SocketAddr,
    /// What is wrong, as the system's error number; 0 when it is not the network that speaks.
    pub errno: i32,
    /// The start of its payload.
    pub quoted: [u8; QUOTED],
}

/// Takes one report off the queue; `None` when it is empty.
pub fn next(fd: RawFd) -> Option<Report> {
    let mut name = Name::empty();
    let mut control = Control::empty();
    let mut quoted = [0; QUOTED];
    let mut piece = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: QUOTED };
    let mut header = libc::msghdr {
        msg_name: (&raw mut name).cast(),
        msg_namelen: size_of::<Name>() as libc::socklen_t,
        msg_iov: &raw mut piece,
        msg_iovlen: 1,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    control.attach(&mut header, true);
    // SAFETY: the header points to a name, a piece over an array and a control buffer that outlive
    // the call, with their true lengths.
    let got =
        unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if got < 0 {
        return None;
    }
    let error = control.iter(header.msg_controllen).find_map(|(level, kind, data)| {
        let ours = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        // struct sock_extended_err: errno, then origin.
        let errno = u32::from_ne_bytes(*data.first_chunk::<4>()?) as i32;
        let origin = *data.get(4)?;
        let from_network = origin == libc::SO_EE_ORIGIN_ICMP || origin == libc::SO_EE_ORIGIN_ICMP6;
        (ours && from_network).then_some(errno)
    });
    let nowhere = SocketAddr::from(([0; 4], 0));
    Some(match name.get() {
        Some(to) => Report { to, errno: error.unwrap_or(0), quoted },
        None => Report { to: nowhere, errno: 0, quoted },
    })
}
