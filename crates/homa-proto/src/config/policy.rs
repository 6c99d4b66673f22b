//! The values that a profile fixes beyond the fields of [`Config`](super::Config): which packets
//! appear, what counts as a sign of life, who confirms what. No other file asks for the profile;
//! rules ask for one of these values.
//!
//! Tests that are named here are the simulator's. [`USERS`] belongs to `default`, [`KERNEL`] to
//! `linux` and [`UPSTREAM`] to `linux-upstream`; the paper's text and the authors' simulator share
//! [`PAPER`].

use super::Profile;
use crate::packet::Acks;

/// Most bytes of any packet of ours over any link.
const MAX_PAYLOAD: u32 = 65_536;
/// Most ACKs per peer that wait for DATA to carry them. A burst of calls is acknowledged about as
/// fast as the next burst is made.
const MAX_PENDING: usize = 256;

/// The values of a profile.
#[derive(Debug, PartialEq)]
pub(crate) struct Policy {
    pub grants: GrantPolicy,
    pub loss: LossPolicy,
    pub completion: CompletionPolicy,
    pub wire: WirePolicy,
}

/// How messages are ranked and granted (Homa §3.3 to §3.5).
#[derive(Debug, PartialEq)]
pub(crate) struct GrantPolicy {
    /// How SRPT measures a message.
    pub remaining: RemainingBytes,
    /// If two messages have equally many bytes left, the older is first; otherwise the shorter is.
    pub older_first: bool,
    /// Most bytes of the packet in which a grant ends, and so how far DATA may arrive beyond a
    /// grant.
    pub packet: u32,
    /// A GRANT may be for less than a packet while more is to come.
    pub partial: bool,
    /// How the oldest message gets its share.
    pub fifo: FifoShare,
    /// Unscheduled bytes end with a full packet, unless the message is shorter.
    pub whole_packets: bool,
    /// A message waits if there is no memory for it; otherwise it is dropped, and its sender sends
    /// it again.
    pub waits_for_memory: bool,
}

/// How SRPT measures a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RemainingBytes {
    /// By the bytes that are not granted yet (Homa §3.4). Bytes that arrived beyond a grant need
    /// none.
    Ungranted,
    /// By the bytes that have not arrived (Linux §2.4). Grants continue from the last one, whatever
    /// arrived.
    Unreceived,
}

/// How the oldest message gets its share of grants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FifoShare {
    /// By bytes: its share of the bytes that are granted.
    Bytes,
    /// By time: its share of what the link could have carried (Linux §2.4).
    Time,
}

/// When silence means loss, and which RESENDs follow (Homa §3.7).
#[derive(Debug, PartialEq)]
pub(crate) struct LossPolicy {
    /// The RESEND timeout grows with how long responses and gaps of the peer took lately. Without
    /// this, long responses that wait behind shorter messages end too early (`starvation`).
    pub adaptive_timeout: bool,
    /// No RESEND while our link is full, because missing bytes may wait behind those that arrive.
    /// Without this, a message of 60 kB beside busy senders needs more than 80 us instead of 59
    /// (`overcommitment`).
    pub defers_on_full_link: bool,
    /// Most RESENDs for the gaps of one message at a time. With one, some calls never end if memory
    /// is short: 2 of 200,000 scenarios (`homa swarm`).
    pub ranges: usize,
    /// A timer that fires a moment late counts as on time, so that counters of ticks do not drift
    /// (Linux §2.5).
    pub without_drift: bool,
    /// A message is suspended if its RESENDs bring nothing. If `one_resend_per_peer` is off,
    /// nothing else suspends it: without this, eight silent hosts stop the requests of all others
    /// (`bounds`, `silent`).
    pub suspends: bool,
    /// What shows a receiver that its peer is alive.
    pub liveness: Liveness,
    /// A client's silence begins when all that may be sent was sent; otherwise when the packets
    /// left.
    pub silence_starts_when_sent: bool,
    /// BUSY if a retransmission has to wait for shorter messages (Homa Figure 3); otherwise only if
    /// there is nothing to retransmit (Linux §2.5).
    pub busy_while_waiting: bool,
    /// A client's RESEND for a response that does not exist yet is also answered by a RESEND for
    /// the missing bytes of its request. Without this, some calls never end if memory is short: 3
    /// of 200,000 scenarios (`homa swarm`).
    pub requests_missing_on_resend: bool,
    /// What a client does when it receives RPC_UNKNOWN.
    pub unknown: UnknownReaction,
    /// An ICMP report ends the calls that it proves were not executed; otherwise it ends every call
    /// of the peer.
    pub verifies_unreachable: bool,
}

