//! Every parameter of the protocol, in four named profiles (the table in `ARCHITECTURE.md`).
//!
//! [`Config::validate`] turns a configuration into a [`ValidConfig`], the only kind an endpoint
//! takes.

use crate::units::{Duration, Rate};

/// Priority levels of a packet; 0 is lowest.
pub const LEVELS: usize = 8;

/// Wire bytes of a full Ethernet frame, preamble and inter-frame gap included.
pub const FULL_FRAME: u32 = 1538;

/// A named set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The paper's text (Homa §3): at least once, no acks.
    Sigcomm18,
    /// The Linux kernel module, branch main: at most once, acked, never a byte it would not send.
    Linux,
    /// For users: acked, give-up, measured RTTbytes and cutoffs, incast control.
    Default,
}

/// The protocol's parameters. Start from a profile's constructor and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the other fields came from; also decides what may appear on the wire.
    pub profile: Profile,
    /// Largest message accepted or sent, bytes. Default 16 MiB; kernel module 1,000,000.
    pub max_message: u32,
    /// Most RPCs in progress, as client and as server each. Bounds memory and hostile floods.
    pub max_rpcs: u32,
    /// Bytes of incoming messages (received or granted, not yet delivered) held at a time; one
    /// message may exceed them, so that there is always one that becomes whole. At the start;
    /// changed with [`crate::Endpoint::limit_memory`].
    pub memory_budget: u64,
    /// Rate of this host's link: turns delays into RTTbytes and bytes into timeouts.
    pub link_rate: Rate,
    /// RTTbytes until measured, bytes (Homa §3.2: about 10 KB at 10 Gbit/s).
    pub rtt_bytes: u32,
    /// Measure RTTbytes per peer from grant-to-data delays.
    pub measure_rtt_bytes: bool,
    /// Most RTTbytes may become, and the cap advertised to senders, bytes.
    pub rtt_bytes_max: u32,
    /// Bytes the environment can hold between the network and `receive` (the socket's buffer): all
    /// senders' unscheduled bytes together should fit, so each is told its share.
    pub receive_buffer: u32,
    /// How many bytes of a message go unscheduled.
    pub unscheduled: UnscheduledLimit,
    /// How far grants run ahead of data (Homa §3.3).
    pub window: GrantWindow,
    /// How many messages are granted at once (Homa §3.5).
    pub overcommitment: Overcommitment,
    /// At most one active message per sender host (Homa §3.5); otherwise only a preference.
    pub one_message_per_sender: bool,
    /// Share of grants and of transmitted packets that goes to the oldest message, in thousandths
    /// (Linux: 50). 0 turns it off.
    pub fifo_permille: u16,
    /// Bytes granted at a time to the oldest message (Linux: 50,000).
    pub fifo_increment: u32,
    /// Number of priority levels the network distinguishes, 1..=8.
    pub levels: u8,
    /// How levels are divided between unscheduled and scheduled bytes (Homa §3.4).
    pub priorities: PriorityAllocation,
    /// Loss detection (Homa §3.7).
    pub loss: LossConfig,
    /// When a server forgets an RPC (Homa §3.8).
    pub completion: Completion,
    /// Incast control (Homa §3.6).
    pub incast: Option<IncastConfig>,
    /// Emit [`crate::Event::Readable`] for messages of more than one packet.
    pub readable_events: bool,
    /// Seeds the first RPC id and the hash tables. A runtime passes true randomness.
    pub seed: u64,
}

/// How many bytes of a message may be sent before the first grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnscheduledLimit {
    /// RTTbytes of the peer (Homa §3.2).
    RttBytes,
    /// A constant, bytes (Linux: 40,000).
    Fixed(u32),
}

