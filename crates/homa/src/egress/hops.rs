//! Routes for drivers that send Ethernet frames: the interfaces with their addresses, the next hop
//! of a route, and the hardware address of a neighbour.
//!
//! Invariant: anything that is not simple is `None`, and the system sends the packet. For example:
//! tunnels, routes that drop, or a choice between addresses by a policy.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::kernel::{Kernel, route_request};

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

/// An Ethernet interface of this network namespace that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Mac,
    /// Largest IP packet, bytes.
    pub(crate) mtu: u32,
    /// True for one end of a virtual cable.
    pub(crate) veth: bool,
    /// Most receive queues that it can have.
    pub(crate) queues: u32,
    /// Its IP addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

/// The next hop to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteHop {
    /// The interface.
    pub(crate) interface: u32,
    /// The address on its link: the router's, or the destination itself.
    pub(crate) address: IpAddr,
    /// The local address that the system would send from.
    pub(crate) source: Option<IpAddr>,
}

impl Kernel {
    /// The Ethernet interfaces that are up, with their addresses; `None` if the kernel does not
    /// answer.
    pub(crate) fn ethernet_interfaces(&mut self) -> Option<Vec<Interface>> {
        let mut devices: Vec<Interface> = Vec::new();
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.ask(links, NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                devices.extend(device(&link));
            }
        })?;
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.ask(addresses, NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewAddress(message) = answer
                && let index = message.header.index
                && let Some(device) = devices.iter_mut().find(|device| device.index == index)
            {
                device.addresses.extend(own_address(&message));
            }
        })?;
        Some(devices)
    }

    /// The next hop to an address, from a local address if one is given.
    pub(crate) fn hop(&mut self, to: IpAddr, scope: u32, from: Option<IpAddr>) -> Option<RouteHop> {
        let mut found = None;
        let request = RouteNetlinkMessage::GetRoute(route_request(to, scope, from));
        self.ask(request, 0, |answer| {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                found = found.or(hop_of(to, &route));
            }
        })?;
        found
    }

    /// The Ethernet address of a neighbour, if the system knows it.
    pub(crate) fn neighbour(&mut self, interface: u32, address: IpAddr) -> Option<Mac> {
        let mut request = NeighbourMessage::default();
        request.header.ifindex = interface;
        let destination = match address {
            IpAddr::V4(address) => {
                request.header.family = AddressFamily::Inet;
                NeighbourAddress::Inet(address)
            }
            IpAddr::V6(address) => {
                request.header.family = AddressFamily::Inet6;
                NeighbourAddress::Inet6(address)
            }
        };
        request.attributes.push(NeighbourAttribute::Destination(destination));
        let mut found = None;
        self.ask(RouteNetlinkMessage::GetNeighbour(request), 0, |answer| {
            if let RouteNetlinkMessage::NewNeighbour(neighbour) = answer {
                found = found.or(mac_of(&neighbour));
            }
        })?;
        found
    }
}

fn device(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    if !flags.contains(LinkFlags::Up) || flags.contains(LinkFlags::Loopback) {
        return None;
    }
    let (mut name, mut mac, mut mtu, mut queues, mut veth) = (None, None, 0, 1, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(is) => name = Some(is.clone()),
            LinkAttribute::Address(is) => mac = Mac::try_from(&is[..]).ok(),
            LinkAttribute::Mtu(is) => mtu = *is,
            LinkAttribute::LinkInfo(is) => veth = is.contains(&LinkInfo::Kind(InfoKind::Veth)),
            LinkAttribute::NumRxQueues(is) => queues = *is,
            _ => {}
        }
    }
    let (index, addresses) = (link.header.index, Vec::new());
    Some(Interface { index, name: name?, mac: mac?, mtu, veth, queues, addresses })
}

/// The local address in a message: `Local` if it is present, because `Address` is then the other
/// end.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

fn hop_of(to: IpAddr, route: &RouteMessage) -> Option<RouteHop> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    };
    let (mut interface, mut address, mut source) = (None, to, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(gateway) => address = ip(gateway)?,
            RouteAttribute::PrefSource(preferred) => source = ip(preferred),
            RouteAttribute::Via(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::NewDestination(_) => return None,
            _ => {}
        }
    }
    Some(RouteHop { interface: interface?, address, source })
}

fn mac_of(neighbour: &NeighbourMessage) -> Option<Mac> {
    let known = matches!(
        neighbour.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let mac = neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => Mac::try_from(&mac[..]).ok(),
        _ => None,
    });
    mac.filter(|_| known)
}