/// What shows a receiver that its peer is alive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Liveness {
    /// New bytes; and for a request whose granted bytes are all here, any packet of its client.
    Progress,
    /// Any packet of the RPC. Nothing is expected while nothing is owed (Linux §2.5).
    AnyPacket,
}

/// What a client does when it receives RPC_UNKNOWN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UnknownReaction {
    /// It starts the request over: at least once (Homa §3.7).
    Restart,
    /// It retransmits all that it sent (Linux §2.5).
    Retransmit,
    /// It continues only if nothing can be executed twice.
    AtMostOnce,
}

/// Who confirms completion, and who remembers it (Homa §3.8).
#[derive(Debug, PartialEq)]
pub(crate) struct CompletionPolicy {
    /// Most ACKs per peer that wait for DATA to carry them.
    pub acks: usize,
    /// The newest ACK is piggybacked first; otherwise the oldest.
    pub newest_first: bool,
    /// NEED_ACKs before the interval between them doubles.
    pub steady: u16,
    /// A client that waits for a response repeats its grant when it receives NEED_ACK. Without this
    /// or the next, responses that wait half a minute for grants are lost (`starvation`).
    pub repeats_grant: bool,
    /// A server asks whether a response that gets no grants is still wanted.
    pub asks_while_sending: bool,
    /// A request that the server's application gave up counts as executed, and its client is told.
    pub tells_given_up: bool,
    /// RPC_UNKNOWN says how far back the server remembers what it executed.
    pub tells_memory: bool,
    /// For a moment after an ACK, a RESEND of its RPC is not answered by RPC_UNKNOWN, which the
    /// kernel module logs as an error.
    pub quiet_after_ack: bool,
}

/// Which packets and extensions may appear beyond those of Homa §3.
#[derive(Debug, PartialEq)]
pub(crate) struct WirePolicy {
    /// There are GRANT and CUTOFFS. Otherwise every byte is sent unasked, DATA says neither how
    /// many are nor by which cutoffs, and RESEND asks for what is missing (Linux §1.8).
    pub grants_and_cutoffs: bool,
    /// CUTOFFS are sent before anything was measured; otherwise every host has the same ones from
    /// the start.
    pub cutoffs: bool,
    /// CUTOFFS carry the largest message and the most unscheduled bytes that we accept, and are
    /// sent to senders of longer messages, too.
    pub limits: bool,
    /// Senders of more unscheduled bytes than their share are told at once.
    pub corrects_senders: bool,
    /// A sender with an old version of our cutoffs gets new ones only after its packet was
    /// accepted.
    pub cutoffs_after_data: bool,
    /// A retransmission declares as unscheduled the bytes up to the end of the RESEND's range;
    /// otherwise up to the end of the message's unscheduled bytes and its own (Linux §2.5).
    pub again_as_asked: bool,
    /// Requests limit the unscheduled bytes of their responses (Homa §3.6).
    pub response_limits: bool,
    /// A request for which there is no room is answered by BUSY with a time to come back; otherwise
    /// it is dropped. BUSY for a request that has been in service for long names such a time, too.
    pub come_back: bool,
    /// DATA can say that its message has no bytes.
    pub empty_messages: bool,
    /// Addresses are validated by CHALLENGE and its answer; otherwise by NEED_ACK and ACK.
    pub challenges: bool,
}

/// The paper's text, and the simulator of its §5.2.
static PAPER: Policy = Policy {
    grants: GrantPolicy {
        remaining: RemainingBytes::Ungranted,
        older_first: false,
        packet: MAX_PAYLOAD,
        partial: false,
        fifo: FifoShare::Bytes,
        whole_packets: false,
        waits_for_memory: true,
    },
    loss: LossPolicy {
        adaptive_timeout: false,
        defers_on_full_link: false,
        // Homa §3.7: RESEND names the first range of missing bytes.
        ranges: 1,
        without_drift: false,
        suspends: true,
        liveness: Liveness::Progress,
        silence_starts_when_sent: false,
        busy_while_waiting: true,
        requests_missing_on_resend: false,
        unknown: UnknownReaction::Restart,
        verifies_unreachable: false,
    },
    completion: CompletionPolicy {
        acks: MAX_PENDING,
        newest_first: false,
        steady: 0,
        repeats_grant: false,
        asks_while_sending: false,
        tells_given_up: false,
        tells_memory: false,
        quiet_after_ack: false,
    },
    wire: WirePolicy {
        grants_and_cutoffs: true,
        cutoffs: false,
        limits: false,
        corrects_senders: false,
        cutoffs_after_data: false,
        again_as_asked: false,
        response_limits: true,
        come_back: false,
        empty_messages: false,
        challenges: false,
    },
};

