//! Addresses of names: a name may have several, this machine some of them, and a server may be at
//! one of them.
//!
//! To find a server, they are tried in turn with a packet that executes nothing: a NEED_ACK for an
//! RPC that does not exist, which every engine answers: with an ACK or, if it has keys, with a
//! refusal (`docs/udp-encapsulation.md`).

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use homa::proto::wire::datagram;
use homa::proto::{Body, Packet, PeerId, RpcId};
use nix::errno::Errno;

/// How long an address may take to answer before the next one is tried.
const TIMEOUT: Duration = Duration::from_millis(300);

/// NEED_ACKs in the question: a host that is not known gets at most three times the bytes that it
/// sent, and the answer to one is longer than that.
const QUESTIONS: u64 = 3;

/// The first bytes of a datagram of a handshake: the version, and its flag.
const HANDSHAKE: [u8; 2] = [1, 4];

/// The addresses of `10.0.0.7:4000`, `[::1]:4000`, `[fe80::1%eth0]:4000` (an interface's name or
/// number) or `name:4000`.
pub fn addresses(text: &str) -> io::Result<Vec<SocketAddr>> {
    let scoped = text.strip_prefix('[').and_then(|text| text.rsplit_once("]:"));
    let found = match scoped.filter(|(host, _)| host.contains('%')) {
        // The system knows the interfaces.
        Some((host, port)) => {
            let port: u16 = port.parse().map_err(|_| io::Error::other("no port"))?;
            (host, port).to_socket_addrs()?
        }
        None => text.to_socket_addrs()?,
    };
    let mut all: Vec<SocketAddr> = Vec::new();
    // The system lists an address once for each kind of socket.
    found.for_each(|address| {
        if !all.contains(&address) {
            all.push(address);
        }
    });
    Ok(all)
}

/// Those of several addresses that this machine has; all if it has none, so that binding says what
/// is wrong. `localhost`, for example, is `::1`, too, where a container has no IPv6.
pub fn own(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let has = |at: &SocketAddr| {
        let mut any_port = *at;
        any_port.set_port(0);
        let missing = |error: io::Error| {
            let code = error.raw_os_error().map(Errno::from_raw);
            matches!(code, Some(Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT))
        };
        !UdpSocket::bind(any_port).is_err_and(missing)
    };
    if addresses.len() > 1 && addresses.iter().any(has) {
        addresses.retain(has);
    }
    addresses
}

/// The first address at which an engine answers; otherwise the first that the system can send to.
pub fn first_reached(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let mut possible = None;
    for &address in addresses {
        match answers(address) {
            Ok(true) => return Some(address),
            Ok(false) => possible = possible.or(Some(address)),
            Err(_) => {}
        }
    }
    possible.or(addresses.first().copied())
}

/// True if an engine answers at an address; an error if the system cannot send there.
fn answers(address: SocketAddr) -> io::Result<bool> {
    let any = crate::commands::any_address_for(address);
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let id = RpcId(u64::from(std::process::id()) << 1 | 1 << 63).server();
    let local_port = socket.local_addr()?.port();
    let mut bytes = [0; 1500];
    let mut questions = datagram::Writer::new(&mut bytes, 1).map_err(io::Error::other)?;
    for n in 0..QUESTIONS {
        let question = Packet {
            peer: PeerId(0),
            priority: 7,
            local_port,
            remote_port: address.port(),
            id: RpcId(id.0 + 2 * n),
            body: Body::NeedAck,
        };
        questions.push(&question).map_err(io::Error::other)?;
    }
    let length = questions.len();
    socket.send(&bytes[..length])?;
    // A host that refuses the port is reported as an error of the next system call.
    let Ok(length) = socket.recv(&mut bytes) else { return Ok(false) };
    // An engine with keys says that it does not take plaintext.
    if length > HANDSHAKE.len() && bytes[..HANDSHAKE.len()] == HANDSHAKE {
        return Ok(true);
    }
    let Ok(datagram) = datagram::decode(&bytes[..length]) else { return Ok(false) };
    let mut packets = datagram.packets(PeerId(0), 0).filter_map(Result::ok);
    Ok(packets.any(|decoded| matches!(decoded.packet.body, Body::Ack(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_a_name_or_a_number() {
        let by = |scope: &str| addresses(&format!("[fe80::1%{scope}]:4000")).unwrap();
        assert_eq!(by("lo"), by("1"));
        assert!(addresses("[fe80::1%nowhere]:4000").is_err());
        assert!(addresses("[fe80::1%lo]:port").is_err());
    }

    #[test]
    fn a_name_stands_for_the_addresses_that_this_machine_has() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, other, elsewhere) =
            (at("127.0.0.1:4000"), at("127.0.0.2:4000"), at("203.0.113.1:4000"));
        assert_eq!(own(vec![elsewhere, here, other]), [here, other]);
        assert_eq!(own(vec![elsewhere]), [elsewhere], "binding refuses it");
        // Another program has the address, and not another machine.
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(own(vec![taken, other]), [taken, other]);
    }

    #[test]
    fn the_address_where_an_engine_is_comes_before_an_empty_one() {
        let engine = homa::Client::new().unwrap().engine().clone();
        let port = engine.local_addr().port();
        let empty = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let there = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(first_reached(&[empty, there]), Some(there));
        assert_eq!(first_reached(&[empty]), Some(empty));
        drop(engine);
    }
}
