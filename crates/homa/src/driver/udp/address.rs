//! Socket addresses in the kernel's format.
//!
//! IPv4 destinations of an IPv6 socket are written in mapped form, and mapped sources are read as
//! IPv4, so that a host has one address.

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A kernel socket address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SocketName {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl SocketName {
    /// An empty address for the kernel to write to.
    pub fn empty() -> Self {
        let address = libc::in6_addr { s6_addr: [0; 16] };
        Self {
            v6: libc::sockaddr_in6 {
                sin6_family: 0,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: address,
                sin6_scope_id: 0,
            },
        }
    }

    /// `to` in the format for a socket of the given family, and its length.
    pub fn new(to: SocketAddr, on_v6: bool) -> (Self, libc::socklen_t) {
        let mut name = Self::empty();
        let to = match to {
            SocketAddr::V4(v4) if !on_v6 => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                return (name, size_of::<libc::sockaddr_in>() as libc::socklen_t);
            }
            SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
            SocketAddr::V6(v6) => v6,
        };
        name.v6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: to.port().to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
            sin6_scope_id: to.scope_id(),
        };
        (name, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
    }

    /// The address that the kernel wrote; `None` for other families.
    pub fn get(&self) -> Option<SocketAddr> {
        // SAFETY: both variants begin with the family, and every variant was fully initialised by
        // `empty`, so that reading any field reads initialised memory.
        let family = unsafe { self.v4.sin_family };
        match i32::from(family) {
            libc::AF_INET => {
                // SAFETY: the kernel wrote this family; the memory is initialised in any case.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: the kernel wrote this family; the memory is initialised in any case.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(match ip.to_ipv4_mapped() {
                    Some(ip) => SocketAddr::from((ip, port)),
                    None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_one_address_on_either_kind_of_socket() {
        for text in ["10.1.2.3:4000", "[2001:db8::7]:65535", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            for on_v6 in [true, false] {
                assert_eq!(SocketName::new(address, on_v6).0.get(), Some(address));
            }
        }
        assert_eq!(SocketName::empty().get(), None);
    }
}
