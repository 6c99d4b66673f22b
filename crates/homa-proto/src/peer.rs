//! What is kept per remote endpoint: its cutoffs and limits (Homa §3.4: a few dozen bytes), acks to
//! report, RTTbytes, and which of its RPCs were executed here.

use crate::completion::PendingAcks;
use crate::config::{Config, LEVELS};
use crate::endpoint::PeerInfo;
use crate::executed::Executed;
use crate::packet::Limits;
use crate::rtt::{RttBytes, SmoothedTime};
use crate::units::Time;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) info: PeerInfo,
    /// Cutoffs the peer sent; `None` before the first CUTOFFS.
    pub(crate) cutoffs: Option<[u32; LEVELS]>,
    /// Version to echo in DATA; 0 before the first CUTOFFS.
    pub(crate) cutoff_version: u16,
    pub(crate) limits: Option<Limits>,
    /// When CUTOFFS were last sent to the peer.
    pub(crate) cutoffs_sent: Option<Time>,
    pub(crate) acks: PendingAcks,
    pub(crate) rtt: RttBytes,
    /// How long the peer's responses take to begin.
    pub(crate) response_time: SmoothedTime,
    /// When any packet of the peer last arrived.
    pub(crate) heard: Time,
    /// Until when a RESEND to this peer counts as outstanding (Homa profile `default`: one per
    /// peer).
    pub(crate) resend_until: Time,
    pub(crate) executed: Executed,
    /// RPCs in progress with this peer.
    pub(crate) rpcs: u32,
}

impl Peer {
    pub(crate) fn new(config: &Config, info: PeerInfo, since: Time) -> Self {
        Self {
            info,
            cutoffs: None,
            cutoff_version: 0,
            limits: None,
            cutoffs_sent: None,
            acks: PendingAcks::default(),
            rtt: RttBytes::new(config.rtt_bytes),
            response_time: SmoothedTime::default(),
            heard: Time::ZERO,
            resend_until: Time::ZERO,
            executed: Executed::new(since),
            rpcs: 0,
        }
    }

    /// Most bytes of one message that may go to this peer unscheduled.
    pub(crate) fn unscheduled_cap(&self) -> u32 {
        self.limits.map_or(u32::MAX, |l| l.max_unscheduled.max(self.info.max_payload))
    }
}
