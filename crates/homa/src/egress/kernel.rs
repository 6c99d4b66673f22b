//! Netlink queries: routes, interfaces, and whether they changed.
//!
//! Invariants: no query waits, because the kernel answers while it is asked. An answer that cannot
//! be parsed is no answer.

use std::io;
use std::net::IpAddr;

use homa_proto::Rate;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Interfaces;
use crate::driver::ethtool;

/// The kernel fills at most this much of a buffer at a time, bytes.
const BUFFER: usize = 32 * 1024;
/// Most parts of one answer: far more interfaces than any host has.
const PARTS_MAX: usize = 10_000;
/// The multicast groups for links, routes, and rules of both families.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV4_RULE
    | libc::RTMGRP_IPV6_ROUTE) as u32
    | 1 << (libc::RTNLGRP_IPV6_RULE - 1);

type Message = NetlinkMessage<RouteNetlinkMessage>;

/// Netlink sockets, in the network namespace of the thread that opened them.
pub(crate) struct Kernel {
    ask: Socket,
    news: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        let open = |groups| {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, groups))?;
            // From now on, only the kernel's messages are received.
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self { ask: open(0)?, news: open(GROUPS)?, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// The interface by which packets leave for an address, from a local address if one is given;
    /// `scope` is that of a link-local address. `None` without a route.
    pub(crate) fn route(&mut self, to: IpAddr, scope: u32, from: Option<IpAddr>) -> Option<u32> {
        let request = route_request(to, scope, from);
        let mut found = None;
        self.ask(RouteNetlinkMessage::GetRoute(request), 0, |answer| {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                found = found.or(interface_of(&route));
            }
        })?;
        found
    }

    /// The interfaces of this network namespace.
    pub(crate) fn interfaces(&mut self) -> Option<Interfaces> {
        let mut interfaces = Interfaces::default();
        let mut all = LinkMessage::default();
        all.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let all = RouteNetlinkMessage::GetLink(all);
        self.ask(all, NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                interfaces.add(&link);
            }
        })?;
        Some(interfaces)
    }

    /// The speed that a device reports.
    pub(crate) fn speed(&self, name: &str) -> Option<Rate> {
        ethtool::speed(&self.ask, name)
    }

    /// True if a link, route, or rule changed since the last call.
    pub(crate) fn has_changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.news.recv(&mut &mut self.buffer[..], libc::MSG_DONTWAIT) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changed,
                // The socket's queue overflowed, so something changed. Other errors end the loop.
                Err(error) => return changed || error.raw_os_error() == Some(libc::ENOBUFS),
            }
        }
    }

    /// Sends a query, and passes each part of the answer to `each`; `None` if the kernel refuses or
    /// the answer cannot be parsed.
    pub(super) fn ask(
        &mut self,
        what: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> Option<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = Message::new(header, NetlinkPayload::from(what));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.ask.send(&bytes, libc::MSG_DONTWAIT).ok()?;
        for _ in 0..PARTS_MAX {
            let read = self.ask.recv(&mut &mut self.buffer[..], libc::MSG_DONTWAIT).ok()?;
            for message in messages(self.buffer.get(..read)?) {
                let list = flags & NLM_F_DUMP != 0;
                let Some(message) = message else {
                    // An interface that cannot be parsed does not affect the others.
                    if list {
                        continue;
                    }
                    return None;
                };
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(part) => each(part),
                    NetlinkPayload::Done(_) => return Some(()),
                    NetlinkPayload::Error(_) => return None,
                    _ => continue,
                }
                if !list {
                    return Some(());
                }
            }
        }
        None
    }
}

/// The query for the route to an address: see [`Kernel::route`].
pub(super) fn route_request(to: IpAddr, scope: u32, from: Option<IpAddr>) -> RouteMessage {
    let mut request = RouteMessage::default();
    let (family, bits) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    request.header.address_family = family;
    request.header.destination_prefix_length = bits;
    request.attributes.push(RouteAttribute::Destination(RouteAddress::from(to)));
    if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
        request.header.source_prefix_length = bits;
        request.attributes.push(RouteAttribute::Source(RouteAddress::from(from)));
    }
    if scope != 0 {
        request.attributes.push(RouteAttribute::Oif(scope));
    }
    request
}

/// The messages of a datagram; `None` for one that cannot be parsed.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Option<Message>> {
    std::iter::from_fn(move || {
        let length = datagram.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize)?;
        let message = datagram.get(..length).filter(|message| message.len() >= 16)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message::deserialize(message).ok())
    })
}

/// The interface of a route; the first if there are several.
pub(super) fn interface_of(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        RouteAttribute::MultiPath(hops) => hops.first().map(|hop| hop.interface_index),
        _ => None,
    })
}
