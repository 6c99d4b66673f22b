//! The state of a remote endpoint: cutoffs and limits (Homa §3.4: a few dozen bytes), RTTbytes,
//! ACKs to report, and which of its RPCs were executed here.
//!
//! Invariant: what each packet looks at is one cache line, and the rest is behind a pointer.

use crate::address_validation::state::{PeerValidation, Validation};
use crate::completion::acks::{NeedAckBudget, PendingAcks};
use crate::completion::replay_window::ReplayWindow;
use crate::config::{Config, LEVELS};
use crate::event::RpcHandle;
use crate::grant::state::PeerGrants;
use crate::link::LinkId;
use crate::loss::{PeerLoss, PeerTiming};
use crate::packet::{AckEntry, Acks, Limits};
use crate::receive::RttBytes;
use crate::units::{Duration, Time};
use alloc::boxed::Box;

/// After this long a message beyond the peer's limit is sent again, to learn whether the limit
/// still holds.
const LIMIT_LASTS: Duration = Duration::secs(2);

/// What the environment knows about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Peers on one host share this number (overcommitment counts sender hosts, Homa §3.5).
    pub host: u32,
    /// Message bytes that fit in one DATA packet to this peer, at least 1.
    pub max_payload: u32,
}

/// What every packet looks at.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Peer {
    pub(crate) info: PeerInfo,
    pub(crate) loss: PeerLoss,
    /// The RPC that the peer began and sent DATA of last: a guess for its next packet.
    recent_rpc: RpcHandle,
    /// RPCs in progress with this peer.
    rpcs: u32,
    /// RTTbytes as measured last.
    rtt_bytes: u32,
    /// Most bytes of one message that may go to this peer unscheduled.
    unscheduled_cap: u32,
    /// Largest message that the peer accepts, as it said last.
    max_message: u32,
    /// Version to echo in DATA; 0 before the first CUTOFFS.
    cutoff_version: u16,
    /// The peer sent CUTOFFS.
    has_cutoffs: bool,
    /// ACKs wait for DATA to the peer.
    has_acks: bool,
    link: LinkId,
    pub(crate) validation: PeerValidation,
    pub(crate) cold: Box<PeerCold>,
}

/// The rest, for whole messages and rarer things.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PeerCold {
    pub(crate) grants: PeerGrants,
    /// RPCs in progress that the peer began.
    served: u32,
    pub(crate) timing: PeerTiming,
    acks: PendingAcks,
    pub(crate) rtt: RttBytes,
    /// The cutoffs that the peer sent.
    cutoffs: [u32; LEVELS],
    /// Until when the peer's limit on messages is believed.
    limited_until: Time,
    /// When CUTOFFS were last sent to the peer.
    cutoffs_sent: Option<Time>,
    pub(crate) executed: ReplayWindow,
    pub(crate) validation: Validation,
    pub(crate) need_acks: NeedAckBudget,
    /// The packet size changed while RPCs were in progress.
    payload_changed: bool,
    /// The least that packets to the peer ever held.
    least_payload: u32,
    /// It speaks the wire with START_MSG.
    speaks_start_msg: bool,
}

impl PeerCold {
    /// True if the peer speaks the wire with START_MSG.
    #[inline]
    pub(crate) const fn speaks_start_msg(&self) -> bool {
        self.speaks_start_msg
    }

    /// A packet of the peer shows whether it speaks the wire with START_MSG.
    pub(crate) fn note_start_msg(&mut self, speaks: bool) {
        self.speaks_start_msg = speaks;
    }
}

impl Peer {
    /// A peer that is assumed to have `version` of our cutoffs, and whose executed requests are
    /// remembered since `since`.
    pub(crate) fn new(config: &Config, info: PeerInfo, version: u16, since: Time) -> Self {
        let cold = PeerCold {
            grants: PeerGrants::NEW,
            served: 0,
            timing: PeerTiming::default(),
            acks: PendingAcks::default(),
            rtt: RttBytes::new(config.rtt_bytes),
            cutoffs: [0; LEVELS],
            limited_until: Time::ZERO,
            cutoffs_sent: None,
            executed: ReplayWindow::new(since),
            validation: Validation::new(info.host.into()),
            need_acks: NeedAckBudget::default(),
            payload_changed: false,
            least_payload: info.max_payload,
            speaks_start_msg: false,
        };
        Self {
            info,
            loss: PeerLoss::NEW,
            recent_rpc: RpcHandle::NONE,
            rpcs: 0,
            rtt_bytes: config.rtt_bytes,
            unscheduled_cap: u32::MAX,
            max_message: u32::MAX,
            cutoff_version: version,
            has_cutoffs: false,
            has_acks: false,
            link: LinkId::default(),
            validation: PeerValidation::new(!config.validate_addresses),
            cold: Box::new(cold),
        }
    }

    /// RPCs in progress with this peer.
    #[inline]
    pub(crate) const fn rpcs(&self) -> u32 {
        self.rpcs
    }

    /// RPCs in progress that the peer began.
    pub(crate) fn served(&self) -> u32 {
        self.cold.served
    }

    /// An RPC with this peer begins, as client (`is_client`: ours) or as server.
    pub(crate) fn begin_rpc(&mut self, is_client: bool) {
        self.rpcs += 1;
        self.cold.served += u32::from(!is_client);
    }

    /// It ends.
    pub(crate) fn end_rpc(&mut self, is_client: bool) {
        self.rpcs -= 1;
        self.cold.served -= u32::from(!is_client);
    }

