//! Every parameter of the protocol, in named profiles (`docs/decisions/protocol.md`).
//!
//! [`Config::validate`] turns a configuration into a [`ValidConfig`], the only kind that an
//! endpoint takes. A profile is a set of values. Those that a study varies are fields and combine
//! freely; those that the profile fixes are in `policy`.

mod policy;
mod profile;
mod rule;
mod start_msg;

pub(crate) use policy::{
    FifoShare, GrantPolicy, Liveness, LossPolicy, Policy, RemainingBytes, UnknownReaction,
};

pub use start_msg::{DataLayout, StartMsg};

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
    /// The paper's text (Homa §3.8): at least once, no ACKs. Packets do not say which execution
    /// they answer, so if a server that lost its state executes a request again and gives another
    /// answer of the same length, the response may hold bytes of both.
    Sigcomm18,
    /// The simulator of the paper's §5.2, which deviates from the text: one-way messages between
    /// hosts that lose nothing.
    Sigcomm18Sim,
    /// The Linux kernel module, branch main: at most once, with ACKs, and never a byte that the
    /// module would not send.
    Linux,
    /// The series of patches for the upstream Linux kernel (v19, April 2026): as `Linux`, but every
    /// byte of a message is sent unasked, and RESEND asks for what is missing.
    LinuxUpstream,
    /// For users: ACKs and give-up, measured RTTbytes and cutoffs, incast control.
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
/// `linux_upstream` is `linux` with one level and without a limit on `unscheduled`.
///
/// `network_levels` below `levels` merges adjacent levels and leaves the degree of overcommitment
/// alone (HomaP4, P2, P1 of Homa Figure 8).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The profile that the other fields came from. It still decides what it fixes: which packets
    /// may appear, what counts as a sign of life, who confirms what.
    pub profile: Profile,
    /// Largest message accepted or sent, bytes. Default 16 MiB; kernel module 1,000,000.
    pub max_message: u32,
    /// Most RPCs in progress as client, and as many as server. Limits memory, and what a flood can
    /// do.
    pub max_rpcs: u32,
    /// Bytes of incoming messages (received or granted, not yet delivered) held at a time. One
    /// message may exceed them, so that there is always one that is completed. This is the limit at
    /// the start; [`crate::Endpoint::limit_memory`] changes it.
    pub memory_budget: u64,
    /// Rate of this host's link: turns delays into RTTbytes and bytes into timeouts. `None` if it
    /// is not known (profiles `sigcomm18` and `default` only): then both are measured.
    /// [`Endpoint::set_link`](crate::Endpoint::set_link) sets the rates of further links.
    pub link_rate: Option<Rate>,
    /// RTTbytes until measured, bytes (Homa §3.2: about 10 KB at 10 Gbit/s).
    pub rtt_bytes: u32,
    /// Measure RTTbytes per peer from grant-to-data delays.
    pub measure_rtt_bytes: bool,
    /// Largest RTTbytes that may be measured, and the limit that is advertised to senders, bytes.
    pub rtt_bytes_max: u32,
    /// Bytes that the environment can hold between the network and `receive`, for example the
    /// socket's buffer: the most that may arrive unscheduled. If it overflows, each sender may send
    /// less: [`Endpoint::overflowed`](crate::Endpoint::overflowed).
    pub receive_buffer: u32,
    /// How many bytes of a message go unscheduled.
    pub unscheduled: UnscheduledLimit,
    /// Message bytes that a scheduled DATA packet holds beyond
    /// [`max_payload`](crate::PeerInfo::max_payload), the size of unscheduled ones. In the authors'
    /// simulator the header of scheduled packets is shorter by 14 bytes. The environment decides
    /// what a packet costs on the wire; it asks [`crate::Data::is_unscheduled`].
    pub scheduled_extra: u32,
    /// How far grants run ahead of data (Homa §3.3).
    pub window: GrantWindow,
    /// When a GRANT leaves, and how much it allows (Homa §3.3).
    pub granting: Granting,
    /// How many messages are granted at once (Homa §3.5).
    pub overcommitment: Overcommitment,
    /// Number of endpoints of this host that share its downlink, this one included. Each gets its
    /// part of the degree of overcommitment in [`GrantWindow::RttBytesShared`], but at least a
    /// packet. Default 1; `max_incoming` is not divided.
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
    /// Number of priority levels that the network distinguishes, 1..=8. If it is below `levels`,
    /// adjacent levels are merged as packets leave.
    pub network_levels: u8,
    /// How levels are divided between unscheduled and scheduled bytes (Homa §3.4).
    pub priorities: PriorityAllocation,
    /// What chooses the level of unscheduled bytes.
    pub unscheduled_level: UnscheduledLevel,
    /// Scheduled bytes travel at the unscheduled level for the bytes left to grant, if that is
    /// higher than their own and fewer than this many wire bytes of the message are left to grant,
    /// themselves included. 0: never.
    pub tail_boost: u32,
    /// Which bytes a GRANT gives its level to.
    pub granted_level: GrantedLevel,
    /// Loss detection (Homa §3.7).
    pub loss: LossConfig,
    /// When a server forgets an RPC (Homa §3.8).
    pub completion: Completion,
    /// Incast control (Homa §3.6).
    pub incast: Option<IncastConfig>,
    /// Clients are validated before a request of theirs is executed: they show that they receive at
    /// their address, and identify themselves, so that duplicates are recognised at any address and
    /// whatever this server forgot. A runtime should set it if senders can be spoofed and packets
    /// can carry the extension (UDP).
    pub validate_addresses: bool,
    /// RPC ids begin at a random counter instead of 1. A runtime should set it.
    pub unguessable_ids: bool,
    /// Emit [`crate::Event::Readable`] for messages of more than one packet.
    pub readable_events: bool,
    /// The wire with START_MSG, beside the module's own (profile `linux` only). Default: none.
    pub start_msg: Option<StartMsg>,
    /// Seeds the first RPC id and the hash tables. A runtime should pass true randomness, and a
    /// simulation a fixed number.
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
    /// The values that its profile fixes.
    policy: &'static Policy,
}

impl Config {
    /// True if a message without bytes can be sent: as one byte of padding, which its DATA marks
    /// ([`crate::wire::mark_empty`]). The endpoint sees that byte.
    pub const fn carries_empty_messages(&self) -> bool {
        self.profile.policy().wire.empty_messages
    }

    /// Allows RTTbytes of at most `bytes` ([`rtt_bytes_max`](Self#structfield.rtt_bytes_max)), and
    /// raises `max_incoming` of [`GrantWindow::RttBytesShared`] if it holds fewer than
    /// [`GrantWindow::LARGEST_AT_A_TIME`] such windows.
    #[must_use]
    pub fn windows_up_to(mut self, bytes: u32) -> Self {
        self.rtt_bytes_max = bytes;
        if let GrantWindow::RttBytesShared { max_incoming } = &mut self.window {
            *max_incoming =
                (*max_incoming).max(bytes.saturating_mul(GrantWindow::LARGEST_AT_A_TIME));
        }
        self
    }
}

impl ValidConfig {
    /// The values that the profile fixes.
    #[inline(always)]
    pub(crate) const fn policy(&self) -> &'static Policy {
        self.policy
    }
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// The requirement that it does not meet.
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
