//! Configuration of input-queued switches: combined input and output queues (DeTail §4.2.1, Figure
//! 6). `engine/cioq` moves frames through them.

pub mod drain_bytes;
pub mod pfc;

use homa_proto::Rate;

use crate::time::{SimDuration, SimTime};
use pfc::{PfcLink, PfcThresholds, ResponseTime, detail_thresholds, safe_pause};

/// Switches with a queue per input port, a crossbar, and a queue per output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CioqConfig {
    /// Wire bytes that a port holds on each of its two sides.
    pub bytes: u32,
    /// Rate of the crossbar between two ports, as a multiple of the switch's fastest link.
    pub speedup: u32,
    /// From a frame's last bit to the forwarding engine's verdict.
    pub lookup: SimDuration,
    /// Inputs have a queue per output: no frame waits behind one for another output.
    pub virtual_outputs: bool,
    /// Inputs pause their senders; `None`: they drop what does not fit.
    pub pfc: Option<PfcConfig>,
    /// Frames that heed marks get one when more wire bytes than these wait at their output, those
    /// of the frame in service included (RFC 8257 §3.1); `None`: none.
    pub mark_above: Option<u32>,
}

/// Priority flow control of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// The thresholds of every link; absent: by DeTail's rule from the link.
    pub thresholds: Option<PfcThresholds>,
    /// Levels that may be in use, for that rule.
    pub priorities: u8,
    /// Wire bytes of the longest frame, for that rule.
    pub frame: u32,
    /// How long a control frame travels; absent: as long as data on the link it takes.
    pub cable: Option<SimDuration>,
    /// From a control frame's being there to its effect.
    pub response: ResponseTime,
}

/// A link in one direction: its rate and delay, and the rates that it has from some times on, in
/// their order.
#[derive(Clone, Copy, Debug)]
pub struct ChangingLink<'a> {
    /// Initial rate, for which the sender is built.
    pub rate: Rate,
    /// First bit to first bit.
    pub delay: SimDuration,
    /// Later rates.
    pub changes: &'a [(SimTime, Rate)],
}

impl ChangingLink<'_> {
    fn rate_at(&self, at: SimTime) -> Rate {
        let changed = self.changes.iter().rev().find(|(from, _)| *from <= at);
        changed.map_or(self.rate, |(_, rate)| *rate)
    }
}

impl PfcConfig {
    /// The thresholds of a link whose rate, or that of the one `back`, changes: the lowest of those
    /// for the rates that they have at a time. `None`: for some of them, none is safe.
    pub fn thresholds_over(
        &self,
        way: ChangingLink<'_>,
        back: ChangingLink<'_>,
        bytes: u32,
    ) -> Option<PfcThresholds> {
        let all: Option<Vec<PfcThresholds>> =
            self.links(way, back).map(|link| self.thresholds(&link, bytes)).collect();
        all?.into_iter().min_by_key(|thresholds| thresholds.pause)
    }

    /// The greatest threshold that is safe at all rates of the link and the link `back`; `None` if
    /// there is none.
    pub fn safe_over(
        &self,
        way: ChangingLink<'_>,
        back: ChangingLink<'_>,
        bytes: u32,
    ) -> Option<u32> {
        let safe = |link| safe_pause(&link, u64::from(bytes), self.priorities);
        self.links(way, back).map(safe).min().flatten()
    }

    /// The link as it is at first, and as it is after each change of its rate or that of the one
    /// `back`.
    fn links<'a>(
        &'a self,
        way: ChangingLink<'a>,
        back: ChangingLink<'a>,
    ) -> impl Iterator<Item = PfcLink> + 'a {
        let changes = way.changes.iter().chain(back.changes).map(|(at, _)| *at);
        let response = self.response.of(way.rate);
        std::iter::once(SimTime::ZERO).chain(changes).map(move |time| {
            let back = (back.rate_at(time), back.delay);
            self.link((way.rate_at(time), way.delay), back, response)
        })
    }

    /// A link that brings data after `data_delay` at `rate`, and the one back.
    fn link(
        &self,
        (rate, data_delay): (Rate, SimDuration),
        back: (Rate, SimDuration),
        response: SimDuration,
    ) -> PfcLink {
        let control_delay = self.cable.unwrap_or(back.1);
        PfcLink { rate, back: back.0, frame: self.frame, control_delay, data_delay, response }
    }

    /// Its thresholds behind a queue of `bytes`; `None`: none is safe.
    pub fn thresholds(&self, link: &PfcLink, bytes: u32) -> Option<PfcThresholds> {
        let derived = || detail_thresholds(link, u64::from(bytes), self.priorities);
        self.thresholds.or_else(derived)
    }
}
