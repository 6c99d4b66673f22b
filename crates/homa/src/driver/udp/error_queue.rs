//! What the network reported about datagrams sent earlier (ICMP), read from a socket's error queue.

use std::mem::size_of;
use std::os::fd::RawFd;
use std::ptr;

use super::address::Name;
use super::control::Control;
use crate::driver::Unreachable;

/// Takes one report off the queue. `None`: the queue is empty. `Some(None)`: a report that does not
/// say that a destination is unreachable (a smaller MTU, say).
pub fn next(fd: RawFd) -> Option<Option<Unreachable>> {
    let mut name = Name::empty();
    let mut control = Control::empty();
    // The returned payload is not wanted.
    let mut piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
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
    // SAFETY: the header points to a name, an empty piece and a control buffer that outlive the
    // call, with their true lengths.
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
    let to = name.get();
    Some(match (to, error) {
        (Some(to), Some(libc::ECONNREFUSED)) => Some(Unreachable { to, port_only: true }),
        (Some(to), Some(libc::EHOSTUNREACH | libc::ENETUNREACH)) => {
            Some(Unreachable { to, port_only: false })
        }
        _ => None,
    })
}
