//! Other endpoints of this host that use its links: engines at one address, one per core.
//!
//! The environment tells each endpoint what the others expect. Bytes that they granted reduce this
//! one's part of the downlink (Homa §3.5). Bytes that are outstanding to them may arrive before
//! ours, and bytes that arrived for them filled the link (Homa §3.7).
//!
//! Left out: SRPT between endpoints. Each grants its own shortest message.

use crate::endpoint::Endpoint;
use crate::link::{LinkId, SiblingShards};

impl Endpoint {
    /// Environment in: what other endpoints of this host expect now. If that leaves more to this
    /// one, it is granted when the next DATA arrives.
    pub fn set_sibling_shards(&mut self, sibling_shards: SiblingShards) {
        self.links.sibling_shards = sibling_shards;
    }

    /// The bytes that other endpoints of this host expect, as set last.
    pub fn sibling_shards(&self) -> SiblingShards {
        self.links.sibling_shards
    }

    /// Environment in: `bytes` more wire bytes of DATA arrived for other endpoints of this host by
    /// a link.
    pub fn sibling_received(&mut self, link: LinkId, bytes: u64) {
        self.links.get_mut(link).downlink.received_by_sibling(bytes);
    }

    /// Bytes that were granted here and have not arrived.
    pub fn granted_outstanding(&self) -> u64 {
        self.grants.granted
    }

    /// Bytes that are expected: granted or unscheduled bytes of messages that have begun, and
    /// unscheduled bytes of responses that have not.
    pub fn outstanding(&self) -> u64 {
        self.grants.expected + self.grants.pending_unscheduled
    }

    /// The same for all endpoints of this host, because each message may have to wait for all
    /// others.
    pub(crate) fn outstanding_on_host(&self) -> u64 {
        self.outstanding() + self.links.sibling_shards.outstanding
    }

    /// Wire bytes of DATA that arrived here by a link so far.
    pub fn received_by(&self, link: LinkId) -> u64 {
        self.links.get(link).downlink.ours
    }
}
