//! Other endpoints of this host that use its links: engines at one address, one per core.
//!
//! The environment tells each what the others have coming. What they granted leaves this one its
//! part of the downlink (Homa §3.5); what is owed to them may come before what is owed to us, and
//! what came to them filled the link (Homa §3.7).
//!
//! Left out: SRPT between endpoints. The shortest message of each is granted.

use crate::endpoint::Endpoint;
use crate::link::{LinkId, SiblingShards};

impl Endpoint {
    /// Environment in: what other endpoints of this host have coming now. PeerCold room is used
    /// when the next DATA arrives.
    pub fn set_sibling_shards(&mut self, sibling_shards: SiblingShards) {
        self.links.sibling_shards = sibling_shards;
    }

    /// What other endpoints of this host have coming, as said last.
    pub fn sibling_shards(&self) -> SiblingShards {
        self.links.sibling_shards
    }

    /// Environment in: so many more wire bytes of DATA came to other endpoints of this host by a
    /// link.
    pub fn sibling_received(&mut self, link: LinkId, bytes: u64) {
        self.links.get_mut(link).downlink.received_by_sibling(bytes);
    }

    /// Bytes that were granted here and did not arrive yet.
    pub fn granted_outstanding(&self) -> u64 {
        self.grants.granted
    }

    /// Bytes that are to come: of messages that began, granted or unscheduled, and the unscheduled
    /// ones of responses that did not.
    pub fn outstanding(&self) -> u64 {
        self.grants.expected + self.grants.pending_unscheduled
    }

    /// The same, with what is outstanding of other endpoints of this host: each may have to wait
    /// for all.
    pub(crate) fn outstanding_on_host(&self) -> u64 {
        self.outstanding() + self.links.sibling_shards.outstanding
    }

    /// Wire bytes of DATA that came here by a link so far.
    pub fn received_by(&self, link: LinkId) -> u64 {
        self.links.get(link).downlink.ours
    }
}
