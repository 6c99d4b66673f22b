//! The state that a host keeps for each of its peers, in the two roles that a peer may have.

use std::collections::VecDeque;

use homa_proto::Time;

use crate::transport::exchange::Head;
use crate::transport::parts::{MessageTimer, Ordered};

use super::bucket::Bucket;
use super::credit::CreditBudget;

/// A sender, as its receiver accounts for it.
#[derive(Clone, Debug)]
pub(super) struct CreditedSender {
    /// The life of the host that its credit belongs to.
    pub life: u16,
    /// Its two control loops.
    pub bucket: Bucket,
    /// Credit that it has and has not spent, as far as the receiver can tell; see
    /// [`super::credit::CreditBudget`].
    pub out: i64,
    /// Its messages that need credit.
    pub wanting: Ordered,
    /// Its key among the senders that may get credit now.
    pub listed: Option<u64>,
    /// Messages that arrived with the credit of others, and how many bytes of credit of their own
    /// they still had coming: the others need them.
    pub owed: VecDeque<(Head, u64)>,
    /// When its last data arrived.
    pub heard: Time,
    /// When the last credit was sent to it.
    pub granted: Time,
    /// When `out` was last found to be lost.
    pub cleared: Option<Time>,
    /// When `out` counts as lost if neither data arrives nor credit leaves.
    pub due: MessageTimer,
}

impl CreditedSender {
    pub fn new(bucket: Bucket) -> Self {
        Self {
            life: 0,
            bucket,
            out: 0,
            wanting: Ordered::default(),
            listed: None,
            owed: VecDeque::new(),
            heard: Time::ZERO,
            granted: Time::ZERO,
            cleared: None,
            due: MessageTimer::default(),
        }
    }

    /// Its credit and the limit on it. A sender that holds credit for less than a packet of `full`
    /// wire bytes, for example what a short packet left of another one's credit, could not spend it
    /// if the limit had no room for one more credit. So the limit is at least two packets less a
    /// byte.
    pub fn account(&self, full: u32) -> CreditBudget {
        CreditBudget { out: self.out, limit: self.bucket.limit().max(2 * full - 1) }
    }
}

/// A receiver, as its sender sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sink {
    /// Credit that the host holds for it, wire bytes.
    pub credit: u64,
    /// Messages to it with packets to send, shortest first.
    pub pending: Ordered,
    /// Its key among the receivers for which a packet may be sent.
    pub listed: Option<u64>,
    /// It has a place in the round.
    pub in_round: bool,
}
