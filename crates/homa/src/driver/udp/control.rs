//! Control messages, which accompany a train to and from the kernel.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for the control messages of one train in either direction (three of 24 bytes and one of
/// 40), and for the error queue (one of 16 + 16 + 28 bytes).
const ROOM: usize = 128;

/// A control buffer with the alignment that the kernel's headers need.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Control {
    bytes: [u8; ROOM],
    len: usize,
}

const HEADER: usize = size_of::<libc::cmsghdr>();

const fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

impl Control {
    /// A buffer without messages.
    pub const fn empty() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// Adds a control message.
    pub fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let start = self.len;
        let next = start + HEADER + aligned(data.len());
        assert!(next <= ROOM, "control messages of a train fit their buffer");
        let len = HEADER + data.len();
        self.bytes[start..start + size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 8..start + 12].copy_from_slice(&level.to_ne_bytes());
        self.bytes[start + 12..start + 16].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[start + HEADER..start + len].copy_from_slice(data);
        self.len = next;
    }

    /// Adds the local address to send from.
    pub fn push_source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(v4) => {
                // struct in_pktinfo: interface, address to use, address in the header (ignored
                // here).
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&v4.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(v6) => {
                // struct in6_pktinfo: address, interface.
                let mut info = [0; 20];
                info[..16].copy_from_slice(&v6.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Points the kernel at the buffer: to read the messages, or to write up to its capacity.
    pub fn attach(&mut self, header: &mut libc::msghdr, write: bool) {
        header.msg_control = self.bytes.as_mut_ptr().cast();
        header.msg_controllen = if write { ROOM } else { self.len };
    }

    /// The messages in the first `len` bytes, as the kernel wrote them: level, kind, data.
    pub fn iter(&self, len: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let bytes = &self.bytes[..len.min(ROOM)];
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = bytes.get(at..at + HEADER)?;
            let len = usize::from_ne_bytes(header[..8].try_into().ok()?);
            let level = i32::from_ne_bytes(header[8..12].try_into().ok()?);
            let kind = i32::from_ne_bytes(header[12..16].try_into().ok()?);
            let data = bytes.get(at + HEADER..at + len)?;
            at += aligned(len);
            Some((level, kind, data))
        })
    }
}

/// The local address in a packet-information message of the given level.
pub fn local_address(level: i32, data: &[u8]) -> Option<IpAddr> {
    if level == libc::IPPROTO_IP {
        let address = |at| Some(Ipv4Addr::from(*data.get(at..)?.first_chunk::<4>()?));
        // The address to use is missing if the datagram arrived before the option was set.
        let to_use = address(4)?;
        return Some(if to_use.is_unspecified() { address(8)? } else { to_use }.into());
    }
    let address: [u8; 16] = data.get(..16)?.try_into().ok()?;
    Some(Ipv6Addr::from(address).to_canonical())
}

/// A C int at the start of `data`; kernels send some of them as a single byte.
pub fn int(data: &[u8]) -> i32 {
    match data.first_chunk::<4>() {
        Some(bytes) => i32::from_ne_bytes(*bytes),
        None => data.first().map_or(0, |&b| i32::from(b)),
    }
}

// The layout above is that of 64-bit Linux.
const _: () = assert!(HEADER == 16 && size_of::<usize>() == 8);

/// Makes a socket report the class of received packets.
#[cfg(test)]
pub fn ask_for_class(socket: &impl std::os::fd::AsRawFd) {
    let fd = socket.as_raw_fd();
    // Refused if the socket does not support that family.
    let _ = super::socket::set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let _ = super::socket::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
}

/// The class and the bytes of the next packet in a socket's queue.
#[cfg(test)]
pub fn next_class(socket: &impl std::os::fd::AsRawFd) -> (u8, Vec<u8>) {
    let mut control = Control::empty();
    let mut bytes = vec![0; 2048];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: every field of a header may be zero.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    control.attach(&mut header, true);
    (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
    // SAFETY: the header has no name; its piece, the bytes there and its control buffer outlive the
    // call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    assert!(len >= 0, "{}", std::io::Error::last_os_error());
    let is_class = |kind| matches!(kind, libc::IP_TOS | libc::IPV6_TCLASS);
    let class = control.iter(header.msg_controllen).find(|&(_, kind, _)| is_class(kind));
    bytes.truncate(len as usize);
    (class.unwrap().2[0], bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_a_truncated_one_is_not() {
        let mut control = Control::empty();
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[0x60]);
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1400u16.to_ne_bytes());
        let all: Vec<_> = control.iter(control.len()).collect();
        assert_eq!(all[0], (libc::IPPROTO_IP, libc::IP_TOS, &[0x60][..]));
        assert_eq!(all[1], (libc::SOL_UDP, libc::UDP_SEGMENT, &1400u16.to_ne_bytes()[..]));
        assert_eq!(control.iter(control.len() - 8).count(), 1);
        assert_eq!(control.iter(7).count(), 0);
    }
}