/// How many granted bytes may be outstanding per message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantWindow {
    /// RTTbytes (Homa §3.3).
    RttBytes,
    /// `max_incoming / (active messages + 1)`, all together at most `max_incoming` bytes (Linux
    /// §2.4).
    Shared {
        /// Bytes granted and not received, over all messages.
        max_incoming: u32,
    },
    /// RTTbytes, all together at most `max_incoming` bytes.
    RttBytesShared {
        /// Bytes granted and not received, over all messages.
        max_incoming: u32,
    },
}

/// The degree of overcommitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommitment {
    /// As many as there are scheduled priority levels.
    ScheduledLevels,
    /// A constant (Linux: 8).
    Fixed(u8),
}

/// How priority levels are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityAllocation {
    /// From measured traffic: levels by bytes, equal-byte cutoffs, recomputed as traffic changes.
    Measured,
    /// Given: largest message length per level 0..=7, 0 for scheduled levels.
    Fixed {
        /// As in CUTOFFS.
        cutoffs: [u32; LEVELS],
    },
}

/// Timers of loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossConfig {
    /// Silence after which a RESEND is sent, and then again.
    pub resend_after: Duration,
    /// Add the time that the expected bytes need at the link rate.
    pub scale_with_bytes: bool,
    /// At most one RESEND outstanding per peer.
    pub one_resend_per_peer: bool,
    /// Silence after which an RPC is given up; `None`: at the call's deadline (client) or never
    /// heard of again for `server_silence` (server).
    pub timeout: Option<Duration>,
    /// A server forgets an incomplete request after this much silence.
    pub server_silence: Duration,
    /// What a server answers to a RESEND of an RPC it does not know.
    pub unknown: UnknownRpcReply,
}

/// The answer to a RESEND for an unknown RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownRpcReply {
    /// A RESEND of the request's first RTTbytes (Homa §3.7).
    ResendRequest,
    /// RPC_UNKNOWN (Linux).
    RpcUnknown,
}

/// When a server's state for an RPC ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// As soon as the last response packet was transmitted; requests may execute again (Homa §3.8).
    AtLeastOnce,
    /// When the client acknowledged.
    Acked {
        /// After the last response byte was sent, until the first NEED_ACK.
        need_ack_after: Duration,
        /// Between NEED_ACKs (doubling each time when there is a give-up).
        need_ack_interval: Duration,
        /// When to stop asking; `None`: never (Linux).
        give_up: Option<Duration>,
        /// Remember which of a client's RPCs were executed, so that late duplicates never run
        /// again.
        suppress_duplicates: bool,
    },
}

/// Incast control (Homa §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncastConfig {
    /// RPCs outstanding above which new requests carry the flag.
    pub threshold: u32,
    /// Most unscheduled bytes of a flagged RPC's response.
    pub max_unscheduled: u16,
    /// Sum of unscheduled bytes over all flagged responses: the limit per response is this divided
    /// by the number outstanding.
    pub budget: u32,
}

/// A configuration that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidConfig(Config);

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
        &self.0
    }
}

impl Config {
    /// The paper's text.
    pub fn sigcomm18(link_rate: Rate) -> Self {
        Self {
            profile: Profile::Sigcomm18,
            window: GrantWindow::RttBytes,
            measure_rtt_bytes: false,
            fifo_permille: 0,
            loss: LossConfig {
                resend_after: Duration::millis(2),
                scale_with_bytes: false,
                one_resend_per_peer: false,
                timeout: Some(Duration::millis(20)),
                server_silence: Duration::millis(20),
                unknown: UnknownRpcReply::ResendRequest,
            },
            completion: Completion::AtLeastOnce,
            ..Self::for_users(link_rate)
        }
    }

