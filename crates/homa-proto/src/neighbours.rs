//! Other endpoints of this host that use its links: engines at one address, one per core.
//!
//! The environment tells each what the others have coming. What they granted leaves this one its
//! part of the downlink (Homa §3.5); what is owed to them may come before what is owed to us, and
//! what came to them filled the link (Homa §3.7).
//!
//! Left out: SRPT between endpoints. The shortest message of each is granted.

use crate::endpoint::Endpoint;
use crate::link::LinkId;

/// What the other endpoints of this host have coming. Default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// How many of them have [granted](Endpoint::granted) bytes that did not arrive yet.
    pub granting: u16,
    /// Bytes that are [owed](Endpoint::owed) to them together.
    pub owed: u64,
}

impl Neighbours {
    /// Endpoints that grant, this one included.
    pub(crate) fn granted_with_us(self) -> u32 {
        u32::from(self.granting) + 1
    }
}

impl Endpoint {
    /// Environment in: what other endpoints of this host have coming now. More room is used when
    /// the next DATA arrives.
    pub fn set_neighbours(&mut self, neighbours: Neighbours) {
        self.links.neighbours = neighbours;
    }

    /// What other endpoints of this host have coming, as said last.
    pub fn neighbours(&self) -> Neighbours {
        self.links.neighbours
    }

    /// Environment in: so many more wire bytes of DATA came to other endpoints of this host by a
    /// link.
    pub fn neighbours_received(&mut self, link: LinkId, bytes: u64) {
        self.links.get_mut(link).downlink.received_beside(bytes);
    }

    /// Bytes that were granted here and did not arrive yet.
    pub fn granted(&self) -> u64 {
        self.incoming.granted
    }

    /// Bytes that are to come: of messages that began, granted or unscheduled, and the unscheduled
    /// ones of responses that did not.
    pub fn owed(&self) -> u64 {
        self.incoming.expected + self.incoming.unheard
    }

    /// Wire bytes of DATA that came here by a link so far.
    pub fn received_by(&self, link: LinkId) -> u64 {
        self.links.get(link).downlink.ours
    }
}
