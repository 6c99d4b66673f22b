//! The alternatives of each rule of the protocol, and what a configuration must satisfy.

use super::{Config, FifoShare, LEVELS, NO_LIMIT};
use crate::units::Duration;

/// How many bytes of a message may be sent before the first grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnscheduledLimit {
    /// RTTbytes of the peer (Homa §3.2).
    RttBytes,
    /// A constant, bytes, 1..2^31 (Linux: 40,000; the authors' simulator: 9,328).
    Fixed(u32),
}

/// How many granted bytes may be outstanding per message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantWindow {
    /// RTTbytes (Homa §3.3).
    RttBytes,
    /// `max_incoming / (active messages + 1)`, and at most `max_incoming` bytes over all messages
    /// (Linux §2.4).
    Shared {
        /// Bytes granted and not received, over all messages.
        max_incoming: u32,
    },
    /// RTTbytes per message. This message, those with higher priority, and those that only wait for
    /// their last bytes have together at most the degree of overcommitment times RTTbytes, and at
    /// most `max_incoming` bytes.
    RttBytesShared {
        /// Bytes granted and not received.
        max_incoming: u32,
    },
    /// A constant in bytes as on the wire, headers included (the authors' simulator: 10,000). A
    /// packet is granted while less is outstanding, so the last packet may exceed it.
    WireBytes(u32),
}

impl GrantWindow {
    /// How many of the largest windows may be granted at a time ([`Config::windows_up_to`]).
    pub const LARGEST_AT_A_TIME: u32 = 4;
}

/// When a GRANT leaves, and how much it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granting {
    /// When DATA of an active message arrives, as far as the window reaches (Homa §3.3). A GRANT
    /// for fewer than `least_packets` packets waits while more than half of the window is
    /// outstanding.
    PerMessage {
        /// 0: never waits, and a grant may be for less than a packet if no more fits under
        /// `max_incoming` (Linux).
        least_packets: u8,
    },
    /// As soon as less than the window is outstanding: the window and `packets` packets beyond it
    /// (5 for the transport Basic of Homa Figure 8).
    Ahead {
        /// Packets beyond the window.
        packets: u8,
    },
    /// One packet at a time, for the best message of an active *sender* (the authors' simulator). A
    /// GRANT is sent when any DATA of that sender arrives, but not within a packet's time of its
    /// last GRANT, unless it is at a higher level; and again after a packet's time, while less than
    /// the window is outstanding. Requires `one_message_per_sender`.
    PerSender,
}

impl Granting {
    /// Packets that may have arrived before a GRANT leaves for them: if one GRANT allows two
    /// packets, the first of them arrived a packet's time earlier.
    pub(crate) fn held_back(self) -> u32 {
        match self {
            Self::PerMessage { least_packets } => u32::from(least_packets).saturating_sub(1),
            Self::Ahead { .. } | Self::PerSender => 0,
        }
    }
}

/// The degree of overcommitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommitment {
    /// As many as there are scheduled priority levels.
    ScheduledLevels,
    /// A constant, 1..=8 (Linux: 8).
    Fixed(u8),
    /// Every message is active, at the lowest level (the transport Basic of Homa Figure 8).
    Unlimited,
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

impl PriorityAllocation {
    /// A split that was computed before, of `levels` levels: `cutoffs` are the largest lengths of
    /// all unscheduled levels but the lowest, ascending; the other levels are scheduled. `None` if
    /// that leaves no unscheduled level.
    pub fn precomputed(levels: u8, cutoffs: &[u32]) -> Option<Self> {
        let top = usize::from(levels).checked_sub(1).filter(|&top| top < LEVELS)?;
        let lowest = top.checked_sub(cutoffs.len())?;
        let mut table = [0; LEVELS];
        table[lowest] = NO_LIMIT;
        for (level, &cutoff) in (lowest + 1..=top).rev().zip(cutoffs) {
            table[level] = cutoff;
        }
        Some(Self::Fixed { cutoffs: table })
    }
}

/// What chooses the level of unscheduled bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnscheduledLevel {
    /// The length of their message (Homa §3.4).
    MessageLength,
    /// The bytes of the message left when the packet leaves, so that later packets of a burst get
    /// higher levels (the authors' simulator).
    BytesLeft,
}

/// Which scheduled bytes a GRANT gives its level to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedLevel {
    /// All bytes that were not sent yet (Linux).
    AllUnsent,
    /// The bytes that it allowed (Homa §3.4).
    OwnBytes,
}

/// Timers of loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LossConfig {
    /// Silence after which a RESEND is sent, and again after each RESEND. [`Duration::MAX`]: never,
    /// and no other timer runs either.
    pub resend_after: Duration,
    /// Add the time that all expected bytes need at the link rate. Without this, a link of 50
    /// Mbit/s at 80 % (W4) loses 1.7 times as many frames, because bytes that wait behind others
    /// are asked for again.
    pub scale_with_bytes: bool,
    /// At most one RESEND outstanding per peer. For example, a silent peer with 1,000 calls in
    /// progress is sent 61 RESENDs in a second; without this, 10,256.
    pub one_resend_per_peer: bool,
    /// Silence after which an RPC is given up. `None`: a client gives up at the call's deadline, a
    /// server after `server_silence`.
    pub timeout: Option<Duration>,
    /// A server forgets an incomplete request after this much silence.
    pub server_silence: Duration,
    /// How a server answers a RESEND of an RPC that it does not know.
    pub unknown: UnknownRpcReply,
}

