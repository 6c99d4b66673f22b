//! What an endpoint counted: one documented field per counter, iterable by name.

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

            /// What each of them counts, in the same order.
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
    /// Requests delivered to the server application.
    requests_delivered,
    /// Responses started as server.
    responses_sent,
    /// RPCs that failed at their client.
    failures,
    /// RPCs cancelled locally.
    cancels,
    /// Server RPCs ended by the client's cancel or silence.
    server_cancels,
    /// DATA packets sent for the first time.
    data_sent,
    /// Message bytes sent for the first time.
    data_bytes_sent,
    /// DATA packets sent again.
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
    /// Answers to control packets that were not sent because too many waited for the link.
    answers_withheld,
    /// Challenges sent to clients not known yet.
    challenges_sent,
    /// Clients that answered one.
    proofs_received,
    /// Requests given up because their clients did not answer, or others waited.
    unvalidated_requests_dropped,
    /// RPCs acknowledged to us, in ACK packets or piggybacked.
    acks_received,
    /// Server RPCs given up for want of an ack.
    ack_give_ups,
    /// Requests sent with the incast flag.
    incast_requests,
    /// Grants given to the oldest message out of turn.
    fifo_grants,
    /// Grants withheld because the memory budget was spent.
    memory_refusals,
    /// Times the unscheduled cutoffs changed.
    cutoff_changes,
    /// Times that this host stood still: for 10 ms and more nobody looked at timers that were due.
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
