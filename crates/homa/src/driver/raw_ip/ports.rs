//! Homa ports of this host, which no kernel hands out where there are only raw sockets.
//!
//! Engines of several processes agree through names: whoever holds the abstract Unix address of a
//! port has the port, and loses it when the process ends. As with the kernel module, a port belongs
//! to the network namespace, whatever addresses it has; clients get theirs from 32,768 up.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::config::random;

/// The first port of clients (Linux: ports below are for servers, which choose theirs).
const FIRST_CLIENT: u16 = 0x8000;
/// Attempts at a free port.
const ATTEMPTS: usize = 256;

/// A port that is ours.
#[derive(Debug)]
pub struct RawPort {
    /// Its number.
    pub number: u16,
    /// Held for its name; `None` where Unix sockets are not to be had.
    _name: Option<UnixDatagram>,
}

/// Takes a port; 0 means any that clients use, at random, so that the packets that an earlier
/// process still gets do not meet the next one.
pub fn claim(wanted: u16) -> io::Result<RawPort> {
    if wanted > 0 {
        return take(wanted);
    }
    let mut result = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..ATTEMPTS {
        result = take(FIRST_CLIENT | random() as u16);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The address whose holder has a port.
fn name(number: u16) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("homa/146/{number}"))
}

/// True when no engine of this host has the port; false also where that cannot be known. Looks
/// without taking it meanwhile.
pub fn is_free(number: u16) -> bool {
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&name(number)?));
    asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// What one engine of the host does for an address, as long as this lives.
#[derive(Debug)]
pub struct OrphanRole(#[allow(dead_code, reason = "held for its name")] UnixDatagram);

/// Takes the role of who answers at an address for ports that nobody has; `None` where another has
/// it, or Unix sockets are not to be had.
pub fn take_role(at: IpAddr) -> Option<OrphanRole> {
    let name = SocketAddr::from_abstract_name(format!("homa/146/orphans/{at}")).ok()?;
    UnixDatagram::bind_addr(&name).ok().map(OrphanRole)
}

fn take(number: u16) -> io::Result<RawPort> {
    match UnixDatagram::bind_addr(&name(number)?) {
        Ok(name) => Ok(RawPort { number, _name: Some(name) }),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok(RawPort { number, _name: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_held_by_one_at_a_time_and_clients_have_their_own_range() {
        let any: Vec<RawPort> = (0..50).map(|_| claim(0).unwrap()).collect();
        assert!(any.iter().all(|port| port.number >= FIRST_CLIENT));
        let number = any[0].number;
        assert_eq!(claim(number).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(!is_free(number));
        drop(any);
        assert!(is_free(number));
        assert_eq!(claim(number).unwrap().number, number);
    }
}
