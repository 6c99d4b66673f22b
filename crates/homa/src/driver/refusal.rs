//! What the error number of a refused system call means for the calls that need it.
//!
//! [`meaning`] is the only table of error numbers. A number that it does not list lasts: nothing
//! shows that another attempt would succeed, and a call that ends at once with the system's reason
//! helps more than one that waits for its deadline.

use std::net::SocketAddr;

use homa_proto::Quoted;

/// The system refused to send a packet, or to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemRefusal {
    /// The packet's destination (port 0 over raw IP), and its quoted part; `None` if the system
    /// refused to receive.
    pub packet: Option<(SocketAddr, Option<Quoted>)>,
    /// The system's error number.
    pub errno: i32,
}

/// What an error number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrnoMeaning {
    /// A signal interrupted the system call.
    Interrupted,
    /// The socket's buffer is full: poll reports when it has room.
    SocketFull,
    /// The device's queue is full, or memory is short there.
    DeviceFull,
    /// There is no way to the host at present.
    NoRoute,
    /// The packet is larger than the link takes.
    TooBig,
    /// The descriptor is not our socket any more.
    Closed,
    /// It may pass: a packet filter, short memory, or an error of an earlier packet.
    Passing,
    /// It will be refused again.
    Lasting,
}

/// The meaning of an error number of `sendmsg`, `recvmsg` and their siblings.
pub(crate) const fn meaning(errno: i32) -> ErrnoMeaning {
    match errno {
        libc::EINTR => ErrnoMeaning::Interrupted,
        libc::EAGAIN => ErrnoMeaning::SocketFull,
        libc::ENOBUFS => ErrnoMeaning::DeviceFull,
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
            ErrnoMeaning::NoRoute
        }
        libc::EMSGSIZE => ErrnoMeaning::TooBig,
        // A descriptor that was closed and given to a file is not a socket.
        libc::EBADF | libc::ENOTSOCK => ErrnoMeaning::Closed,
        // Packet filters refuse with EPERM. The second line is what ICMP reports about earlier
        // packets become.
        libc::EPERM | libc::ENOMEM | libc::EIO | libc::EBUSY | libc::ETIMEDOUT => {
            ErrnoMeaning::Passing
        }
        libc::ECONNREFUSED | libc::EPROTO | libc::ENOPROTOOPT | libc::ENONET => {
            ErrnoMeaning::Passing
        }
        _ => ErrnoMeaning::Lasting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_that_may_pass_are_tried_again() {
        for errno in [libc::EACCES, libc::EINVAL, libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT] {
            assert_eq!(meaning(errno), ErrnoMeaning::Lasting, "{errno}");
        }
        for errno in [libc::EPERM, libc::ENOMEM, libc::ECONNREFUSED] {
            assert_eq!(meaning(errno), ErrnoMeaning::Passing, "{errno}");
        }
        assert_eq!(meaning(libc::ENOBUFS), ErrnoMeaning::DeviceFull);
        assert_eq!(meaning(libc::EBADF), ErrnoMeaning::Closed);
        assert_eq!(meaning(libc::ENETDOWN), ErrnoMeaning::NoRoute);
    }
}
