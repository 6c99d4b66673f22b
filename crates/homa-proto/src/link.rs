//! The links of this host: which one a peer is reached by, what is known about its rate, and which
//! of them can take a packet now.
//!
//! Every peer is on link 0 until the environment says otherwise; link 0 has the rate of the
//! configuration. An environment with a single link needs none of this. Messages of one link never
//! wait for the room of another (`sender/queues.rs`).
//!
//! A rate is known or it is not: of an unknown one, nothing is derived. What it would tell is
//! measured instead: how fast bytes that are owed arrive (`downlink.rs`), and how many bytes can be
//! on their way before they delay each other (`rtt.rs`).

use crate::config::{Config, FULL_FRAME};
use crate::endpoint::Endpoint;
use crate::grant::SiblingShards;
use crate::loss::downlink::Downlink;
use crate::packet::{Packet, PeerId};
use crate::units::{Rate, Time};
use alloc::vec::Vec;

/// Wire bytes of a packet beside its payload, where our own packets are longer than a full frame;
/// the peer's need not be.
const HEADERS: u32 = FULL_FRAME - 1400;

/// The number of a link, chosen by the environment: below [`LinkId::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);

impl LinkId {
    /// Links are fewer than this.
    pub const MAX: u8 = 64;
}

/// A set of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links(u64);

impl Links {
    /// Every link.
    pub const ALL: Self = Self(u64::MAX);
    /// No link: then only control packets leave.
    pub const NONE: Self = Self(0);

    /// One link; none if there cannot be one of that number.
    pub const fn only(link: LinkId) -> Self {
        Self(if link.0 < LinkId::MAX { 1 << link.0 } else { 0 })
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, link: LinkId) -> Self {
        Self(self.0 | Self::only(link).0)
    }

    /// True when `link` is one of them.
    pub const fn contains(self, link: LinkId) -> bool {
        self.0 & Self::only(link).0 != 0
    }
}

/// What the environment knows about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its rate; `None` where that is not known for sure.
    pub rate: Option<Rate>,
    /// Most RTTbytes of peers behind it, bytes; at most [`Config::rtt_bytes_max`] count.
    pub rtt_bytes_max: u32,
}

/// A link.
#[derive(Debug)]
pub(crate) struct LinkState {
    pub(crate) info: LinkInfo,
    pub(crate) downlink: Downlink,
}

impl LinkState {
    /// A DATA packet of so many bytes, of at most so many, arrived; `more` are owed to us.
    pub(crate) fn received(&mut self, now: Time, (payload, most): (u32, u32), more: bool) {
        let headers = if most < FULL_FRAME { FULL_FRAME - most } else { HEADERS };
        self.downlink.received(now, u64::from(payload + headers), self.info.rate, more);
    }
}

/// All links.
#[derive(Debug)]
pub(crate) struct LinkTable {
    /// Link 0; most hosts have no other.
    first: LinkState,
    /// From 1 on.
    others: Vec<LinkState>,
    /// What other endpoints have coming by all of them.
    pub(crate) sibling_shards: SiblingShards,
}

impl LinkTable {
    pub(crate) fn new(config: &Config) -> Self {
        let first = Self::unknown(config, config.link_rate);
        Self { first, others: Vec::new(), sibling_shards: SiblingShards::default() }
    }

    fn unknown(config: &Config, rate: Option<Rate>) -> LinkState {
        let info = LinkInfo { rate, rtt_bytes_max: config.rtt_bytes_max };
        LinkState { info, downlink: Downlink::default() }
    }

    pub(crate) fn get(&self, link: LinkId) -> &LinkState {
        let other = usize::from(link.0).checked_sub(1).and_then(|at| self.others.get(at));
        other.unwrap_or(&self.first)
    }

    pub(crate) fn get_mut(&mut self, link: LinkId) -> &mut LinkState {
        let other = usize::from(link.0).checked_sub(1).and_then(|at| self.others.get_mut(at));
        other.unwrap_or(&mut self.first)
    }
}

impl Endpoint {
    /// Says what is known about a link, new or not. Numbers from [`LinkId::MAX`] on are ignored.
    pub fn set_link(&mut self, link: LinkId, info: LinkInfo) {
        if link.0 >= LinkId::MAX {
            return;
        }
        let info =
            LinkInfo { rtt_bytes_max: info.rtt_bytes_max.min(self.config.rtt_bytes_max), ..info };
        // Links in between are known by number only.
        while self.links.others.len() < usize::from(link.0) {
            self.links.others.push(LinkTable::unknown(&self.config, None));
        }
        self.links.get_mut(link).info = info;
    }

    /// Says which link packets to a peer take, from now on and for its messages under way.
    pub fn set_route(&mut self, peer: PeerId, link: LinkId) {
        let Some(known) = self.peer_mut(peer).filter(|_| link.0 < LinkId::MAX) else { return };
        let before = known.set_link(link);
        if before == link || known.rpcs() == 0 {
            return;
        }
        let under_way = self.rpcs.iter().filter(|(_, rpc)| rpc.peer == peer);
        let under_way: Vec<_> = under_way.map(|(handle, _)| handle).collect();
        for handle in under_way {
            if let Some(rpc) = self.rpcs.get_mut(handle) {
                self.send_queue.reroute(handle, &mut rpc.out, link);
            }
        }
        self.send_queue.sweep(&self.rpcs);
    }

    /// Network out, where there are several links: like [`Endpoint::transmit`], of messages that
    /// take one of `links`. Control packets, which are small and few, leave whatever their link.
    pub fn transmit_by(&mut self, now: Time, links: Links) -> Option<Packet> {
        let mut packet = self.next_packet(now, links)?;
        packet.priority = self.levels.in_network(packet.priority);
        Some(packet)
    }

    /// False when [`Endpoint::transmit_by`] would yield nothing.
    pub fn has_packet_for(&self, links: Links) -> bool {
        self.waiting_control() > 0 || self.send_queue.has_packet_for(links)
    }

    /// The link that a peer is reached by.
    pub(crate) fn link_of(&self, peer: PeerId) -> &LinkState {
        self.links.get(self.peer(peer).map_or(LinkId::default(), |peer| peer.link()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Duration;

    #[test]
    fn frames_fill_the_link_however_long_our_own_are() {
        for most in [1_380, 8_880] {
            let config = Config::for_users(Rate::mbps(100));
            let mut link = LinkTable::new(&config).first;
            let mut now = Time(1_000_000_000);
            for _ in 0..2_000 {
                now += Duration::micros(123);
                link.received(now, (1_380, most), true);
            }
            assert!(link.downlink.is_full(now), "{most}");
        }
    }
}
