//! Faults of links: loss, duplication, and reordering by extra delay.
//!
//! A fault decides about one packet on one link, before the packet takes effect at the link's far
//! end. It receives the packet and the time, so that a test can select a packet, for example the
//! third GRANT. Hosts that pause, restart or crash are not faults of links; see
//! [`super::Simulation::crash`].

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

/// A change of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The link stops. Frames that wait for it, and frames that arrive over it until it recovers,
    /// are lost. Routes avoid it from now on.
    Fail,
    /// The link works again.
    Recover,
    /// The link has another rate from the next frame on.
    Rate(Rate),
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It arrives as usual.
    Pass,
    /// It is lost.
    Lose,
    /// It arrives, and a copy arrives this much later.
    Duplicate(SimDuration),
    /// It arrives this much later; packets behind it overtake it.
    Delay(SimDuration),
}

/// Decides the fate of packets. `K` is the transport's packet type.
pub trait Fault<K> {
    /// If false, [`Fault::fate`] is never called.
    const ACTIVE: bool = true;

    /// If false, [`Fault::fate`] is not called in this run.
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

/// Faults that a run may switch off.
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

/// Faults that a closure decides, for tests.
pub struct Script<F>(pub F);

impl<K, F: FnMut(SimTime, DirectedLink, &K) -> PacketFate> Fault<K> for Script<F> {
    fn fate(&mut self, now: SimTime, link: DirectedLink, packet: &K) -> PacketFate {
        (self.0)(now, link, packet)
    }
}

/// Independent random faults, with the same probabilities on every link, until `heals_at`.
#[derive(Clone, Debug)]
pub struct RandomFaults {
    /// Random stream of all decisions.
    pub rng: Rng,
    /// Packets lost, per million.
    pub loss_ppm: u32,
    /// Packets duplicated, per million.
    pub duplicate_ppm: u32,
    /// Packets delayed, per million.
    pub delay_ppm: u32,
    /// Largest extra delay of a delayed packet or of a copy, in nanoseconds.
    pub max_delay_ns: u32,
    /// No fault occurs from this time on.
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
