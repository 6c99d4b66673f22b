//! Network reports about packets that were sent earlier (ICMP), read from a socket's error queue.
//!
//! A report is in the queue and also, until the next system call on the socket returns it, the
//! socket's error. That call may swallow it (`sendmmsg` does after its first entry), and poll
//! reports the socket as ready while the queue is not empty. So the queue is read if a call fails,
//! a batch was sent in part, or nothing arrived although something was expected.
//!
//! A report is classified by ICMP's type and code, not by the system's error number, which is the
//! same for a host that does not exist and for a lost fragment (time exceeded). Only "unreachable"
//! says something about the peer, and "packet too big" about the path.

use std::collections::VecDeque;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use super::address::SocketName;
use super::control::Control;
use crate::driver::refusal::{self, ErrnoMeaning};
use crate::driver::{Missing, SystemRefusal, TooBig, UnreachableReport};

/// Most reports of one kind that are kept; more are dropped.
pub const REPORTS_MAX: usize = 256;
/// Bytes of a quoted packet that are kept: enough for a datagram's header, its extensions, and a
/// few control packets before the first DATA.
const QUOTED: usize = 256;

/// A network report about a packet that was sent earlier.
#[derive(Clone, Copy, Debug)]
pub struct IcmpReport {
    /// The packet's destination; the port is 0 on raw sockets.
    pub to: SocketAddr,
    /// The host, port or protocol that the report says is missing. `None` if the report is about
    /// something else, such as the size of packets or a lost fragment, or does not come from the
    /// network.
    pub what: Option<Missing>,
    /// Set if the packet was too large for the path: see [`TooBig::mtu`].
    pub too_big: Option<Option<u16>>,
    /// Set if our own system refused the packet with this error number.
    pub errno: Option<i32>,
    /// The start of the packet's payload, and how many of its bytes were quoted: at least 8 (RFC
    /// 792).
    quoted: [u8; QUOTED],
    len: usize,
}

impl IcmpReport {
    /// A report that the system made at once, with an error number.
    pub fn refused(to: SocketAddr, errno: i32, packet: &[u8]) -> Self {
        let mut quoted = [0; QUOTED];
        let len = packet.len().min(QUOTED);
        quoted[..len].copy_from_slice(&packet[..len]);
        let report = Self { to, what: None, too_big: None, errno: None, quoted, len };
        match refusal::meaning(errno) {
            ErrnoMeaning::NoRoute => Self { what: Some(Missing::Host), ..report },
            ErrnoMeaning::TooBig => Self { too_big: Some(None), ..report },
            _ => Self { errno: Some(errno), ..report },
        }
    }

    /// The quoted part of the packet's payload.
    pub fn payload(&self) -> &[u8] {
        &self.quoted[..self.len]
    }
}

/// A report about a peer or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReport {
    /// A peer is unreachable.
    Unreachable(UnreachableReport),
    /// A packet was too big.
    TooBig(TooBig),
    /// Our own system refused a packet for another reason.
    Refused(SystemRefusal),
}

/// The report that a device's queue never took a packet.
pub fn full_device(to: SocketAddr) -> PathReport {
    PathReport::Refused(SystemRefusal { packet: Some((to, None)), errno: libc::ENOBUFS })
}

/// Reports that have not been taken.
#[derive(Debug, Default)]
pub struct IcmpReports {
    unreachable: VecDeque<UnreachableReport>,
    too_big: VecDeque<TooBig>,
    refused: VecDeque<SystemRefusal>,
}

/// Adds a report, unless it is already in the queue.
fn push<T: PartialEq>(queue: &mut VecDeque<T>, report: T) {
    if queue.len() < REPORTS_MAX && !queue.contains(&report) {
        queue.push_back(report);
    }
}

impl IcmpReports {
    /// Adds a report.
    pub fn push(&mut self, meaning: PathReport) {
        match meaning {
            PathReport::Unreachable(report) => push(&mut self.unreachable, report),
            PathReport::TooBig(report) => push(&mut self.too_big, report),
            PathReport::Refused(refusal) => push(&mut self.refused, refusal),
        }
    }

