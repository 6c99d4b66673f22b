//! The interface of a congestion control, which sets the rate of one queue pair.

use core::fmt::Debug;

use homa_proto::Time;

use super::telemetry::Carried;

/// What a data packet collects on its way, and an acknowledgement returns.
pub trait Collected: Copy + Debug + Send {
    /// Its bytes in a packet.
    const BYTES: u32;
    /// In a packet that leaves its host. `unit` is [`super::RdmaConfig::int_unit`].
    fn new(now: Time, unit: u32) -> Self;
    /// In a packet of any control.
    fn carried(self) -> Carried;
    /// What a packet carries, if it is of this kind.
    fn of(carried: Carried) -> Option<Self>;
}

/// Nothing is collected.
impl Collected for () {
    const BYTES: u32 = 0;

    fn new(_: Time, _: u32) {}

    fn carried(self) -> Carried {
        Carried::Nothing
    }

    fn of(carried: Carried) -> Option<()> {
        matches!(carried, Carried::Nothing).then_some(())
    }
}

/// What an acknowledgement says about the network.
#[derive(Clone, Copy, Debug)]
pub struct RateSignal<S> {
    /// The time.
    pub now: Time,
    /// The receiver has all bytes before this one.
    pub acknowledged: u32,
    /// The first byte that was not sent yet.
    pub next: u32,
    /// A switch marked the packet.
    pub marked: bool,
    /// What the packet collected.
    pub collected: S,
}

impl RateSignal<Carried> {
    /// The same, with what a control collects; `None` if the packet carries something else.
    pub(super) fn of<S: Collected>(&self) -> Option<RateSignal<S>> {
        let Self { now, acknowledged, next, marked, collected } = *self;
        let collected = S::of(collected)?;
        Some(RateSignal { now, acknowledged, next, marked, collected })
    }
}

impl<S> RateSignal<S> {
    /// Whether a round trip has passed since the byte `since` was the next one, which is how the
    /// algorithms here count round trips.
    pub(super) fn is_past(&self, since: u32) -> bool {
        self.acknowledged > since
    }
}

/// The rates that a queue pair may have, bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRange {
    /// The lowest.
    pub least: u64,
    /// The highest: that of the link.
    pub most: u64,
}

impl RateRange {
    pub(super) fn clamp(self, rate: u64) -> u64 {
        rate.max(self.least).min(self.most)
    }
}

/// A rate times a factor, bit/s.
pub(super) fn scaled(rate: u64, factor: f64) -> u64 {
    (rate as f64 * factor) as u64
}

/// The mean over a round trip of `base_rtt`, after `ns` of it had this value.
pub(super) fn smoothed(mean: f64, value: f64, (ns, base_rtt): (u64, u64)) -> f64 {
    let ns = ns.min(base_rtt);
    (mean * (base_rtt - ns) as f64 + value * ns as f64) / base_rtt as f64
}

/// A whole times a quotient, rounded down, at least 1: for example the part of a window that a part
/// of the link's rate may have in flight.
pub(super) fn part(whole: u64, rate: u64, of: u64) -> u32 {
    let part = u128::from(whole) * u128::from(rate) / u128::from(of.max(1));
    u32::try_from(part).unwrap_or(u32::MAX).max(1)
}

/// Why bytes are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The receiver saw a gap.
    Gap,
    /// Nothing was heard, for the given number of times in a row.
    Silence(u32),
}

/// The congestion control of one queue pair. It begins at the rate of the link.
pub trait RateControl: Sized + Debug + Send {
    /// Its parameters.
    type Config: Copy + Debug + Send;
    /// What it needs to know about a packet's way.
    type Collected: Collected;
    /// A new rate also changes when the next packet leaves, as if the last one had been sent at it.
    const MOVES_NEXT: bool = false;
    /// A new queue pair.
    fn new(config: &Self::Config, range: RateRange) -> Self;
    /// The present rate, bit/s.
    fn rate(&self) -> u64;
    /// A packet may leave while fewer bytes are in flight. `full` is the window at the rate of the
    /// link.
    fn window(&self, full: u32, link: u64) -> u32 {
        part(full.into(), self.rate(), link)
    }
    /// An acknowledgement arrived.
    fn acknowledged(&mut self, config: &Self::Config, signal: &RateSignal<Self::Collected>);
    /// Bytes are sent again.
    fn lost(&mut self, _config: &Self::Config, _now: Time, _lost: Lost) {}
    /// A time at which the rate changes by itself.
    fn deadline(&self) -> Option<Time> {
        None
    }
    /// That time has come. Calls that come too early do no harm.
    fn expire(&mut self, _config: &Self::Config, _now: Time) {}
}
