//! Choice among paths of equal length: a fresh random choice per packet, a hash of the flow, the
//! sender's choice, or the switch's choice by its queues (`alb.rs`).

use std::fmt;

use homa_workload::rng::Rng;

use crate::topology::Tier;

use super::Alb;

/// How switches choose among shortest paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// Uniformly at random for each packet.
    #[default]
    Spray,
    /// By a hash of source, destination and flow label, which is per-flow ECMP.
    Ecmp,
    /// By a hash of source and destination: all packets between two hosts take one path.
    HostPairs,
    /// By the sender: the flow label numbers the path (NDP §3.1.1). In trees, each switch on the
    /// way up takes its digit of the number, so that consecutive numbers, as many as there are
    /// paths, select each path once. In other networks, switches choose by a hash of the number.
    Source,
    /// By the switch, per packet, for a port with a short queue (DeTail §4.2.3).
    Adaptive(Alb),
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spray => "spray",
            Self::Ecmp => "ecmp",
            Self::HostPairs => "ecmp-hosts",
            Self::Source => "source",
            Self::Adaptive(_) => "adaptive",
        })
    }
}

/// Uniform choices that use few random bits.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    rng: Rng,
    bits: u64,
    left: u32,
}

impl Chooser {
    /// Draws from the stream of this name.
    pub fn new(seed: u64, stream: &str) -> Self {
        Self { rng: Rng::stream(seed, stream), bits: 0, left: 0 }
    }

    /// A uniform number below `n`, which is at least 1.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        if !n.is_power_of_two() {
            return self.rng.uniform_below(n);
        }
        let width = n.trailing_zeros();
        if self.left < width {
            self.bits = self.rng.next_u64();
            self.left = u64::BITS;
        }
        let choice = self.bits as u32 & (n - 1);
        self.bits >>= width;
        self.left -= width;
        choice
    }
}

/// The port that a sender selects by a path number, among `n` ports of `tier` at `switch`.
#[inline]
pub(crate) fn by_sender(n: u32, (switch, tier): (u32, Tier), path: u32) -> u32 {
    match tier {
        Tier::TorUp => path % n,
        Tier::AggrUp => path / n % n,
        _ => ecmp(n, switch, (0, 0, path)),
    }
}

/// The port that per-flow ECMP selects among `n` ports at `switch`, independently at each switch.
#[inline]
pub(crate) fn ecmp(n: u32, switch: u32, (from, to, flow): (u32, u32, u32)) -> u32 {
    let pair = u64::from(from) << 32 | u64::from(to);
    let key = pair ^ (u64::from(flow) << 20) ^ (u64::from(switch) << 48);
    // The finalizer of SplitMix64.
    let z = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((u64::from((z ^ z >> 31) as u32) * u64::from(n)) >> 32) as u32
}
