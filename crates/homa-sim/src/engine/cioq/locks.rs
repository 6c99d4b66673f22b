//! Which levels at an input of these switches never move again, for the report of pauses.
//!
//! A level that is paused at a port continues when the bytes of that level and above in the input
//! at the link's end fall below the unpause threshold. Frames cannot leave that input if they are
//! bound for a port where their own level is locked, beyond the memory that this port may still
//! free.

use crate::engine::net::Net;
use crate::engine::pauses::levels;
use crate::engine::world::World;
use crate::fabric::NONE;
use crate::topology::PortId;

impl<W: World> Net<W> {
    /// True if a level of a link stays paused while the levels in `locked`, by port, do not move.
    pub fn stays_paused_at_input(&self, (link, level): (u32, u8), locked: &[u8]) -> bool {
        let unpause = self.cioq.inputs[link as usize].thresholds;
        let unpause = unpause.map_or(u32::MAX, |thresholds| thresholds.unpause);
        let held = (level..8).map(|level| self.held_by(link, level, locked).1);
        held.sum::<u32>() >= unpause
    }

    /// A port and a level of it that hold a locked level of a link.
    pub fn locked_behind_input(&self, link: (u32, u8), locked: &[u8]) -> Option<(u32, u8)> {
        let (link, level) = link;
        (level..8).find_map(|level| match self.held_by(link, level, locked) {
            (NONE, _) | (_, 0) => None,
            (output, _) => Some((output, level)),
        })
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

    /// The ports for which the frames at the end of a link are bound, from the lowest level in
    /// `waits` up.
    pub fn bound_from_input(&self, link: u32, waits: u8) -> Vec<PortId> {
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
        bound
    }
}
