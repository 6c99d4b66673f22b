//! Configuration of input-queued switches: combined input and output queues (DeTail §4.2.1, Figure
//! 6). `engine/cioq` moves frames through them.

pub mod drain_bytes;
pub mod pfc;

use homa_proto::Rate;

use crate::time::{SimDuration, SimTime};
use pfc::{PfcLink, PfcThresholds, ResponseTime, detail_thresholds, safe_pause};

/// A switch with a queue per input port, a crossbar, and a queue per output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CioqConfig {
    /// Wire bytes that a port can hold on each of its two sides.
    pub bytes: u32,
    /// Rate of the crossbar between two ports, as a multiple of the switch's fastest link.
    pub speedup: u32,
    /// Time from a frame's last bit to the choice of its output by the forwarding engine.
    pub lookup: SimDuration,
    /// Inputs have a queue per output, so that no frame waits behind one for another output.
    pub virtual_outputs: bool,
    /// Frames cross whether their output has room or not, and the output queue drops those without
    /// room; at both queues, frames of lower levels do not count against a frame. If false, frames
    /// wait at their input, and all levels count. Without flow control only.
    pub output_drops: bool,
    /// Flow control by which inputs pause their senders; if `None`, they drop frames without room.
    pub pfc: Option<PfcConfig>,
    /// Frames with ECT are marked if more wire bytes than this wait at their output, including the
    /// frame in service (RFC 8257 §3.1); if `None`, none is marked.
    pub mark_above: Option<u32>,
}

/// Priority flow control of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// Thresholds of every link; if `None`, DeTail's rule derives them from the link.
    pub thresholds: Option<PfcThresholds>,
    /// Number of levels in use, for DeTail's rule.
    pub priorities: u8,
    /// Wire bytes of the longest frame, for DeTail's rule.
    pub frame: u32,
    /// Delay of a control frame; if `None`, equal to that of data on its link.
    pub cable: Option<SimDuration>,
    /// Time from the arrival of a control frame to its effect.
    pub response: ResponseTime,
}

/// A link in one direction: its rate and delay, and later rates in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct ChangingLink<'a> {
    /// Initial rate, for which the sender is built.
    pub rate: Rate,
    /// Delay of a bit.
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
    /// The thresholds of a link if its rate, or that of the link `back`, changes: the lowest
    /// thresholds for any pair of rates that they have at one time. `None` if one of these pairs
    /// has no safe threshold.
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

    /// The most bytes that may arrive over a link until a pause takes effect, at all rates of it
    /// and of the link `back`.
    pub fn reaction_bytes_over(&self, way: ChangingLink<'_>, back: ChangingLink<'_>) -> u64 {
        self.links(way, back).map(|link| link.reaction_bytes()).max().unwrap_or(0)
    }

    /// The link as it is initially, and after each change of its rate or of that of the link
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

    /// A link that delivers data after `data_delay` at `rate`, with the link `back`.
    fn link(
        &self,
        (rate, data_delay): (Rate, SimDuration),
        back: (Rate, SimDuration),
        response: SimDuration,
    ) -> PfcLink {
        let control_delay = self.cable.unwrap_or(back.1);
        PfcLink { rate, back: back.0, frame: self.frame, control_delay, data_delay, response }
    }

    /// The thresholds of a link into a queue of `bytes`; `None` if none is safe.
    pub fn thresholds(&self, link: &PfcLink, bytes: u32) -> Option<PfcThresholds> {
        let derived = || detail_thresholds(link, u64::from(bytes), self.priorities);
        self.thresholds.or_else(derived)
    }
}
