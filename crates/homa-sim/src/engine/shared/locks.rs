//! Which levels never move again, for the report of pauses. A level that is paused at a port
//! continues when the input at the link's end has come below its limit. Frames of that input leave
//! unless they wait at a port where their own level is locked.
//!
//! In a network whose paths go up and then down (leaf-spine, fat tree), no circle of pauses can
//! arise: a port that leads down waits only for ports further down, and one that leads up only for
//! ports further up or for ports down. Shortest paths in an arbitrary graph have no such order.

use std::collections::BTreeMap;

use crate::engine::net::Net;
use crate::engine::pauses::levels;
use crate::engine::world::World;
use crate::topology::PortId;

impl<W: World> Net<W> {
    /// The ports at which frames of a link wait, of the levels in `waits`.
    pub(in crate::engine) fn bound_from_shared(&self, link: u32, waits: u8) -> Vec<PortId> {
        let outputs = self.shared.outputs_behind(link).iter();
        let waits_at = |port: &&u32| {
            levels(waits)
                .any(|level| self.frames_of_level(**port, level).any(|(from, _)| from == link))
        };
        outputs.filter(waits_at).map(|port| PortId(*port)).collect()
    }

    /// True if a level of a link stays paused while the levels in `locked`, by port, do not move.
    pub(in crate::engine) fn stays_paused_shared(&self, of: (u32, u8), locked: &[u8]) -> bool {
        let mut left: BTreeMap<(u32, u8), u32> = BTreeMap::new();
        for port in self.shared.outputs_behind(of.0) {
            for level in levels(locked[*port as usize]) {
                for (link, bytes) in self.frames_of_level(*port, level) {
                    *left.entry((link, level)).or_default() += bytes;
                }
            }
        }
        let left: Vec<_> = left.into_iter().collect();
        self.shared.would_stay(of, &left)
    }

    /// A port and a level of it that hold a locked level of a link.
    pub(in crate::engine) fn locked_behind_shared(
        &self,
        (link, level): (u32, u8),
        locked: &[u8],
    ) -> Option<(u32, u8)> {
        let outputs = self.shared.outputs_behind(link).iter();
        let mut outputs = outputs.filter(|port| locked[**port as usize] >> level & 1 != 0);
        let holds = |port: &&u32| self.frames_of_level(**port, level).any(|(from, _)| from == link);
        outputs.find(holds).map(|port| (*port, level))
    }

    /// The frames of a level that wait at a port: the link that each came over, and its bytes.
    fn frames_of_level(&self, port: u32, level: u8) -> impl Iterator<Item = (u32, u32)> {
        let (state, lists) = (&self.ports[port as usize], &self.levels[port as usize]);
        let frames = &self.flights.frames;
        state.list(lists, frames, level).map(|slot| {
            let frame = frames[slot as usize];
            (frame.gap, u32::from(frame.bytes))
        })
    }
}
