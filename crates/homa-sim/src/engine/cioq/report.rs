//! Pauses that last, and the circles of ports that wait for each other and never recover.
//!
//! Pauses apply to a level, and so do deadlocks: other levels may continue. A level that is paused
//! at a port continues when the bytes of that level and above in the input at the link's end fall
//! below the unpause threshold. Frames cannot leave that input if they are bound for a port where
//! their own level is locked, beyond the memory that this port may still free. A level is locked if
//! that holds because others are locked. The search therefore starts with all paused levels as
//! locked and removes one that may continue, until none is left to remove; the remaining ones never
//! move again.
//!
//! If there is no deadlock, a level that has been paused for long is a pause storm, because
//! something downstream is slow or has stopped.

use crate::engine::net::Net;
use crate::engine::world::World;
use crate::fabric::NONE;
use crate::nic::card::Card;
use crate::time::{SimDuration, SimTime};
use crate::topology::PortId;

/// A port at which frames of paused levels wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckLevels {
    /// The port.
    pub port: PortId,
    /// Levels of the frames that wait, as bits.
    pub levels: u8,
    /// Start of the oldest of their pauses.
    pub since: SimTime,
    /// The ports that these frames wait for.
    pub waits_for: Vec<PortId>,
}

/// Effects of pauses on a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseReport {
    /// Control frames sent.
    pub control_frames: u64,
    /// Number of times that a level was paused.
    pub pauses: u64,
    /// Longest pause of a level at a port, including pauses that still last.
    pub longest: SimDuration,
    /// Ports at which frames of paused levels wait now.
    pub stuck: Vec<StuckLevels>,
    /// A circle among these ports in which a level of each is locked by a level of the next.
    pub circle: Vec<PortId>,
}

impl<W: World> Net<W> {
    /// The present state; `None` if no link can be paused.
    pub fn pause_report(&self) -> Option<PauseReport> {
        let cioq = &self.cioq;
        cioq.inputs.iter().find(|input| input.thresholds.is_some())?;
        let mut report = PauseReport {
            control_frames: cioq.counts.control,
            pauses: cioq.counts.pauses,
            longest: cioq.counts.longest,
            ..PauseReport::default()
        };
        let mut locked = vec![0; cioq.outputs.len()];
        for port in 0..cioq.outputs.len() as u32 {
            let state = &cioq.outputs[port as usize];
            let paused = levels(state.paused);
            let lasted = paused.clone().map(|level| self.now.since(state.since[level as usize]));
            report.longest = report.longest.max(lasted.max().unwrap_or_default());
            let waits = state.paused & (state.queue.occupied | self.levels_of_card(port));
            let since = paused.filter(|level| waits >> level & 1 != 0);
            let since = since.map(|level| state.since[level as usize]).min();
            let Some(since) = since else { continue };
            locked[port as usize] = waits;
            let waits_for = self.behind(port, waits);
            report.stuck.push(StuckLevels { port: PortId(port), levels: waits, since, waits_for });
        }
        self.unlock(&mut locked);
        report.circle = self.circle(&locked);
        Some(report)
    }

    /// Keeps, of the levels that may be locked at each port, those that are.
    fn unlock(&self, locked: &mut [u8]) {
        loop {
            let mut again = false;
            for port in 0..locked.len() as u32 {
                let held = levels(locked[port as usize]).filter(|level| {
                    let unpause = self.cioq.inputs[port as usize].thresholds;
                    let unpause = unpause.map_or(u32::MAX, |thresholds| thresholds.unpause);
                    let held = (*level..8).map(|level| self.held_by(port, level, locked).1);
                    held.sum::<u32>() >= unpause
                });
                let held = held.fold(0, |levels, level| levels | 1 << level);
                again |= held != locked[port as usize];
                locked[port as usize] = held;
            }
            if !again {
                return;
            }
        }
    }

    /// The port at which a level of an input is locked, and the bytes of it that never leave.
    fn held_by(&self, link: u32, level: u8, locked: &[u8]) -> (u32, u32) {
        let cioq = &self.cioq;
        let first = cioq.inputs[link as usize].queue.first(level);
        if first == NONE {
            return (NONE, 0);
        }
        let output = self.flights.frame(first).gap;
        if locked[output as usize] >> level & 1 == 0 {
            return (NONE, 0);
        }
        // With virtual output queues, frames for other ports pass the first frame.
        let (mut slot, mut bytes) = (first, 0);
        while slot != NONE {
            let frame = self.flights.frame(slot);
            let stays = !cioq.virtual_outputs || frame.gap == output;
            bytes += if stays { u32::from(frame.bytes) } else { 0 };
            slot = frame.next;
        }
        let state = &cioq.outputs[output as usize];
        let stays = levels(locked[output as usize]).map(|level| self.queued(output, level));
        let own = cioq.room.of_level(level);
        (output, bytes.saturating_sub(own.saturating_sub(stays.sum::<u32>() + state.coming)))
    }

    /// Wire bytes of a level that wait at a port.
    fn queued(&self, output: u32, level: u8) -> u32 {
        let mut slot = self.cioq.outputs[output as usize].queue.first(level);
        let mut bytes = 0;
        while slot != NONE {
            let frame = self.flights.frame(slot);
            bytes += u32::from(frame.bytes);
            slot = frame.next;
        }
        bytes
    }

    /// A circle of ports in which a locked level of each is held by one of the next; empty if there
    /// is none.
    fn circle(&self, locked: &[u8]) -> Vec<PortId> {
        let start = locked.iter().position(|levels| *levels != 0);
        let mut way: Vec<(u32, u8)> = Vec::new();
        let lowest = |port: u32| levels(locked[port as usize]).next();
        let mut at = start.and_then(|port| Some((port as u32, lowest(port as u32)?)));
        // This ends, because each locked level has a next one and they are finite.
        while let Some((port, level)) = at {
            if let Some(begin) = way.iter().position(|seen| *seen == (port, level)) {
                let mut ports: Vec<PortId> =
                    way[begin..].iter().map(|(port, _)| PortId(*port)).collect();
                ports.dedup();
                return ports;
            }
            way.push((port, level));
            at = (level..8).find_map(|level| match self.held_by(port, level, locked) {
                (NONE, _) | (_, 0) => None,
                (output, _) => Some((output, level)),
            });
        }
        Vec::new()
    }

    fn levels_of_card(&self, port: u32) -> u8 {
        self.cioq.cards.get(port as usize).map_or(0, Card::levels)
    }

    /// The ports for which the frames at the end of a link are bound, from the lowest level in
    /// `waits` up.
    fn behind(&self, link: u32, waits: u8) -> Vec<PortId> {
        let input = &self.cioq.inputs[link as usize];
        let mut bound = Vec::new();
        for list in &input.queue.lists[waits.trailing_zeros() as usize & 7..] {
            let mut slot = if list.is_empty() { NONE } else { list.head };
            while slot != NONE {
                let frame = self.flights.frame(slot);
                bound.push(PortId(frame.gap));
                slot = frame.next;
            }
        }
        bound.sort_unstable();
        bound.dedup();
        bound
    }
}

/// The levels of a set of bits, the lowest first.
fn levels(bits: u8) -> impl Iterator<Item = u8> + Clone {
    (0..8).filter(move |level| bits >> level & 1 != 0)
}