/// The Linux kernel module.
static KERNEL: Policy = MODULE;
const MODULE: Policy = Policy {
    grants: GrantPolicy {
        remaining: RemainingBytes::Unreceived,
        older_first: true,
        // The module sends the whole packet in which its grant ends, and segments it later. If it
        // is tuned for 100 Gbit/s, that is so long (Linux trap 9).
        packet: 100_000,
        partial: true,
        fifo: FifoShare::Time,
        whole_packets: false,
        waits_for_memory: true,
    },
    loss: LossPolicy {
        adaptive_timeout: false,
        defers_on_full_link: false,
        // The module asks for every gap. Its longest message has this many if every other packet is
        // lost.
        ranges: 360,
        without_drift: true,
        suspends: false,
        liveness: Liveness::AnyPacket,
        silence_starts_when_sent: true,
        busy_while_waiting: false,
        requests_missing_on_resend: false,
        unknown: UnknownReaction::Retransmit,
        verifies_unreachable: false,
    },
    completion: CompletionPolicy {
        // As many as one ACK packet holds.
        acks: Acks::CAPACITY,
        newest_first: true,
        // Once a millisecond, as the module does: its clients give up after 100 ms. Not for ever,
        // because one forged packet must not make us send without end.
        steady: 100,
        repeats_grant: false,
        asks_while_sending: false,
        tells_given_up: false,
        tells_memory: false,
        quiet_after_ack: true,
    },
    wire: WirePolicy {
        grants_and_cutoffs: true,
        cutoffs: true,
        limits: false,
        corrects_senders: false,
        cutoffs_after_data: true,
        again_as_asked: true,
        // Older kernels leave anything in these bytes.
        response_limits: false,
        come_back: false,
        empty_messages: false,
        challenges: false,
    },
};

/// The series for the upstream kernel: the module without grants and cutoffs.
static UPSTREAM: Policy = Policy {
    wire: WirePolicy {
        cutoffs: false,
        cutoffs_after_data: false,
        grants_and_cutoffs: false,
        ..MODULE.wire
    },
    ..MODULE
};

/// For users.
static USERS: Policy = Policy {
    grants: GrantPolicy {
        remaining: RemainingBytes::Ungranted,
        older_first: false,
        packet: MAX_PAYLOAD,
        partial: false,
        fifo: FifoShare::Bytes,
        whole_packets: true,
        // The client of a request is sent away with a time to come back instead (`rpc/room`).
        waits_for_memory: false,
    },
    loss: LossPolicy {
        adaptive_timeout: true,
        defers_on_full_link: true,
        ranges: 16,
        without_drift: false,
        suspends: true,
        liveness: Liveness::Progress,
        silence_starts_when_sent: false,
        busy_while_waiting: true,
        requests_missing_on_resend: true,
        unknown: UnknownReaction::AtMostOnce,
        verifies_unreachable: true,
    },
    completion: CompletionPolicy {
        acks: MAX_PENDING,
        newest_first: false,
        steady: 0,
        repeats_grant: true,
        asks_while_sending: true,
        tells_given_up: true,
        tells_memory: true,
        quiet_after_ack: false,
    },
    wire: WirePolicy {
        grants_and_cutoffs: true,
        cutoffs: true,
        limits: true,
        corrects_senders: true,
        cutoffs_after_data: false,
        again_as_asked: false,
        response_limits: true,
        come_back: true,
        empty_messages: true,
        challenges: true,
    },
};

impl Profile {
    /// The values that the profile fixes.
    pub(crate) const fn policy(self) -> &'static Policy {
        match self {
            Self::Sigcomm18 | Self::Sigcomm18Sim => &PAPER,
            Self::Linux => &KERNEL,
            Self::LinuxUpstream => &UPSTREAM,
            Self::Default => &USERS,
        }
    }
}
