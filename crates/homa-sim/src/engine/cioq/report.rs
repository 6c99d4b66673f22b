//! Who waits for whom: pauses that last, and circles of them, which never end.
//!
//! A port whose frames are paused waits for the ports, at the switch that paused it, for which the
//! frames in that switch's input are bound and which do not go on either. Where that comes back to
//! the port, no frame of the circle ever moves: a deadlock. Without a circle a port that has been
//! paused for long is a pause storm: something downstream is slow or silent.

use crate::engine::net::Net;
use crate::engine::world::World;
use crate::fabric::NONE;
use crate::time::{SimDuration, SimTime};
use crate::topology::PortId;

/// A port whose frames are all paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The port.
    pub port: PortId,
    /// Levels of the frames that wait, as bits.
    pub levels: u8,
    /// Since when.
    pub since: SimTime,
    /// The ports that it waits for.
    pub waits_for: Vec<PortId>,
}

/// What pauses did to a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseReport {
    /// Control frames sent.
    pub control_frames: u64,
    /// Times a level was paused.
    pub pauses: u64,
    /// The longest time that a level of a port was paused, those that still last included.
    pub longest: SimDuration,
    /// Ports that are paused now and have frames waiting.
    pub stuck: Vec<Stuck>,
    /// Of those, a circle in which each waits for the next.
    pub circle: Vec<PortId>,
}

impl<W: World> Net<W> {
    /// The present state; `None` where no link can be paused.
    pub fn pause_report(&self) -> Option<PauseReport> {
        let cioq = &self.cioq;
        cioq.inputs.iter().find(|input| input.thresholds.is_some())?;
        let mut report = PauseReport {
            control_frames: cioq.counts.control,
            pauses: cioq.counts.pauses,
            longest: cioq.counts.longest,
            ..PauseReport::default()
        };
        for port in 0..cioq.outputs.len() as u32 {
            let state = &cioq.outputs[port as usize];
            let held = state.queue.occupied | self.levels_of_card(port);
            let waits = state.paused & held;
            let levels = (0..8).filter(|level| waits >> level & 1 != 0);
            let since = levels.map(|level| state.since[level as usize]).min();
            let Some(since) = since.filter(|_| held & !state.paused == 0) else { continue };
            report.longest = report.longest.max(self.now.since(since));
            let waits_for = self.behind(port);
            report.stuck.push(Stuck { port: PortId(port), levels: waits, since, waits_for });
        }
        report.circle = circle(&report.stuck);
        Some(report)
    }

    fn levels_of_card(&self, port: u32) -> u8 {
        let card = self.cioq.cards.get(port as usize).into_iter().flatten();
        card.fold(0, |levels, (_, label)| levels | 1 << (label.priority & 7))
    }

    /// The ports for which the frames at the end of a link are bound.
    fn behind(&self, link: u32) -> Vec<PortId> {
        let input = &self.cioq.inputs[link as usize];
        let mut bound = Vec::new();
        for list in input.queue.lists.iter().filter(|list| !list.is_empty()) {
            let mut slot = list.head;
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

/// Stuck ports each of which waits for the next, and the last for the first; empty: none.
fn circle(stuck: &[Stuck]) -> Vec<PortId> {
    let place = |port: &PortId| stuck.binary_search_by_key(port, |stuck| stuck.port).ok();
    let next: Vec<Vec<usize>> =
        stuck.iter().map(|stuck| stuck.waits_for.iter().filter_map(place).collect()).collect();
    // 0: not seen, 1: on the way that is followed, 2: leads nowhere.
    let mut seen = vec![0; stuck.len()];
    for start in 0..stuck.len() {
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, tried)) = way.last_mut() {
            if *tried == 0 && seen[*at] == 2 {
                way.pop();
                continue;
            }
            seen[*at] = 1;
            let Some(&to) = next[*at].get(*tried) else {
                seen[*at] = 2;
                way.pop();
                continue;
            };
            *tried += 1;
            if let Some(begin) = way.iter().position(|(at, _)| *at == to) {
                return way[begin..].iter().map(|(at, _)| stuck[*at].port).collect();
            }
            way.push((to, 0));
        }
    }
    Vec::new()
}