    /// The Linux kernel module, branch main, with its defaults.
    pub fn linux() -> Self {
        Self {
            profile: Profile::Linux,
            max_message: 1_000_000,
            rtt_bytes: 40_000,
            measure_rtt_bytes: false,
            rtt_bytes_max: 1_000_000,
            unscheduled: UnscheduledLimit::Fixed(40_000),
            window: GrantWindow::Shared { max_incoming: 400_000 },
            overcommitment: Overcommitment::Fixed(8),
            one_message_per_sender: false,
            fifo_increment: 50_000,
            priorities: PriorityAllocation::Fixed {
                cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
            },
            loss: LossConfig {
                resend_after: Duration::millis(5),
                scale_with_bytes: false,
                one_resend_per_peer: false,
                timeout: Some(Duration::millis(100)),
                server_silence: Duration::millis(100),
                unknown: UnknownRpcReply::RpcUnknown,
            },
            completion: Completion::Acked {
                need_ack_after: Duration::millis(2),
                need_ack_interval: Duration::millis(1),
                give_up: None,
                suppress_duplicates: false,
            },
            incast: None,
            ..Self::for_users(Rate::gbps(25))
        }
    }

    /// The default for users.
    pub fn for_users(link_rate: Rate) -> Self {
        Self {
            profile: Profile::Default,
            max_message: 16 << 20,
            max_rpcs: 100_000,
            memory_budget: 256 << 20,
            link_rate,
            rtt_bytes: 10_000,
            measure_rtt_bytes: true,
            rtt_bytes_max: 60_000,
            receive_buffer: 4 << 20,
            unscheduled: UnscheduledLimit::RttBytes,
            window: GrantWindow::RttBytesShared { max_incoming: 400_000 },
            overcommitment: Overcommitment::ScheduledLevels,
            one_message_per_sender: true,
            fifo_permille: 50,
            fifo_increment: 10_000,
            levels: 8,
            priorities: PriorityAllocation::Measured,
            loss: LossConfig {
                resend_after: Duration::millis(5),
                scale_with_bytes: true,
                one_resend_per_peer: true,
                timeout: None,
                server_silence: Duration::secs(10),
                unknown: UnknownRpcReply::RpcUnknown,
            },
            completion: Completion::Acked {
                need_ack_after: Duration::millis(25),
                need_ack_interval: Duration::millis(25),
                give_up: Some(Duration::secs(2)),
                suppress_duplicates: true,
            },
            incast: Some(IncastConfig { threshold: 32, max_unscheduled: 400, budget: 64_000 }),
            readable_events: false,
            seed: 1,
        }
    }

    /// Checks that the parameters fit together.
    pub fn validate(self) -> Result<ValidConfig, ConfigError> {
        let rules: [(&'static str, &'static str, bool); 11] = [
            ("levels", "be between 1 and 8", (1..=8).contains(&self.levels)),
            ("max_message", "be between 1 and 2^31 - 1", (1..1 << 31).contains(&self.max_message)),
            ("max_rpcs", "be between 1 and 2^24", (1..=1 << 24).contains(&self.max_rpcs)),
            ("link_rate", "be at least 1 Mbit/s", self.link_rate >= Rate::mbps(1)),
            ("rtt_bytes", "be at least 1", self.rtt_bytes >= 1),
            ("rtt_bytes_max", "be at least rtt_bytes", self.rtt_bytes_max >= self.rtt_bytes),
            ("unscheduled", "be at least 1 byte", self.unscheduled != UnscheduledLimit::Fixed(0)),
            ("fifo_permille", "be at most 1000", self.fifo_permille <= 1000),
            ("fifo_increment", "be at least 1", self.fifo_increment >= 1),
            (
                "overcommitment",
                "be between 1 and 8",
                match self.overcommitment {
                    Overcommitment::Fixed(k) => (1..=8).contains(&k),
                    Overcommitment::ScheduledLevels => true,
                },
            ),
            (
                "loss.resend_after",
                "be at least 1 ms",
                self.loss.resend_after >= Duration::millis(1),
            ),
        ];
        match rules.into_iter().find(|(_, _, holds)| !holds) {
            Some((field, must, _)) => Err(ConfigError { field, must }),
            None => Ok(ValidConfig(self)),
        }
    }
}
