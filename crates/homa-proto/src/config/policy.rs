//! What a profile fixes beyond the fields of [`Config`](super::Config): what appears on the wire,
//! what counts as a sign of life, and who confirms what. Here and nowhere else: every other rule
//! asks for a value of these, not for the profile.
//!
//! Tests that are named are the simulator's. [`USERS`] is `default`'s, [`KERNEL`] `linux`'s; the
//! paper's text and the authors' simulator share [`PAPER`].

use super::Profile;
use crate::packet::Acks;

/// Bytes of any packet of ours, over any link, at most.
const MAX_PAYLOAD: u32 = 65_536;
/// Acks that wait for DATA to ride on, at most, per peer: a burst of calls is answered about as
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
    /// SRPT's measure of a message.
    pub remaining: RemainingBytes,
    /// Of messages with equal bytes remaining the older is first; otherwise the shorter is.
    pub older_first: bool,
    /// Bytes of the packet in which a grant ends, at most: what may arrive beyond it.
    pub packet: u32,
    /// A GRANT may be for less than a packet while more is to come.
    pub partial: bool,
    /// When the oldest message is granted out of turn.
    pub fifo: FifoShare,
    /// Unscheduled bytes end with a packet, unless the message does before.
    pub whole_packets: bool,
    /// A message that there is no memory for waits for it; otherwise its sender sends it again.
    pub waits_for_memory: bool,
}

/// SRPT's measure of a message: bytes …
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RemainingBytes {
    /// … to grant (Homa §3.4); what came beyond a grant needs none.
    Ungranted,
    /// … to receive (Linux §2.4); grants go on from the last, whatever came.
    Unreceived,
}

/// When the oldest message is granted out of turn: for its share of …
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FifoShare {
    /// … the bytes that are granted.
    Bytes,
    /// … the time in which the link could have carried them (Linux §2.4).
    Time,
}

/// When silence means loss, and what is asked for then (Homa §3.7).
#[derive(Debug, PartialEq)]
pub(crate) struct LossPolicy {
    /// Patience grows with how long responses and gaps of the peer took lately. Without it, long
    /// responses that wait behind shorter messages end too early (`starvation`).
    pub adaptive_timeout: bool,
    /// Nothing is asked for again while our link is full: it may be waiting behind what arrives.
    /// Without it, a message of 60 kB needs more than 80 us beside busy senders, instead of 59
    /// (`overcommitment`).
    pub defers_on_full_link: bool,
    /// RESENDs for the gaps of one message at a time. With one, there are calls that never end
    /// where memory is short: in 2 of 200,000 scenarios (`homa swarm`).
    pub ranges: usize,
    /// What was due a moment ago counts as done when it was due, so that counters of ticks do not
    /// drift (Linux §2.5).
    pub without_drift: bool,
    /// A message whose RESENDs bring nothing makes room for others. Where `one_resend_per_peer` is
    /// off nothing else has it do so (`grant/suspended.rs`): without this, eight silent hosts stop
    /// the requests of all others (`bounds`, `silent`).
    pub suspends: bool,
    /// What shows a receiver that its peer lives.
    pub liveness: Liveness,
    /// A client's silence begins when it has sent all that it may; otherwise when its packets left.
    pub silence_starts_when_sent: bool,
    /// BUSY where what is sent again has to wait for shorter messages (Homa Figure 3); otherwise
    /// only where there is nothing to send again (Linux §2.5).
    pub busy_while_waiting: bool,
    /// A client's RESEND for a response that does not exist yet is also answered by asking for what
    /// is missing of its request. Without it, there are calls that never end where memory is short:
    /// in 3 of 200,000 scenarios (`homa swarm`).
    pub requests_missing_on_resend: bool,
    /// A client to whom RPC_UNKNOWN is said …
    pub unknown: UnknownReaction,
    /// What the network reports as unreachable ends the calls that it proves were not executed;
    /// otherwise every call of the peer.
    pub verifies_unreachable: bool,
}

/// What shows a receiver that its peer lives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Liveness {
    /// New bytes; and for a request of which nothing is owed, anything of its client's.
    Progress,
    /// Any packet of the RPC; and nothing is expected while nothing is owed (Linux §2.5).
    AnyPacket,
}

