//! What the network reported about packets sent earlier (ICMP), read from a socket's error queue.
//!
//! A report waits in the queue and, until the next system call on the socket returns it, as the
//! socket's error. That call may keep it to itself (`sendmmsg` does after its first entry), and as
//! long as the queue is not empty the socket looks ready to whoever polls. So the queue is read
//! whenever a call fails, a batch was sent in part, or nothing arrived where something was
//! expected.
//!
//! What a report means is read from ICMP's type and code, not from the error number of the system,
//! which is the same for a host that does not exist and for a fragment that was lost (time
//! exceeded). Only "unreachable" says something about the peer.

use std::collections::VecDeque;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use super::address::Name;
use super::control::Control;
use crate::driver::{Missing, Unreachable};

/// Reports of unreachable addresses kept until asked for; more are forgotten.
const UNREACHABLE_MAX: usize = 256;
/// Bytes kept of a packet that came back: as many as show a datagram's header, its extensions, and
/// a few control packets before the first DATA.
const QUOTED: usize = 256;

/// What the network said about a packet sent earlier.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Where it was sent; the port is 0 on raw sockets.
    pub to: SocketAddr,
    /// What is missing there; `None` when the report is about something else, such as the size of
    /// packets or a lost fragment, or does not come from the network.
    pub what: Option<Missing>,
    /// The start of its payload, and how many bytes of that came back: at least 8 (RFC 792).
    quoted: [u8; QUOTED],
    len: usize,
}

impl Report {
    /// The network refused a packet that begins so at once.
    pub fn refused(to: SocketAddr, what: Missing, packet: &[u8]) -> Self {
        let mut quoted = [0; QUOTED];
        let len = packet.len().min(QUOTED);
        quoted[..len].copy_from_slice(&packet[..len]);
        Self { to, what: Some(what), quoted, len }
    }

    /// What came back of the packet's payload.
    pub fn payload(&self) -> &[u8] {
        &self.quoted[..self.len]
    }
}

/// Reports that nobody has asked for yet.
#[derive(Debug, Default)]
pub struct Reports(VecDeque<Unreachable>);

impl Reports {
    /// Adds a report, unless it waits already.
    pub fn push(&mut self, unreachable: Unreachable) {
        if self.0.len() < UNREACHABLE_MAX && !self.0.contains(&unreachable) {
            self.0.push_back(unreachable);
        }
    }

    /// The oldest report.
    pub fn pop(&mut self) -> Option<Unreachable> {
        self.0.pop_front()
    }

    /// Empties a socket's queue and keeps what has a `meaning`; true when there was anything.
    pub fn drain(&mut self, fd: RawFd, meaning: impl Fn(&Report) -> Option<Unreachable>) -> bool {
        let mut any = false;
        for _ in 0..UNREACHABLE_MAX {
            let Some(report) = next(fd) else { break };
            any = true;
            if let Some(unreachable) = meaning(&report) {
                self.push(unreachable);
            }
        }
        any
    }
}

/// What is missing according to an ICMP message.
fn missing(origin: u8, kind: u8, code: u8) -> Option<Missing> {
    match (origin, kind, code) {
        // RFC 792 and 1812; 4 is about the size of packets, 5 about source routes.
        (libc::SO_EE_ORIGIN_ICMP, 3, 2) => Some(Missing::Protocol),
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) => Some(Missing::Port),
        (libc::SO_EE_ORIGIN_ICMP, 3, 4 | 5) => None,
        (libc::SO_EE_ORIGIN_ICMP, 3, _) => Some(Missing::Host),
        // RFC 4443.
        (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => Some(Missing::Port),
        (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Some(Missing::Host),
        (libc::SO_EE_ORIGIN_ICMP6, 4, 1) => Some(Missing::Protocol),
        _ => None,
    }
}

/// Takes one report off the queue; `None` when it is empty.
fn next(fd: RawFd) -> Option<Report> {
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
    let what = control.iter(header.msg_controllen).find_map(|(level, kind, data)| {
        let ours = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        // struct sock_extended_err: an error number of four bytes, then these.
        let &[origin, kind, code] = data.get(4..)?.first_chunk()?;
        ours.then(|| missing(origin, kind, code))?
    });
    let len = usize::try_from(got).map_or(0, |got| got.min(QUOTED));
    let nowhere = SocketAddr::from(([0; 4], 0));
    Some(match name.get() {
        Some(to) => Report { to, what, quoted, len },
        None => Report { to: nowhere, what: None, quoted, len },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreachable_says_something_about_the_peer() {
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        for (message, expected) in [
            ((v4, 3, 1), Some(Missing::Host)),
            ((v4, 3, 2), Some(Missing::Protocol)),
            ((v4, 3, 3), Some(Missing::Port)),
            ((v4, 3, 4), None),
            ((v4, 3, 13), Some(Missing::Host)),
            // Time exceeded: on the way, and while a lost fragment was waited for.
            ((v4, 11, 0), None),
            ((v4, 11, 1), None),
            ((v4, 12, 0), None),
            ((v6, 1, 0), Some(Missing::Host)),
            ((v6, 1, 4), Some(Missing::Port)),
            ((v6, 2, 0), None),
            ((v6, 3, 1), None),
            ((v6, 4, 0), None),
            ((v6, 4, 1), Some(Missing::Protocol)),
            ((libc::SO_EE_ORIGIN_LOCAL, 3, 3), None),
        ] {
            let (origin, kind, code) = message;
            assert_eq!(missing(origin, kind, code), expected, "{message:?}");
        }
    }
}
