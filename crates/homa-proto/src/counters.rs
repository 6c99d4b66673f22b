//! The counters of an endpoint: one documented field each, iterable by name.

use crate::event::DropReason;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// Monotonic counters of one endpoint.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: u64,)*
            drops: [u64; DropReason::ALL.len()],
        }

        impl Counters {
            /// Every counter by name, drops not included.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds what another endpoint counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.drops.iter_mut().zip(&other.drops).for_each(|(ours, more)| *ours += more);
            }

            /// A description of each counter, in the same order.
            pub fn help() -> impl Iterator<Item = &'static str> {
                [$(concat!($($doc),*)),*].into_iter()
            }
        }
    };
}

counters! {
    /// RPCs started as client.
    requests_sent,
    /// Responses delivered to the client application.
    responses_delivered,
    /// Requests that were delivered to the server application, with all their bytes.
    requests_delivered,
    /// Responses started as server.
    responses_sent,
    /// RPCs that failed at their client.
    failures,
    /// RPCs cancelled locally.
    cancels,
    /// Server RPCs that ended because the client cancelled them or was silent.
    server_cancels,
    /// DATA packets sent for the first time.
    data_sent,
    /// Message bytes sent for the first time.
    data_bytes_sent,
    /// DATA packets retransmitted.
    data_resent,
    /// DATA packets accepted.
    data_received,
    /// Message bytes accepted.
    data_bytes_received,
    /// GRANTs sent.
    grants_sent,
    /// GRANTs accepted.
    grants_received,
    /// RESENDs sent.
    resends_sent,
    /// RESENDs accepted.
    resends_received,
    /// BUSYs sent.
    busys_sent,
    /// BUSYs accepted.
    busys_received,
    /// RPC_UNKNOWNs sent.
    unknowns_sent,
    /// RPC_UNKNOWNs accepted.
    unknowns_received,
    /// CUTOFFS sent.
    cutoffs_sent,
    /// CUTOFFS accepted.
    cutoffs_received,
    /// NEED_ACKs sent.
    need_acks_sent,
    /// NEED_ACKs received.
    need_acks_received,
    /// ACK packets sent.
    acks_sent,
    /// Answers to control packets that were not sent, because too many packets waited for the link
    /// or the peer was not validated.
    answers_withheld,
    /// Challenges sent to clients that were not validated.
    challenges_sent,
    /// Challenges that clients answered.
    proofs_received,
    /// Requests dropped because validation timed out or the quota for unvalidated requests was
    /// full.
    unvalidated_requests_dropped,
    /// RPCs that clients acknowledged, in ACK packets or piggybacked on DATA.
    acks_received,
    /// Server RPCs given up because their client sent no ACK.
    ack_give_ups,
    /// Requests sent with the incast flag.
    incast_requests,
    /// Grants of the FIFO share: given to the oldest message although others come first.
    fifo_grants,
    /// Grants withheld because the memory budget was spent.
    memory_refusals,
    /// Times the unscheduled cutoffs changed.
    cutoff_changes,
    /// Stalls: times that timers ran more than 10 ms late.
    stalls,
}

impl Counters {
    /// Counts a drop.
    pub fn drop_packet(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Drops by reason.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.dropped(r)))
    }
}
