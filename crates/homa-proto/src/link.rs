//! The links of this host: by which one a peer is reached, what its rate is, and which of them can
//! take a packet now.
//!
//! Every peer is on link 0 unless the environment says otherwise; link 0 has the rate of the
//! configuration. An environment with one link needs none of this. Messages of one link never wait
//! for the capacity of another (`send/queues.rs`).
//!
//! If a rate is not known, nothing is derived from it. How fast outstanding bytes arrive
//! (`loss/downlink.rs`) and how many bytes can be in flight before they delay each other
//! (`receive/rtt.rs`) are measured instead.

use crate::config::{Config, FULL_FRAME};
use crate::loss::downlink::Downlink;
use crate::units::{Rate, Time};
use alloc::vec::Vec;

/// Wire bytes of a packet in addition to its payload, if our own packets are longer than a full
/// frame. The peer's need not be.
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

/// Properties of a link, as the environment knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its rate; `None` if it is not known for sure.
    pub rate: Option<Rate>,
    /// Largest RTTbytes of peers behind it, bytes; limited by [`Config::rtt_bytes_max`].
    pub rtt_bytes_max: u32,
}

/// A link.
#[derive(Debug)]
pub(crate) struct LinkState {
    pub(crate) info: LinkInfo,
    pub(crate) downlink: Downlink,
}

impl LinkState {
    /// A DATA packet of `payload` bytes arrived, from a peer whose packets hold at most `most`.
    /// `more`: other bytes are outstanding.
    pub(crate) fn received(&mut self, now: Time, (payload, most): (u32, u32), more: bool) {
        // A full packet should count as a full frame.
        let headers = if most < FULL_FRAME { FULL_FRAME - most } else { HEADERS };
        self.downlink.received(now, u64::from(payload + headers), self.info.rate, more);
    }
}

/// The bytes that the other endpoints of this host expect: engines at one address, one per core,
/// share its links. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiblingShards {
    /// How many of them have [granted](crate::Endpoint::granted_outstanding) bytes that have not
    /// arrived.
    pub granting: u16,
    /// The sum of their [outstanding](crate::Endpoint::outstanding) bytes.
    pub outstanding: u64,
}

impl SiblingShards {
    /// Endpoints that grant, this one included.
    pub(crate) fn granting_with_us(self) -> u32 {
        u32::from(self.granting) + 1
    }
}

/// All links.
#[derive(Debug)]
pub(crate) struct LinkTable {
    /// Link 0; most hosts have no other.
    first: LinkState,
    /// Links from 1 on.
    others: Vec<LinkState>,
    /// The bytes that the other endpoints expect over all links.
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

    /// Sets the properties of a link, new or not; numbers from [`LinkId::MAX`] on are ignored.
    pub(crate) fn set(&mut self, config: &Config, link: LinkId, info: LinkInfo) {
        if link.0 >= LinkId::MAX {
            return;
        }
        // The links in between have a number and nothing else.
        while self.others.len() < usize::from(link.0) {
            self.others.push(Self::unknown(config, None));
        }
        let rtt_bytes_max = info.rtt_bytes_max.min(config.rtt_bytes_max);
        self.get_mut(link).info = LinkInfo { rtt_bytes_max, ..info };
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