    /// A guess which RPC the peer's next packet is about.
    #[inline]
    pub(crate) const fn recent_rpc(&self) -> RpcHandle {
        self.recent_rpc
    }

    /// The peer sent DATA of an RPC that it began: its next packet is likely about the same one.
    #[inline]
    pub(crate) fn note_recent_rpc(&mut self, handle: RpcHandle) {
        self.recent_rpc = handle;
    }

    #[inline]
    pub(crate) const fn link(&self) -> LinkId {
        self.link
    }

    /// Sets the link by which the peer is reached; returns the one until now.
    pub(crate) fn set_link(&mut self, link: LinkId) -> LinkId {
        core::mem::replace(&mut self.link, link)
    }

    /// RTTbytes as measured last.
    #[inline]
    pub(crate) const fn rtt_bytes(&self) -> u32 {
        self.rtt_bytes
    }

    /// Takes over the estimate of RTTbytes after a sample.
    pub(crate) fn update_rtt_bytes(&mut self) {
        self.rtt_bytes = self.cold.rtt.bytes();
    }

    /// Sets how many message bytes fit in a packet to the peer.
    pub(crate) fn set_max_payload(&mut self, max_payload: u32) {
        // Only messages in progress can have packets of the old size.
        self.cold.payload_changed |= self.rpcs > 0;
        self.info.max_payload = max_payload.max(1);
        self.cold.least_payload = self.cold.least_payload.min(self.info.max_payload);
    }

    /// The packet size changed while RPCs were in progress.
    pub(crate) fn payload_changed(&self) -> bool {
        self.cold.payload_changed
    }

    /// The least that packets to the peer ever held.
    pub(crate) fn least_payload(&self) -> u32 {
        self.cold.least_payload
    }
}

/// Cutoffs and limits (Homa §3.4).
impl Peer {
    /// The cutoffs that the peer sent, if it did.
    #[inline]
    pub(crate) fn cutoffs(&self) -> Option<&[u32; LEVELS]> {
        self.has_cutoffs.then_some(&self.cold.cutoffs)
    }

    /// Version of the peer's cutoffs, to echo in DATA.
    #[inline]
    pub(crate) const fn cutoff_version(&self) -> u16 {
        self.cutoff_version
    }

    pub(crate) fn set_cutoffs(&mut self, cutoffs: [u32; LEVELS], version: u16) {
        self.has_cutoffs = true;
        self.cold.cutoffs = cutoffs;
        self.cutoff_version = version;
    }

    /// When our CUTOFFS were last sent to the peer.
    pub(crate) fn cutoffs_sent(&self) -> Option<Time> {
        self.cold.cutoffs_sent
    }

    pub(crate) fn note_cutoffs_sent(&mut self, now: Time) {
        self.cold.cutoffs_sent = Some(now);
    }

    /// Most bytes of one message that may go to this peer unscheduled.
    pub(crate) const fn unscheduled_cap(&self) -> u32 {
        self.unscheduled_cap
    }

    /// The limit that a message of this length exceeds, if the peer named it lately. A peer that
    /// restarted may accept more, and says nothing while nothing is sent to it.
    pub(crate) fn limit_exceeded_by(&self, now: Time, length: u32) -> Option<u32> {
        let exceeds = length > self.max_message && now < self.cold.limited_until;
        exceeds.then_some(self.max_message)
    }

    /// Takes over the peer's limits. `may_lower`: the packet names an RPC in progress, which an
    /// attacker that does not see packets cannot know. Without that, a forged packet could make us
    /// refuse to send.
    pub(crate) fn set_limits(&mut self, now: Time, limits: Limits, may_lower: bool) {
        // A forged packet can only raise the limit, which costs one refused message.
        if may_lower || limits.max_message >= self.max_message {
            // A message of one packet can always be sent, so that the peer can raise its limit.
            self.max_message = limits.max_message.max(self.info.max_payload);
            self.cold.limited_until = now + LIMIT_LASTS;
        }
        self.unscheduled_cap = limits.max_unscheduled.max(self.info.max_payload);
    }
}

/// ACKs that wait for DATA to the peer (Homa §3.8).
impl Peer {
    /// Adds an ACK, unless `most` wait already; false then.
    pub(crate) fn push_ack(&mut self, ack: AckEntry, most: usize) -> bool {
        let added = self.cold.acks.push(ack, most);
        self.has_acks |= added;
        added
    }

    /// An ACK to piggyback on DATA: the `newest`, or the oldest.
    #[inline]
    pub(crate) fn pop_ack(&mut self, newest: bool) -> Option<AckEntry> {
        // Nearly always, and then the rest of the peer is not read.
        if !self.has_acks {
            return None;
        }
        let ack = self.cold.acks.pop(newest);
        self.has_acks = !self.cold.acks.is_empty();
        ack
    }

    /// As many ACKs as a packet holds.
    pub(crate) fn take_acks(&mut self) -> Acks {
        self.cold.acks.take()
    }

    /// True once if more ACKs wait than a packet holds.
    pub(crate) fn is_newly_late(&mut self) -> bool {
        self.cold.acks.is_newly_late()
    }

    /// They are sent now; true if there still are more than a packet holds.
    pub(crate) fn take_late(&mut self) -> bool {
        self.cold.acks.take_late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_touches_one_line_of_its_peer() {
        assert_eq!(size_of::<Option<Peer>>(), 64);
    }
}