    /// The oldest report of an unreachable address.
    pub fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.unreachable.pop_front()
    }

    /// The oldest report of a packet that was too big.
    pub fn too_big(&mut self) -> Option<TooBig> {
        self.too_big.pop_front()
    }

    /// The oldest refusal of our own system.
    pub fn refusal(&mut self) -> Option<SystemRefusal> {
        self.refused.pop_front()
    }

    /// Empties a socket's queue, and keeps the reports that `meaning` accepts; true if there were
    /// any.
    pub fn drain(
        &mut self,
        fd: RawFd,
        meaning: impl Fn(&IcmpReport) -> Option<PathReport>,
    ) -> bool {
        let mut any = false;
        for _ in 0..REPORTS_MAX {
            let Some(report) = next(fd) else { break };
            any = true;
            if let Some(meaning) = meaning(&report) {
                self.push(meaning);
            }
        }
        any
    }
}

/// The MTU in an ICMP message about a packet that was too big (RFC 1191 §4, RFC 4443 §3.2).
fn too_big(origin: u8, kind: u8, code: u8, info: u32) -> Option<u16> {
    match (origin, kind, code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => {
            Some(u16::try_from(info).unwrap_or(u16::MAX))
        }
        _ => None,
    }
}

/// What an ICMP message reports as missing.
fn missing(origin: u8, kind: u8, code: u8) -> Option<Missing> {
    match (origin, kind, code) {
        // RFC 792 and 1812; code 4 is about the size of packets, code 5 about source routes.
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

/// Takes one report from the queue; `None` if it is empty.
fn next(fd: RawFd) -> Option<IcmpReport> {
    let mut name = SocketName::empty();
    let mut control = Control::empty();
    let mut quoted = [0; QUOTED];
    let mut piece = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: QUOTED };
    let mut header = libc::msghdr {
        msg_name: (&raw mut name).cast(),
        msg_namelen: size_of::<SocketName>() as libc::socklen_t,
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
    let (what, mtu) = control
        .iter(header.msg_controllen)
        .find_map(|(level, kind, data)| {
            let ours = matches!(
                (level, kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            // struct sock_extended_err: an error number of four bytes, then these, a byte of
            // padding, and additional data.
            let &[origin, kind, code, _, a, b, c, d] = data.get(4..)?.first_chunk()?;
            let info = u32::from_ne_bytes([a, b, c, d]);
            ours.then(|| (missing(origin, kind, code), too_big(origin, kind, code, info)))
        })
        .unwrap_or_default();
    let len = usize::try_from(got).map_or(0, |got| got.min(QUOTED));
    let nowhere = SocketAddr::from(([0; 4], 0));
    Some(match name.get() {
        Some(to) => IcmpReport { to, what, too_big: mtu.map(Some), errno: None, quoted, len },
        None => IcmpReport { to: nowhere, what: None, too_big: None, errno: None, quoted, len },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packet_too_big_messages_contain_an_mtu() {
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        for ((origin, kind, code, info), expected) in [
            ((v4, 3, 4, 1200), Some(1200)),
            ((v4, 3, 4, 0), Some(0)),
            ((v4, 3, 3, 1200), None),
            ((v4, 11, 0, 1200), None),
            ((v6, 2, 0, 1280), Some(1280)),
            ((v6, 2, 0, 100_000), Some(u16::MAX)),
            ((v6, 3, 0, 1280), None),
            ((libc::SO_EE_ORIGIN_LOCAL, 3, 4, 1200), None),
        ] {
            assert_eq!(too_big(origin, kind, code, info), expected, "{origin} {kind} {code}");
        }
    }

    #[test]
    fn only_unreachable_says_something_about_the_peer() {
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        for (message, expected) in [
            ((v4, 3, 1), Some(Missing::Host)),
            ((v4, 3, 2), Some(Missing::Protocol)),
            ((v4, 3, 3), Some(Missing::Port)),
            ((v4, 3, 4), None),
            ((v4, 3, 13), Some(Missing::Host)),
            // Time exceeded: in transit, and while waiting for a lost fragment.
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
