//! Every parameter of the protocol, in four named profiles (the table in `ARCHITECTURE.md`).
//!
//! [`Config::validate`] turns a configuration into a [`ValidConfig`], the only kind an endpoint
//! takes. A profile is a set of values: those that a study varies are fields, and combine freely;
//! what it fixes beyond them is in `policy`.

mod policy;
mod profile;
mod rule;

pub(crate) use policy::{
    FifoShare, GrantPolicy, Liveness, LossPolicy, Policy, RemainingBytes, UnknownReaction,
};

pub use rule::{
    Completion, GrantWindow, GrantedLevel, Granting, IncastConfig, LossConfig, Overcommitment,
    PriorityAllocation, UnknownRpcReply, UnscheduledLevel, UnscheduledLimit,
};

use crate::units::Rate;

/// Priority levels of a packet; 0 is lowest.
pub const LEVELS: usize = 8;

/// Largest length a cutoff can name: the kernel module reads cutoffs as signed.
pub(crate) const NO_LIMIT: u32 = i32::MAX as u32;

/// Wire bytes of a full Ethernet frame, preamble and inter-frame gap included.
pub const FULL_FRAME: u32 = 1538;

/// A named set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The paper's text (Homa §3.8): at least once, no acks. Packets do not say which execution
    /// they answer: where a server that lost its state executes a request again and answers
    /// otherwise at the same length, the response may hold bytes of both.
    Sigcomm18,
    /// The simulator behind the paper's §5.2, which deviates from its text: one-way messages
    /// between hosts that lose nothing.
    Sigcomm18Sim,
    /// The Linux kernel module, branch main: at most once, acked, never a byte it would not send.
    Linux,
    /// For users: acked, give-up, measured RTTbytes and cutoffs, incast control.
    Default,
}

/// The protocol's parameters. Start from a profile's constructor and change fields, which have
/// methods of their names for that: `Config::linux().max_rpcs(100)`.
///
/// What the simulator's studies vary, and how the profiles differ in it:
///
/// | field | `sigcomm18` | `sigcomm18_sim` | `basic` | `linux` | `for_users` |
/// |---|---|---|---|---|---|
/// | `unscheduled` | RTTbytes | 9,328 B | RTTbytes | 40,000 B | RTTbytes, whole packets |
/// | `scheduled_extra` | 0 | 14 B | 0 | 0 | 0 |
/// | `window` | RTTbytes | 10,000 wire bytes | RTTbytes | shared | RTTbytes, shared |
/// | `granting` | per message, 1 | per sender | 5 packets ahead | per message, 0 | per message, 2 |
/// | `overcommitment` | scheduled levels | scheduled levels | unlimited | 8 | scheduled levels |
/// | `tail_boost` | 0 | 10,000 wire bytes | 0 | 0 | 0 |
/// | `unscheduled_level` | length | bytes left | length | length | length |
/// | `granted_level` | own bytes | own bytes | own bytes | all unsent | all unsent |
/// | `levels` | 8 | 8 | 1 | 8 | 8 |
/// | `priorities` | measured | given | given | given | measured |
/// | `loss` | 2 ms | never | 2 ms | 5 ms | 5 ms and more |
///
/// `network_levels` below `levels` merges adjacent levels and leaves the degree of overcommitment
/// alone (HomaP4, P2, P1 of Homa Figure 8).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Where the other fields came from. What it fixes beyond them stays so: the packets that may
    /// appear, what counts as a sign of life, who confirms what.
    pub profile: Profile,
    /// Largest message accepted or sent, bytes. Default 16 MiB; kernel module 1,000,000.
    pub max_message: u32,
    /// Most RPCs in progress, as client and as server each. Bounds memory and hostile floods.
    pub max_rpcs: u32,
    /// Bytes of incoming messages (received or granted, not yet delivered) held at a time; one
    /// message may exceed them, so that there is always one that becomes whole. At the start;
    /// changed with [`crate::Endpoint::limit_memory`].
    pub memory_budget: u64,
    /// Rate of this host's link: turns delays into RTTbytes and bytes into timeouts. `None` where
    /// it is not known (profiles `sigcomm18` and `default`): then both are measured. Of other links
    /// than the first, [`Endpoint::set_link`](crate::Endpoint::set_link) tells.
    pub link_rate: Option<Rate>,
    /// RTTbytes until measured, bytes (Homa §3.2: about 10 KB at 10 Gbit/s).
    pub rtt_bytes: u32,
    /// Measure RTTbytes per peer from grant-to-data delays.
    pub measure_rtt_bytes: bool,
    /// Most RTTbytes may become, and the cap advertised to senders, bytes.
    pub rtt_bytes_max: u32,
    /// Bytes the environment can hold between the network and `receive` (the socket's buffer): most
    /// that may come unasked. Where many senders send at once, each may send less, as
    /// [`Endpoint::overflowed`](crate::Endpoint::overflowed) tells.
    pub receive_buffer: u32,
    /// How many bytes of a message go unscheduled.
    pub unscheduled: UnscheduledLimit,
    /// Message bytes that a scheduled DATA packet holds beyond
    /// [`max_payload`](crate::PeerInfo::max_payload), which unscheduled ones hold: the authors'
    /// simulator gives scheduled ones a header shorter by 14 bytes. What a packet costs on the wire
    /// is the environment's, which asks [`crate::Data::is_unscheduled`].
    pub scheduled_extra: u32,
    /// How far grants run ahead of data (Homa §3.3).
    pub window: GrantWindow,
    /// When a GRANT leaves, and how much it allows (Homa §3.3).
    pub granting: Granting,
    /// How many messages are granted at once (Homa §3.5).
    pub overcommitment: Overcommitment,
    /// So many endpoints of this host share its downlink, this one included: each is granted its
    /// part of what [`GrantWindow::RttBytesShared`] lets the degree of overcommitment come to, at
    /// least a packet. Default 1; `max_incoming` is each endpoint's own.
    pub sharing: u16,
    /// At most one active message per sender host (Homa §3.5); otherwise only a preference.
    pub one_message_per_sender: bool,
    /// Share of grants and of transmitted packets that goes to the oldest message, in thousandths
    /// (Linux: 50). 0 turns it off.
    pub fifo_permille: u16,
    /// Bytes granted at a time to the oldest message (Linux: 50,000).
    pub fifo_increment: u32,
    /// Number of priority levels that are allocated, 1..=8.
    pub levels: u8,
    /// Number of priority levels the network distinguishes, 1..=8: with fewer than `levels`,
    /// adjacent ones become one as packets leave.
    pub network_levels: u8,
    /// How levels are divided between unscheduled and scheduled bytes (Homa §3.4).
    pub priorities: PriorityAllocation,
    /// What chooses the level of unscheduled bytes.
    pub unscheduled_level: UnscheduledLevel,
    /// Scheduled bytes with fewer than this many wire bytes of their message left to grant,
    /// themselves included, travel at the unscheduled level for what is left to grant, if that is
    /// higher than their own. 0: none do.
    pub tail_boost: u32,
    /// Which bytes a GRANT gives its level to.
    pub granted_level: GrantedLevel,
    /// Loss detection (Homa §3.7).
    pub loss: LossConfig,
    /// When a server forgets an RPC (Homa §3.8).
    pub completion: Completion,
    /// Incast control (Homa §3.6).
    pub incast: Option<IncastConfig>,
    /// Clients prove that they receive at their addresses before a request of theirs is executed,
    /// and name themselves, so that duplicates are told whatever the address and however much this
    /// server forgot. Where senders can be forged, and the packets can say so (UDP): the runtime
    /// sets it.
    pub validate_addresses: bool,
    /// RPC ids begin anywhere, instead of counting from 1 in their epoch: the runtime sets it.
    pub unguessable_ids: bool,
    /// Emit [`crate::Event::Readable`] for messages of more than one packet.
    pub readable_events: bool,
    /// Seeds the first RPC id and the hash tables. A runtime passes true randomness.
    pub seed: u64,
}

