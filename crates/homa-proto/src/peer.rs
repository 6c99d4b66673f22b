//! What is kept per remote endpoint: its cutoffs and limits (Homa §3.4: a few dozen bytes), acks to
//! report, RTTbytes, and which of its RPCs were executed here.

use crate::address_validation::Validation;
use crate::completion::PendingAcks;
use crate::completion::replay_window::ReplayWindow;
use crate::config::{Config, LEVELS};
use crate::endpoint::{Control, Endpoint, PeerInfo};
use crate::event::RpcHandle;
use crate::link::LinkId;
use crate::packet::{AckEntry, Limits, PeerId, RpcId};
use crate::receive::{RttBytes, SmoothedTime};
use crate::units::{Duration, Time};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// After this long a message beyond the peer's limit is sent again, to hear whether that still is
/// one.
const LIMIT_LASTS: Duration = Duration::secs(2);

/// What every packet looks at: one line of the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Peer {
    pub(crate) info: PeerInfo,
    /// When any packet of the peer last arrived.
    pub(crate) last_heard: Time,
    /// Until when a RESEND to this peer counts as outstanding (Homa profile `default`: one per
    /// peer).
    pub(crate) resend_until: Time,
    /// The RPC of its own that the peer spoke of last.
    pub(crate) recent_rpc: RpcHandle,
    /// RPCs in progress with this peer.
    pub(crate) rpcs: u32,
    /// RTTbytes as last measured.
    pub(crate) rtt_bytes: u32,
    /// Most bytes of one message that may go to this peer unscheduled.
    pub(crate) unscheduled_cap: u32,
    /// Largest message the peer takes, as it said last.
    pub(crate) max_message: u32,
    /// Version to echo in DATA; 0 before the first CUTOFFS.
    pub(crate) cutoff_version: u16,
    /// The peer sent CUTOFFS.
    pub(crate) has_cutoffs: bool,
    /// Acks wait for DATA to the peer.
    pub(crate) has_acks: bool,
    /// In the endpoint's list of peers to which acks are due.
    pub(crate) acks_listed: bool,
    /// What it is reached by.
    pub(crate) link: LinkId,
    /// As much may be sent to it as there is: it has answered, or is called.
    pub(crate) validated: bool,
    /// It has answered a challenge.
    pub(crate) answered_challenge: bool,
    pub(crate) cold: Box<PeerCold>,
}

/// The rest, for whole messages and rarer things.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PeerCold {
    /// The account of its host, where the environment keeps such.
    pub(crate) account: Option<u32>,
    /// Its host, for what is remembered longer than its peers.
    pub(crate) host_key: u64,
    /// Memory for incoming messages of the peer.
    pub(crate) memory: u64,
    /// What the peer wasted, where there are no accounts.
    pub(crate) wasted_grants: u32,
    /// RPCs in progress that the peer began.
    pub(crate) served: u32,
    /// Time between DATA packets of one of its messages.
    pub(crate) data_gap: SmoothedTime,
    pub(crate) acks: PendingAcks,
    pub(crate) rtt: RttBytes,
    /// The cutoffs that the peer sent.
    pub(crate) cutoffs: [u32; LEVELS],
    /// How long the peer's limit on messages is believed.
    limited_until: Time,
    /// When CUTOFFS were last sent to the peer.
    pub(crate) cutoffs_sent: Option<Time>,
    /// How long the peer's responses take to begin once their requests have left.
    pub(crate) response_time: SmoothedTime,
    pub(crate) executed: ReplayWindow,
    pub(crate) validation: Validation,
    /// A millisecond, and NEED_ACKs sent in it.
    pub(crate) need_acks: (u64, u16),
    /// RPCs that were to ask for something while a RESEND to the peer was outstanding, and some
    /// that ended since.
    pub(crate) resend_queue: VecDeque<RpcHandle>,
    /// The packet size changed while RPCs were in progress.
    pub(crate) payload_changed: bool,
    /// The least that packets to the peer ever held.
    pub(crate) least_payload: u32,
}

