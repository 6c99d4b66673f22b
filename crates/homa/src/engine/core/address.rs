//! Addresses as applications write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Brings an address into one form: IPv4 as IPv4, IPv6 without a flow label. An unspecified address
/// means this host, as with TCP.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match (ip, address) {
        // A scope belongs to a link-local address, but a flow label only to one packet.
        (IpAddr::V6(ip), SocketAddr::V6(v6)) => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(ip, address.port()),
    }
}

/// True if the address can be that of one server. The system sends to a group or broadcast address
/// only on request, and never to port 0.
pub fn is_one_server(to: SocketAddr) -> bool {
    let broadcast = to.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
    to.port() != 0 && !broadcast && !to.ip().is_multicast()
}
