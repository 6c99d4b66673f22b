//! Packet priorities (Homa §3.4): the split of levels between unscheduled and scheduled bytes, our
//! cutoffs for senders, and the level of a packet.
//!
//! Levels run from 0 (lowest) to `levels - 1`; control packets use the highest. The highest levels
//! carry unscheduled bytes, the lower ones scheduled bytes.
//!
//! | file | what |
//! |---|---|
//! | `scheduled` | the level of scheduled bytes, by the rank of their message |
//! | `unscheduled` | the level of unscheduled bytes, by cutoffs on the message length |
//! | `estimator` | the split of levels and the cutoffs, from measured traffic |

mod estimator;
mod scheduled;
mod unscheduled;

pub(crate) use estimator::Estimator;

use crate::config::{Config, LEVELS, PriorityAllocation};
use crate::peer::Peer;

/// The allocation of one receiver's downlink.
#[derive(Debug)]
pub(crate) struct Levels {
    levels: u8,
    /// The level in the network for each level.
    in_network: [u8; LEVELS],
    /// As in CUTOFFS: largest message per level; 0 for scheduled levels.
    cutoffs: [u32; LEVELS],
    /// Levels for scheduled bytes, at least 1.
    scheduled: u8,
    version: u16,
    /// Every host has these cutoffs from the start.
    is_shared: bool,
    /// `None` if the allocation is fixed.
    estimator: Option<Estimator>,
}

impl Levels {
    pub(crate) fn new(config: &Config) -> Self {
        let (cutoffs, estimator) = match config.priorities {
            PriorityAllocation::Fixed { cutoffs } => (cutoffs, None),
            PriorityAllocation::Measured => {
                (unscheduled::initial(config.levels), Some(Estimator::new()))
            }
        };
        // Version 0 means that no CUTOFFS were received. In profiles that do not announce the first
        // cutoffs, ours keep it until something was measured.
        let announces_cutoffs = config.profile.policy().wire.cutoffs;
        let version = u16::from(announces_cutoffs || estimator.is_none());
        let merged = config.network_levels.min(config.levels);
        // Homa Figure 8 (HomaP4, P2, P1): neighbouring levels share one of the network.
        let in_network = core::array::from_fn(|level| level as u8 * merged / config.levels);
        let mut levels = Self {
            levels: config.levels,
            in_network,
            cutoffs,
            scheduled: 1,
            version,
            is_shared: !announces_cutoffs && estimator.is_none(),
            estimator,
        };
        levels.count_scheduled();
        levels
    }

    /// The highest level.
    pub(crate) const fn top(&self) -> u8 {
        self.levels - 1
    }

    /// The level of a packet in the network, which may have fewer levels.
    pub(crate) fn in_network(&self, level: u8) -> u8 {
        self.in_network[usize::from(level)]
    }

    pub(crate) const fn cutoffs(&self) -> ([u32; LEVELS], u16) {
        (self.cutoffs, self.version)
    }

    /// The version of a peer's cutoffs before it sent any. The paper's hosts all have the same
    /// given split.
    pub(crate) const fn assumed_version(&self) -> u16 {
        if self.is_shared { self.version } else { 0 }
    }

    /// The cutoffs for unscheduled bytes to a peer, if they are known.
    pub(crate) fn cutoffs_of<'a>(&'a self, peer: &'a Peer) -> Option<&'a [u32; LEVELS]> {
        peer.cutoffs().or(self.is_shared.then_some(&self.cutoffs))
    }

    /// Accounts for an incoming message; true if the allocation changed.
    pub(crate) fn record_message(
        &mut self,
        length: u32,
        unscheduled: u32,
        payload: u32,
        overhead: u32,
    ) -> bool {
        let Some(estimator) = &mut self.estimator else {
            return false;
        };
        estimator.record(length, unscheduled, payload, overhead);
        if !estimator.is_due() {
            return false;
        }
        let next = estimator.allocate(self.levels);
        // Each change costs CUTOFFS to all senders, so small ones are not made.
        if !unscheduled::differs(&self.cutoffs, &next, self.levels) {
            return false;
        }
        self.cutoffs = next;
        self.count_scheduled();
        // Version 0 stands for no CUTOFFS at all, so the count skips it.
        self.version = self.version.checked_add(1).unwrap_or(1);
        true
    }

    /// Accounts for an incoming control packet.
    pub(crate) fn record_control(&mut self) {
        if let Some(estimator) = &mut self.estimator {
            estimator.record_control();
        }
    }
}
