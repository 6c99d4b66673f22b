//! Collective operations: messages between the ranks of a parallel program, in which most wait for
//! others.

use serde::{Deserialize, Serialize};

use super::units;

/// One collective operation, which begins at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveTraffic {
    /// What the ranks do.
    pub operation: Operation,
    /// Bytes of every rank's buffer: what it contributes to a reduction, has after a gather, or
    /// sends in an all-to-all, the part for itself included.
    #[serde(deserialize_with = "units::bytes")]
    pub bytes: u64,
    /// Number of ranks. Default: all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Which hosts they are.
    #[serde(default)]
    pub placement: RankPlacement,
    /// Messages that a rank has in flight at a time; only for `all-to-all`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
}

/// A collective operation and its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A reduce-scatter and an all-gather on a ring: 2 (n - 1) steps. In each step every rank
    /// sends one n-th of its buffer to the next.
    RingAllReduce,
    /// The first half: n - 1 steps.
    RingReduceScatter,
    /// The second half: n - 1 steps.
    RingAllGather,
    /// Recursive halving, then recursive doubling: 2 log2(n) steps with partners at distances 1,
    /// 2, 4, ..., and back. The number of ranks is a power of two.
    ButterflyAllReduce,
    /// Every rank sends one n-th of its buffer to each other rank, beginning with the next.
    AllToAll,
}

impl Operation {
    /// The name in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingAllReduce => "ring-all-reduce",
            Self::RingReduceScatter => "ring-reduce-scatter",
            Self::RingAllGather => "ring-all-gather",
            Self::ButterflyAllReduce => "butterfly-all-reduce",
            Self::AllToAll => "all-to-all",
        }
    }

    /// How often the bytes of a buffer cross the link of each of `ranks` hosts, at least. The bound
    /// on time and the bus bandwidth of NCCL's tests both follow from it.
    pub fn link_share(self, ranks: u32) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            Self::RingAllReduce | Self::ButterflyAllReduce => 2.0 * others,
            Self::RingReduceScatter | Self::RingAllGather | Self::AllToAll => others,
        }
    }
}

/// The hosts of the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankPlacement {
    /// Rank 0 is host 0, rank 1 is host 1, and so on.
    #[default]
    InOrder,
    /// Ranks are random hosts, drawn by the seed.
    Random,
}