/// What a client does that RPC_UNKNOWN is said to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UnknownReaction {
    /// It begins again: at least once (Homa §3.7).
    Restart,
    /// It sends what it sent once more (Linux §2.5).
    Retransmit,
    /// It goes on only where that executes nothing twice.
    AtMostOnce,
}

/// Who confirms what, and who remembers it (Homa §3.8).
#[derive(Debug, PartialEq)]
pub(crate) struct CompletionPolicy {
    /// Acks that wait for DATA to ride on, at most, per peer.
    pub acks: usize,
    /// The newest ack rides first; otherwise the oldest.
    pub newest_first: bool,
    /// NEED_ACKs before the interval between them doubles.
    pub steady: u16,
    /// NEED_ACK at a client that waits for its response makes it repeat the grant. Without this, or
    /// the next, responses that wait for grants for half a minute are lost (`starvation`).
    pub repeats_grant: bool,
    /// A server asks whether anybody still wants a response that nobody grants.
    pub asks_while_sending: bool,
    /// A request that the server's application gave up counts as executed, and its client is told.
    pub tells_given_up: bool,
    /// RPC_UNKNOWN says how far back the server remembers what it executed.
    pub tells_memory: bool,
}

/// What may appear on the wire beyond the packets of Homa §3.
#[derive(Debug, PartialEq)]
pub(crate) struct WirePolicy {
    /// CUTOFFS before anything was measured; otherwise every host is told the same beforehand.
    pub cutoffs: bool,
    /// CUTOFFS carry the largest message and the unscheduled bytes that are taken, to senders of
    /// longer messages as well.
    pub limits: bool,
    /// Senders of more unscheduled bytes than their share are told at once.
    pub corrects_senders: bool,
    /// CUTOFFS go to a sender whose version is old only once its packet was accepted.
    pub cutoffs_after_data: bool,
    /// DATA that was asked for says it is unscheduled as far as was asked; otherwise as far as the
    /// message's unscheduled bytes reach, and its own (Linux §2.5).
    pub again_as_asked: bool,
    /// Requests say how long their response may be unscheduled (Homa §3.6).
    pub response_limits: bool,
    /// Addresses are proven by CHALLENGE and its answer; otherwise by NEED_ACK and ACK.
    pub challenges: bool,
}

/// The paper's text, and the simulator behind its §5.2.
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
    },
    wire: WirePolicy {
        cutoffs: false,
        limits: false,
        corrects_senders: false,
        cutoffs_after_data: false,
        again_as_asked: false,
        response_limits: true,
        challenges: false,
    },
};

/// The Linux kernel module.
static KERNEL: Policy = Policy {
    grants: GrantPolicy {
        remaining: RemainingBytes::Unreceived,
        older_first: true,
        // It sends the packet whole in which its grant ends, and cuts it up later: so many bytes
        // where it is tuned for 100 Gbit/s (Linux trap 9).
        packet: 100_000,
        partial: true,
        fifo: FifoShare::Time,
        whole_packets: false,
        waits_for_memory: true,
    },
    loss: LossPolicy {
        adaptive_timeout: false,
        defers_on_full_link: false,
        // It asks for every gap: as many as its longest message has when every other packet is
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
        // One ACK packet's worth.
        acks: Acks::CAPACITY,
        newest_first: true,
        // At its beat, 1 ms: its clients give up after 100 ms, and nobody may have us send for ever
        // by one packet.
        steady: 100,
        repeats_grant: false,
        asks_while_sending: false,
        tells_given_up: false,
        tells_memory: false,
    },
    wire: WirePolicy {
        cutoffs: true,
        limits: false,
        corrects_senders: false,
        cutoffs_after_data: true,
        again_as_asked: true,
        // Older kernels leave anything in these bytes.
        response_limits: false,
        challenges: false,
    },
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
    },
    wire: WirePolicy {
        cutoffs: true,
        limits: true,
        corrects_senders: true,
        cutoffs_after_data: false,
        again_as_asked: false,
        response_limits: true,
        challenges: true,
    },
};

impl Profile {
    /// What it fixes.
    pub(crate) const fn policy(self) -> &'static Policy {
        match self {
            Self::Sigcomm18 | Self::Sigcomm18Sim => &PAPER,
            Self::Linux => &KERNEL,
            Self::Default => &USERS,
        }
    }
}