impl Peer {
    /// A peer that assumes `version` of our cutoffs until it is told, and has done nothing since
    /// `since`.
    pub(crate) fn new(config: &Config, info: PeerInfo, version: u16, since: Time) -> Self {
        let cold = PeerCold {
            account: None,
            host_key: u64::from(info.host),
            memory: 0,
            wasted_grants: 0,
            served: 0,
            data_gap: SmoothedTime::default(),
            acks: PendingAcks::default(),
            rtt: RttBytes::new(config.rtt_bytes),
            cutoffs: [0; LEVELS],
            limited_until: Time::ZERO,
            cutoffs_sent: None,
            response_time: SmoothedTime::default(),
            executed: ReplayWindow::new(since),
            validation: Validation::default(),
            need_acks: (0, 0),
            resend_queue: VecDeque::new(),
            payload_changed: false,
            least_payload: info.max_payload,
        };
        Self {
            info,
            last_heard: Time::ZERO,
            resend_until: Time::ZERO,
            recent_rpc: RpcHandle::NONE,
            rpcs: 0,
            rtt_bytes: config.rtt_bytes,
            unscheduled_cap: u32::MAX,
            max_message: u32::MAX,
            cutoff_version: version,
            has_cutoffs: false,
            has_acks: false,
            acks_listed: false,
            link: LinkId::default(),
            validated: !config.validate_addresses,
            answered_challenge: !config.validate_addresses,
            cold: Box::new(cold),
        }
    }

    /// The limit that a message of this length exceeds, if the peer named it lately: one that
    /// restarted may take more, and says nothing while nothing is sent to it.
    pub(crate) fn limit_exceeded_by(&self, now: Time, length: u32) -> Option<u32> {
        let exceeds = length > self.max_message && now < self.cold.limited_until;
        exceeds.then_some(self.max_message)
    }

    /// An ack to ride on DATA: the `newest`, or the oldest.
    pub(crate) fn pop_ack(&mut self, newest: bool) -> Option<AckEntry> {
        if !self.has_acks {
            return None;
        }
        let ack = self.cold.acks.pop(newest);
        self.has_acks = !self.cold.acks.is_empty();
        ack
    }

    /// Takes the peer's limits. It may refuse longer messages than before (`may_lower`) only where
    /// it speaks of an RPC in progress, which nobody else knows.
    pub(crate) fn limit(&mut self, now: Time, limits: Limits, may_lower: bool) {
        if may_lower || limits.max_message >= self.max_message {
            // Whatever it says, it hears of a packet: one word of somebody else would silence us.
            self.max_message = limits.max_message.max(self.info.max_payload);
            self.cold.limited_until = now + LIMIT_LASTS;
        }
        self.unscheduled_cap = limits.max_unscheduled.max(self.info.max_payload);
    }
}

impl Endpoint {
    /// Introduces a peer before its number appears in any other call. The environment numbers peers
    /// densely and may reuse the number of a closed one.
    pub fn open_peer(&mut self, peer: PeerId, info: PeerInfo) {
        let index = peer.0 as usize;
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        if self.peers[index].is_none() {
            let since = self.memory_complete_from();
            let info = PeerInfo { max_payload: info.max_payload.max(1), ..info };
            let version = self.levels.assumed_version();
            self.peers[index] = Some(Peer::new(&self.config, info, version, since));
        }
    }

    /// Charges what a peer without RPCs will hold to an account, once and for all, which it shares
    /// with other peers of its host: nobody gets more of what is scarce by calling from many ports.
    /// Its requests count until [`Endpoint::accepted`]. Accounts are numbered densely and used
    /// again; `host_key` names the host as long as the endpoint lives, since what is remembered of
    /// its clients outlives its peers.
    pub fn set_account(&mut self, peer: PeerId, account: u32, host_key: u64) {
        let free = |peer: &&mut Peer| peer.rpcs == 0 && peer.cold.account.is_none();
        if let Some(peer) = self.peer_mut(peer).filter(free) {
            (peer.cold.account, peer.cold.host_key) = (Some(account), host_key);
            self.incoming.accounts.open(account);
        }
    }

    /// The peer of an RPC in progress.
    pub fn peer_of(&self, rpc: RpcHandle) -> Option<PeerId> {
        self.rpcs.get(rpc).map(|rpc| rpc.peer)
    }

    /// The number of an RPC in progress (client's form).
    pub fn id_of(&self, rpc: RpcHandle) -> Option<RpcId> {
        self.rpcs.get(rpc).map(|rpc| rpc.id)
    }

    /// Forgets a peer; false while RPCs with it are in progress. What it executed here is forgotten
    /// too, which later answers to it will admit; a copy of an executed request that the network
    /// delivers after this is executed again.
    pub fn close_peer(&mut self, now: Time, peer: PeerId) -> bool {
        let slot = self.peers.get_mut(peer.0 as usize);
        let Some(mut closed) = slot.and_then(|slot| slot.take_if(|p| p.rpcs == 0)) else {
            return self.peer(peer).is_none();
        };
        self.incoming.accounts.close(&mut closed);
        self.forget_executed(now, &closed);
        self.control.retain(|c| !matches!(c, Control::Packet(p) if p.peer == peer));
        true
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