crate::setters!(Config {
    profile: Profile,
    max_message: u32,
    max_rpcs: u32,
    memory_budget: u64,
    link_rate: impl Into<Option<Rate>>,
    rtt_bytes: u32,
    measure_rtt_bytes: bool,
    rtt_bytes_max: u32,
    receive_buffer: u32,
    unscheduled: UnscheduledLimit,
    scheduled_extra: u32,
    window: GrantWindow,
    granting: Granting,
    overcommitment: Overcommitment,
    sharing: u16,
    one_message_per_sender: bool,
    fifo_permille: u16,
    fifo_increment: u32,
    levels: u8,
    network_levels: u8,
    priorities: PriorityAllocation,
    unscheduled_level: UnscheduledLevel,
    tail_boost: u32,
    granted_level: GrantedLevel,
    loss: LossConfig,
    completion: Completion,
    incast: impl Into<Option<IncastConfig>>,
    validate_addresses: bool,
    unguessable_ids: bool,
    readable_events: bool,
    seed: u64,
});

/// A configuration that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidConfig {
    config: Config,
    /// Of the profile.
    policy: &'static Policy,
}

impl ValidConfig {
    /// What the profile fixes beyond the fields.
    #[inline(always)]
    pub(crate) const fn policy(&self) -> &'static Policy {
        self.policy
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it must satisfy.
    pub must: &'static str,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "protocol configuration: `{}` must {}", self.field, self.must)
    }
}

impl core::error::Error for ConfigError {}

impl core::ops::Deref for ValidConfig {
    type Target = Config;
    fn deref(&self) -> &Config {
        &self.config
    }
}

impl Config {
    /// Checks that the parameters fit together.
    pub fn validate(self) -> Result<ValidConfig, ConfigError> {
        match self.rules().into_iter().find(|(_, _, holds)| !holds) {
            Some((field, must, _)) => Err(ConfigError { field, must }),
            None => Ok(ValidConfig { policy: self.profile.policy(), config: self }),
        }
    }
}