crate::setters!(LossConfig {
    resend_after: Duration,
    scale_with_bytes: bool,
    one_resend_per_peer: bool,
    timeout: impl Into<Option<Duration>>,
    server_silence: Duration,
    unknown: UnknownRpcReply,
});

/// How a server answers a RESEND of an RPC that it does not know.
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
    /// As soon as the last response packet was transmitted; requests may be executed again (Homa
    /// §3.8).
    AtLeastOnce,
    /// When the client has acknowledged it.
    Acked {
        /// From the last response byte to the first NEED_ACK.
        need_ack_after: Duration,
        /// Between NEED_ACKs. It doubles each time; in profile `linux` only after 100 of them.
        need_ack_interval: Duration,
        /// An RPC is forgotten after this long without a sign of its client. The kernel module asks
        /// for ever.
        give_up: Duration,
        /// Remember which of a client's RPCs were executed, so that late duplicates are never
        /// executed again.
        suppress_duplicates: bool,
    },
}

/// Incast control (Homa §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncastConfig {
    /// RPCs outstanding above which new requests carry the flag.
    pub threshold: u32,
    /// Most unscheduled bytes of a flagged RPC's response; at least 1.
    pub max_unscheduled: u16,
    /// Sum of unscheduled bytes over all flagged responses: the limit of a response is this divided
    /// by the number outstanding.
    pub budget: u32,
    /// New requests carry the flag if pending responses may bring more unscheduled bytes than this,
    /// whatever their number: what the buffer of a switch port can be expected to hold.
    pub burst: u32,
}

impl Default for IncastConfig {
    /// The values of profile `default`.
    fn default() -> Self {
        Self { threshold: 32, max_unscheduled: 400, budget: 64_000, burst: 100_000 }
    }
}

crate::setters!(IncastConfig { threshold: u32, max_unscheduled: u16, budget: u32, burst: u32 });

impl Config {
    /// Each field with its requirement, and whether it is met.
    pub(super) fn rules(&self) -> [(&'static str, &'static str, bool); 18] {
        let degree = match self.overcommitment {
            Overcommitment::Fixed(k) => (1..=8).contains(&k),
            Overcommitment::ScheduledLevels | Overcommitment::Unlimited => true,
        };
        let per_sender = self.granting == Granting::PerSender;
        // Both derive times from how long the link needs for a packet.
        let by_time = per_sender || self.profile.policy().grants.fifo == FifoShare::Time;
        // The authors' simulator has one timer per sender, and so one active message.
        let one_each =
            self.one_message_per_sender && self.overcommitment != Overcommitment::Unlimited;
        let unscheduled = match self.unscheduled {
            UnscheduledLimit::Fixed(bytes) => (1..1 << 31).contains(&bytes),
            UnscheduledLimit::RttBytes => true,
        };
        let incast = self.incast.is_none_or(|incast| incast.max_unscheduled >= 1);
        [
            ("levels", "be between 1 and 8", (1..=8).contains(&self.levels)),
            ("network_levels", "be between 1 and 8", (1..=8).contains(&self.network_levels)),
            ("max_message", "be between 1 and 2^31 - 1", (1..1 << 31).contains(&self.max_message)),
            ("max_rpcs", "be between 1 and 2^24", (1..=1 << 24).contains(&self.max_rpcs)),
            (
                "link_rate",
                "be at least 1 Mbit/s, and known where grants keep time by it",
                self.link_rate.map_or(!by_time, |rate| rate.0 >= 1_000_000),
            ),
            ("rtt_bytes", "be at least 1", self.rtt_bytes >= 1),
            ("rtt_bytes_max", "be at least rtt_bytes", self.rtt_bytes_max >= self.rtt_bytes),
            ("unscheduled", "be between 1 and 2^31 - 1 bytes", unscheduled),
            ("window", "be at least 1 byte", self.window != GrantWindow::WireBytes(0)),
            ("granting", "go with one message per sender", one_each || !per_sender),
            ("fifo_permille", "be at most 1000", self.fifo_permille <= 1000),
            ("fifo_increment", "be at least 1", self.fifo_increment >= 1),
            ("overcommitment", "be between 1 and 8", degree),
            (
                "start_msg",
                "be in profile linux, with a packet type that no other packet has",
                self.start_msg_fits(),
            ),
            ("sharing", "be at least 1", self.sharing >= 1),
            ("incast.max_unscheduled", "be at least 1 byte", incast),
            ("scheduled_extra", "be at most 1000", self.scheduled_extra <= 1000),
            (
                "loss.resend_after",
                "be at least 1 ms",
                self.loss.resend_after >= Duration::millis(1),
            ),
        ]
    }
}
