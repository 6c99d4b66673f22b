//! The named profiles: the value of each field, and where it comes from.

use super::{
    Completion, Config, GrantWindow, GrantedLevel, Granting, IncastConfig, LossConfig, NO_LIMIT,
    Overcommitment, PriorityAllocation, Profile, UnknownRpcReply, UnscheduledLevel,
    UnscheduledLimit,
};
use crate::units::{Duration, Rate};

/// Memory that no simulation fills.
const UNBOUNDED: u64 = 1 << 60;

impl Config {
    /// The paper's text.
    pub fn sigcomm18(link_rate: impl Into<Option<Rate>>) -> Self {
        Self {
            profile: Profile::Sigcomm18,
            max_message: NO_LIMIT,
            window: GrantWindow::RttBytes,
            granting: Granting::PerMessage { least_packets: 1 },
            granted_level: GrantedLevel::OwnBytes,
            measure_rtt_bytes: false,
            fifo_permille: 0,
            loss: LossConfig {
                // Homa §3.7: a few milliseconds.
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

    /// The packet simulator of Homa §5.2, at 10 Gbit/s or with windows to match: see
    /// [`Self::with_rtt_wire_bytes`]. Its sizes assume its headers: `max_payload` should be 1442
    /// for peers.
    ///
    /// The split and the cutoffs are those of W3 until replaced. The five workloads have 1, 3, 4, 7
    /// and 7 scheduled levels, and [`PriorityAllocation::precomputed`] takes the cutoffs by bytes
    /// left.
    pub fn sigcomm18_sim(link_rate: Rate) -> Self {
        let cutoffs = [0, 0, 0, 0, NO_LIMIT, 6_756, 2_339, 433];
        Self {
            profile: Profile::Sigcomm18Sim,
            max_rpcs: 1 << 24,
            memory_budget: UNBOUNDED,
            scheduled_extra: 14,
            granting: Granting::PerSender,
            priorities: PriorityAllocation::Fixed { cutoffs },
            unscheduled_level: UnscheduledLevel::BytesLeft,
            loss: LossConfig {
                resend_after: Duration::MAX,
                timeout: None,
                server_silence: Duration::MAX,
                ..Self::sigcomm18(link_rate).loss
            },
            incast: None,
            ..Self::sigcomm18(link_rate)
        }
        .with_rtt_wire_bytes(10_000)
    }

    /// Sets everything that the authors' simulator derives from its RTTbytes, in bytes as on the
    /// wire: window, tail boost, and unscheduled bytes. For example, 10,000 are 9,328 message
    /// bytes, in six full packets and one of 676 bytes.
    #[must_use]
    pub fn with_rtt_wire_bytes(self, wire_bytes: u32) -> Self {
        const HEADERS: u32 = super::FULL_FRAME - 1442;
        let (full, rest) = (wire_bytes / super::FULL_FRAME, wire_bytes % super::FULL_FRAME);
        let unscheduled = full * 1442 + rest.saturating_sub(HEADERS);
        Self {
            unscheduled: UnscheduledLimit::Fixed(unscheduled.max(1)),
            window: GrantWindow::WireBytes(wire_bytes),
            tail_boost: wire_bytes,
            ..self
        }
    }

    /// The transport that Homa Figure 8 calls Basic: one level, no limit on overcommitment.
    pub fn basic(link_rate: impl Into<Option<Rate>>) -> Self {
        let mut cutoffs = [0; super::LEVELS];
        cutoffs[0] = NO_LIMIT;
        Self {
            granting: Granting::Ahead { packets: 5 },
            overcommitment: Overcommitment::Unlimited,
            one_message_per_sender: false,
            levels: 1,
            priorities: PriorityAllocation::Fixed { cutoffs },
            incast: None,
            ..Self::sigcomm18(link_rate)
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
            granting: Granting::PerMessage { least_packets: 0 },
            one_message_per_sender: false,
            fifo_increment: 50_000,
            priorities: PriorityAllocation::Fixed {
                cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
            },
            loss: LossConfig {
                resend_after: Duration::millis(5),
                scale_with_bytes: false,
                one_resend_per_peer: false,
                // The module gives up after 100 of its ticks, and each is 1 ms and the latency of
                // its timer, measured as 0.05 to 0.09 ms. A shorter wait would fail calls that the
                // module completes.
                timeout: Some(Duration::millis(110)),
                server_silence: Duration::millis(110),
                unknown: UnknownRpcReply::RpcUnknown,
            },
            completion: Completion::Acked {
                need_ack_after: Duration::millis(2),
                need_ack_interval: Duration::millis(1),
                // The module asks for ever, but then a host that no longer exists would be asked
                // for ever, too. Its clients wait 0.1 s at most.
                give_up: Duration::secs(2),
                suppress_duplicates: false,
            },
            incast: None,
            ..Self::for_users(Rate::gbps(25))
        }
    }

    /// The series of patches for the upstream Linux kernel (v19, April 2026), which is the kernel
    /// module without GRANT, CUTOFFS and priorities. Its messages arrive unasked, so only
    /// `memory_budget` bounds them: DATA for which there is no memory is dropped and asked for
    /// later.
    pub fn linux_upstream() -> Self {
        let mut cutoffs = [0; super::LEVELS];
        cutoffs[0] = NO_LIMIT;
        Self {
            profile: Profile::LinuxUpstream,
            unscheduled: UnscheduledLimit::Fixed(NO_LIMIT),
            levels: 1,
            priorities: PriorityAllocation::Fixed { cutoffs },
            ..Self::linux()
        }
    }

    /// The default for users.
    pub fn for_users(link_rate: impl Into<Option<Rate>>) -> Self {
        Self {
            profile: Profile::Default,
            max_message: 16 << 20,
            max_rpcs: 100_000,
            memory_budget: 256 << 20,
            link_rate: link_rate.into(),
            rtt_bytes: 10_000,
            measure_rtt_bytes: true,
            rtt_bytes_max: 60_000,
            receive_buffer: 4 << 20,
            unscheduled: UnscheduledLimit::RttBytes,
            scheduled_extra: 0,
            window: GrantWindow::RttBytesShared { max_incoming: 400_000 },
            granting: Granting::PerMessage { least_packets: 2 },
            overcommitment: Overcommitment::ScheduledLevels,
            sharing: 1,
            one_message_per_sender: true,
            fifo_permille: 50,
            fifo_increment: 10_000,
            levels: 8,
            network_levels: 8,
            priorities: PriorityAllocation::Measured,
            unscheduled_level: UnscheduledLevel::MessageLength,
            tail_boost: 0,
            granted_level: GrantedLevel::AllUnsent,
            loss: LossConfig {
                resend_after: Duration::millis(5),
                scale_with_bytes: true,
                one_resend_per_peer: true,
                timeout: None,
                server_silence: Duration::secs(10),
                unknown: UnknownRpcReply::RpcUnknown,
            },
            completion: Completion::Acked {
                // By then nearly every ACK has found a DATA packet to ride on.
                need_ack_after: Duration::millis(25),
                need_ack_interval: Duration::millis(25),
                give_up: Duration::secs(2),
                suppress_duplicates: true,
            },
            incast: Some(IncastConfig::default()),
            validate_addresses: false,
            unguessable_ids: false,
            readable_events: false,
            start_msg: None,
            seed: 1,
        }
    }
}
