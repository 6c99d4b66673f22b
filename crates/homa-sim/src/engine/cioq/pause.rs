//! Priority flow control: which levels an input pauses.

use crate::engine::net::Net;
use crate::engine::world::World;
use crate::fabric::cioq::pfc::PfcThresholds;

impl<W: World> Net<W> {
    /// The queue at an input has changed: its sender may have to be paused or released.
    #[inline]
    pub(super) fn update_pauses(&mut self, link: u32) {
        let input = &self.cioq.inputs[link as usize];
        let Some(PfcThresholds { pause, unpause }) = input.thresholds else { return };
        let state = &mut self.pauses.links[link as usize];
        if state.wanted == 0 && !state.is_news() && input.drain.at(0) <= pause {
            return;
        }
        let above = input.drain.levels(|bytes| bytes > pause);
        let below = input.drain.levels(|bytes| bytes < unpause);
        state.wanted = state.wanted & !below | above;
        self.signal(link);
    }
}
