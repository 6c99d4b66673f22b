//! What may go wrong on a link: loss, duplication, reordering by extra delay.
//!
//! A fault decides about one packet on one link, before the packet takes effect at its far end. It
//! sees the packet and the time, so that a script can pick "the third GRANT". Hosts that pause,
//! restart or die are told to the simulation itself.

use homa_proto::Rate;
use homa_workload::rng::Rng;

use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortId};

/// A directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectedLink {
    /// From a host to its switch.
    Up(HostId),
    /// From a switch to a host.
    Down(HostId),
    /// From the port of a switch to another switch.
    Between(PortId),
}

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// It carries nothing any more: what waits for it, and what arrives by it until it works again,
    /// is lost. All routes avoid it from now on.
    Fail,
    /// It works again.
    Recover,
    /// It has another rate from the next frame on.
    Rate(Rate),
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It arrives as usual.
    Pass,
    /// It disappears.
    Lose,
    /// It arrives, and a copy arrives this much later.
    Duplicate(SimDuration),
    /// It arrives this much later; packets behind it overtake.
    Delay(SimDuration),
}

/// Decides the fate of packets. `K` is the transport's packet.
pub trait Fault<K> {
    /// False: never asked.
    const ACTIVE: bool = true;

    /// False: not asked in this run.
    #[inline]
    fn is_active(&self) -> bool {
        true
    }

    /// Called once per packet and link.
    fn fate(&mut self, now: SimTime, link: DirectedLink, packet: &K) -> PacketFate;
}

/// A network without faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl<K> Fault<K> for NoFaults {
    const ACTIVE: bool = false;

    fn fate(&mut self, _: SimTime, _: DirectedLink, _: &K) -> PacketFate {
        PacketFate::Pass
    }
}

/// Faults or none, as the run decides.
impl<K, F: Fault<K>> Fault<K> for Option<F> {
    const ACTIVE: bool = F::ACTIVE;

    #[inline]
    fn is_active(&self) -> bool {
        self.as_ref().is_some_and(F::is_active)
    }

    fn fate(&mut self, now: SimTime, link: DirectedLink, packet: &K) -> PacketFate {
        self.as_mut().map_or(PacketFate::Pass, |faults| faults.fate(now, link, packet))
    }
}

/// Faults decided by a closure.
pub struct Script<F>(pub F);

impl<K, F: FnMut(SimTime, DirectedLink, &K) -> PacketFate> Fault<K> for Script<F> {
    fn fate(&mut self, now: SimTime, link: DirectedLink, packet: &K) -> PacketFate {
        (self.0)(now, link, packet)
    }
}

/// Independent random faults, the same on every link, until the network heals.
#[derive(Clone, Debug)]
pub struct RandomFaults {
    /// Draws every decision.
    pub rng: Rng,
    /// Packets lost, per million.
    pub loss_ppm: u32,
    /// Packets duplicated, per million.
    pub duplicate_ppm: u32,
    /// Packets delayed, per million.
    pub delay_ppm: u32,
    /// Most extra delay of a delayed packet or of a copy, nanoseconds.
    pub max_delay_ns: u32,
    /// From here on nothing goes wrong.
    pub heals_at: SimTime,
}

impl<K> Fault<K> for RandomFaults {
    fn fate(&mut self, now: SimTime, _: DirectedLink, _: &K) -> PacketFate {
        let total = self.loss_ppm + self.duplicate_ppm + self.delay_ppm;
        if now >= self.heals_at || total == 0 {
            return PacketFate::Pass;
        }
        let draw = self.rng.uniform_below(1_000_000);
        if draw >= total {
            return PacketFate::Pass;
        }
        if draw < self.loss_ppm {
            return PacketFate::Lose;
        }
        let extra = SimDuration::nanos(u64::from(self.rng.uniform_below(self.max_delay_ns)));
        if draw < self.loss_ppm + self.duplicate_ppm {
            PacketFate::Duplicate(extra)
        } else {
            PacketFate::Delay(extra)
        }
    }
}
