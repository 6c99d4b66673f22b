//! Homa ports of this host. The kernel does not allocate them, because raw sockets have no ports.
//!
//! Engines of several processes agree through names: the engine that binds the abstract Unix
//! address of a port has the port, and loses it when its process ends. As with the kernel module, a
//! port belongs to the network namespace, not to an address. Clients use ports from 32,768 up.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::config::random;

/// The first port of clients (Linux: lower ports are for servers, which choose theirs).
const FIRST_CLIENT: u16 = 0x8000;
/// Attempts to find a free port.
const ATTEMPTS: usize = 256;

/// A port of this engine.
#[derive(Debug)]
pub struct RawPort {
    /// Its number.
    pub number: u16,
    /// Keeps the name; `None` if Unix sockets are not available.
    _name: Option<UnixDatagram>,
}

/// Claims a port; 0 means any port for clients. It is chosen at random, so that packets for an
/// earlier process do not reach the next one.
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

/// The Unix address whose owner has a port.
fn name(number: u16) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("homa/146/{number}"))
}

/// True if no engine of this host has the port; false also if that is unknown. It does not claim
/// the port, not even for a moment.
pub fn is_free(number: u16) -> bool {
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&name(number)?));
    asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The role of answering for an address, which one engine of the host has as long as this lives.
#[derive(Debug)]
pub struct OrphanRole(#[allow(dead_code, reason = "held for its name")] UnixDatagram);

/// Claims the role of answering at an address for ports that no engine has; `None` if another has
/// it, or Unix sockets are not available.
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
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_port_has_one_owner_and_clients_have_a_separate_range() {
        let any: Vec<RawPort> = (0..50).map(|_| claim(0).unwrap()).collect();
        assert!(any.iter().all(|port| port.number >= FIRST_CLIENT));
        let number = any[0].number;
        assert_eq!(claim(number).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(!is_free(number));
        drop(any);
        // A test beside this one that starts a program copies our descriptors, and closes the
        // copies a moment later.
        let until = Instant::now() + Duration::from_secs(20);
        while !is_free(number) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_free(number));
        assert_eq!(claim(number).unwrap().number, number);
    }
}
