//! Pauses that last, and the circles of ports that wait for each other and never recover.
//!
//! Pauses apply to a level, and so do deadlocks: other levels may continue. A level that is paused
//! at a port continues when enough of its bytes have left the input at the link's end; the model of
//! the switch knows how many (`cioq/locks.rs`, `shared/locks.rs`). A level is locked if it never
//! continues because others are locked. The search therefore starts with all paused levels as
//! locked and removes one that may continue, until none is left to remove; the remaining ones never
//! move again.
//!
//! If there is no deadlock, a level that has been paused for long is a pause storm, because
//! something downstream is slow or has stopped.

use crate::engine::net::Net;
use crate::engine::world::World;
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

/// A port that was paused in the course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PausedPort {
    /// The port.
    pub port: PortId,
    /// Number of times that a level of it was paused.
    pub pauses: u64,
    /// The pauses of all its levels together, including those that still last.
    pub lasted: SimDuration,
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
    /// The ports that were paused, in their order.
    pub ports: Vec<PausedPort>,
    /// Ports at which frames of paused levels wait now.
    pub stuck: Vec<StuckLevels>,
    /// A circle among these ports in which a level of each is locked by a level of the next.
    pub circle: Vec<PortId>,
}

impl<W: World> Net<W> {
    /// The present state; `None` if no link can be paused.
    pub fn pause_report(&self) -> Option<PauseReport> {
        let pauses = &self.pauses;
        if !pauses.active {
            return None;
        }
        let (control_frames, longest) = (pauses.control, pauses.longest);
        let mut report = PauseReport { control_frames, longest, ..PauseReport::default() };
        let mut locked = vec![0; pauses.links.len()];
        for (port, state) in (0..).zip(&pauses.links) {
            let paused = levels(state.paused);
            let lasted = paused.clone().map(|level| self.now.since(state.since[level as usize]));
            report.longest = report.longest.max(lasted.clone().max().unwrap_or_default());
            report.pauses += state.count;
            if state.count > 0 {
                let lasted = lasted.fold(state.lasted, |sum, pause| sum + pause);
                let pauses = state.count;
                report.ports.push(PausedPort { port: PortId(port), pauses, lasted });
            }
            let waits = state.paused & (self.waiting_levels(port) | self.levels_of_card(port));
            let since = paused.filter(|level| waits >> level & 1 != 0);
            let since = since.map(|level| state.since[level as usize]).min();
            let Some(since) = since else { continue };
            locked[port as usize] = waits;
            let mut waits_for = self.behind(port, waits);
            waits_for.sort_unstable();
            waits_for.dedup();
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
                let held = levels(locked[port as usize])
                    .filter(|level| self.stays_paused((port, *level), locked));
                let held = held.fold(0, |levels, level| levels | 1 << level);
                again |= held != locked[port as usize];
                locked[port as usize] = held;
            }
            if !again {
                return;
            }
        }
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
            at = self.locked_behind((port, level), locked);
        }
        Vec::new()
    }
}

/// The levels of a set of bits, the lowest first.
pub(in crate::engine) fn levels(bits: u8) -> impl Iterator<Item = u8> + Clone {
    (0..8).filter(move |level| bits >> level & 1 != 0)
}
