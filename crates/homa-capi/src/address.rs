//! Converts socket addresses between C and Rust.

use std::ffi::c_void;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::error::Error;

/// Reads an address.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
pub unsafe fn read(
    address: *const sockaddr,
    length: socklen_t,
    what: &str,
) -> Result<SocketAddr, Error> {
    if address.is_null() {
        return Err(Error::null(what));
    }
    let length = length as usize;
    let too_short =
        || Error::invalid(format!("`{what}` has {length} bytes, too few for its address family"));
    if length < size_of::<libc::sa_family_t>() {
        return Err(too_short());
    }
    // SAFETY: the caller guarantees `length` bytes, enough for the family, which comes first.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    match i32::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: the caller guarantees `length` bytes, enough for this structure.
            let v4 = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: the caller guarantees `length` bytes, enough for this structure.
            let v6 = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(too_short()),
        family => Err(Error::new(
            libc::EAFNOSUPPORT,
            format!("`{what}` has address family {family}: use AF_INET or AF_INET6"),
        )),
    }
}

/// Reads an address that may be left away: null is none.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_given(
    address: *const sockaddr,
    length: socklen_t,
    what: &str,
) -> Result<Option<SocketAddr>, Error> {
    match address.is_null() {
        true => Ok(None),
        // SAFETY: the caller guarantees it.
        false => unsafe { read(address, length, what).map(Some) },
    }
}

/// Converts an address to its C structure. Also returns its length.
pub fn to_c(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all zeroes are a valid value of this structure of integers.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let from = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is large enough, and aligned, for every address.
            unsafe { place.cast::<sockaddr_in>().write(from) };
            (storage, size_of::<sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(v6) => {
            let from = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(from) };
            (storage, size_of::<sockaddr_in6>() as socklen_t)
        }
    }
}

/// Writes an address, or its first `room` bytes if it is longer. Returns its full length.
///
/// # Safety
///
/// `to` is null (then nothing is written) or points to `room` writable bytes.
pub unsafe fn write(address: SocketAddr, to: *mut sockaddr, room: socklen_t) -> socklen_t {
    let (storage, length) = to_c(address);
    if !to.is_null() {
        let from = (&raw const storage).cast::<c_void>();
        // SAFETY: the caller guarantees `room` writable bytes. `length` bytes of storage are
        // readable.
        unsafe { ptr::copy_nonoverlapping(from, to.cast(), room.min(length) as usize) };
    }
    length
}
