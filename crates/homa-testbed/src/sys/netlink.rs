//! The few rtnetlink requests a rack needs: make a veth pair, set it up, add addresses, neighbours
//! and queue disciplines. The `ip` and `tc` programs are not needed.
//!
//! Invariant: every request asks for an acknowledgement, and the reply's error is returned.
//! Left out: dumps and notifications; nothing here needs to read the kernel's tables.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{check, socket};

/// A request being written: a netlink header, a fixed part, then attributes.
pub(crate) struct NetlinkRequest {
    bytes: Vec<u8>,
}

/// An attribute that holds attributes, to be closed by [`NetlinkRequest::end`].
pub(crate) struct Nest(usize);

impl NetlinkRequest {
    /// A request of `kind` (RTM_…) that adds `flags` (NLM_F_CREATE, …) to the usual two.
    pub(crate) fn new(kind: u16, flags: libc::c_int) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    /// Appends the fixed part, already in the kernel's layout.
    pub(crate) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self.pad();
        self
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend((4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.pad();
        self
    }

    /// Appends a zero-terminated string attribute.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Opens a nested attribute; what follows until [`NetlinkRequest::end`] is inside it.
    pub(crate) fn begin(mut self, kind: u16) -> (Self, Nest) {
        let at = self.bytes.len();
        self = self.attribute(kind, &[]);
        (self, Nest(at))
    }

    /// Closes a nested attribute.
    pub(crate) fn end(mut self, nest: Nest) -> Self {
        let len = (self.bytes.len() - nest.0) as u16;
        self.bytes[nest.0..nest.0 + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A route socket of the calling thread's network namespace.
pub(crate) struct Netlink {
    fd: OwnedFd,
}

impl Netlink {
    /// Opens the socket.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { fd: socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)? })
    }

    /// Sends one request and waits for the kernel's answer.
    pub(crate) fn call(&self, mut request: NetlinkRequest) -> io::Result<()> {
        let len = request.bytes.len() as u32;
        request.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        let sent = {
            let fd = self.fd.as_raw_fd();
            // SAFETY: the buffer outlives the call and its length is the one passed.
            unsafe { libc::send(fd, request.bytes.as_ptr().cast(), request.bytes.len(), 0) }
        };
        check(sent as libc::c_int)?;
        let mut reply = [0_u8; 4096];
        let received = {
            let fd = self.fd.as_raw_fd();
            // SAFETY: the kernel writes at most the length passed into a buffer of that length.
            unsafe { libc::recv(fd, reply.as_mut_ptr().cast(), reply.len(), 0) }
        };
        let received = check(received as libc::c_int)? as usize;
        if received < 20 {
            return Err(io::Error::other("netlink answered with a truncated message"));
        }
        let kind = u16::from_ne_bytes([reply[4], reply[5]]);
        let code = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
        match (i32::from(kind), code) {
            (libc::NLMSG_ERROR, 0) => Ok(()),
            (libc::NLMSG_ERROR, code) => Err(io::Error::from_raw_os_error(-code)),
            _ => Err(io::Error::other("netlink answered with an unexpected message")),
        }
    }
}

/// Index of the interface `name` in the calling thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let mut request = interface_request(name);
    let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: SIOCGIFINDEX reads the name and writes an int into the same structure.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request) })?;
    // SAFETY: the call succeeded, so the kernel filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// Turns off what lets a host hand the link more than one frame at a time, or frames without a
/// checksum: segmentation, aggregation and checksum offload.
pub(crate) fn disable_offloads(name: &str) -> io::Result<()> {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const ETHTOOL_STSO: u32 = 0x1f;
    const ETHTOOL_SGSO: u32 = 0x24;
    const ETHTOOL_SGRO: u32 = 0x2c;
    let fd = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // Segmentation before checksums: the kernel would turn the former off by itself and then
    // refuse.
    for command in [ETHTOOL_SGRO, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM] {
        let mut value: [u32; 2] = [command, 0];
        let mut request = interface_request(name);
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        // SAFETY: SIOCETHTOOL reads the name and the eight bytes `ifru_data` points at, both alive.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    }
    Ok(())
}

fn interface_request(name: &str) -> libc::ifreq {
    assert!(name.len() < libc::IFNAMSIZ, "interface names are ours and short");
    // SAFETY: ifreq is plain data for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}
