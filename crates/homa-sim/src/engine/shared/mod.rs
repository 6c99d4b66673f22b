//! Output-queued switches whose ports share one memory, and whose inputs pause their senders; the
//! rules are in `fabric/shared.rs`.
//!
//! ```text
//! link ─▶ memory of its input ─▶ queue of the output ─first bit─▶ link; the memory is free again
//! ```
//!
//! Queues are those of the other output-queued switches (`fabric/queue`), with their marks. A port
//! cannot be lazy here as it is there: memory has to be free, and a pause to end, at the right
//! moment. While something waits that may leave, the port therefore has an event for the end of the
//! transmission ([`NetEvent::Sent`]).
//!
//! | module | what it does |
//! |---|---|
//! | `memory` | the bytes of inputs and pools |
//! | `locks` | which levels never move again |
//!
//! Invariants: an idle port holds no frame of a level that may leave; the bytes of a pool and of
//! all inputs are those of the frames that wait; if headrooms suffice
//! ([`SharedConfig::safe_headroom`]), nothing is lost. Left out: cut-through, preemption, and
//! queues that trim, evict or return.
//!
//! [`SharedConfig::safe_headroom`]: crate::fabric::SharedConfig::safe_headroom

mod locks;
mod memory;

use crate::fabric::queue::{PortQueue, WaitingFrames};
use crate::time::SimTime;

use super::agenda::NetEvent;
use super::hop::{at_port, stamp};
use super::net::Net;
use super::probe::{LossCause, Probe};
use super::world::World;

pub(super) use memory::SharedSwitches;
pub use memory::tightest;

impl<W: World> Net<W> {
    /// A frame that came over the link in its `gap` arrives at an output port.
    #[inline]
    pub(super) fn enqueue_shared(&mut self, switch: u32, port_index: u32, slot: u32) {
        if self.shared.awaited[port_index as usize] {
            // The wire may be free since a picosecond, and what waited for it came before.
            self.serve(port_index);
        }
        let frames = &mut self.flights.frames;
        self.queues[port_index as usize].arrives(&mut frames[slot as usize], self.now);
        let there = at_port(&self.ports[port_index as usize], port_index, slot, frames);
        let backlog = self.backlog(port_index);
        self.probe.enqueued(self.now, &there, &backlog);
        let link = self.flights.frame(slot).gap;
        let input = (link, there.priority);
        if !self.shared.take(input, there.wire_bytes) {
            return self.drop_at(port_index, slot);
        }
        self.update_input(input);
        let state = &self.pauses.links[port_index as usize];
        let (paused, signal_due) = (state.paused, state.signal_due);
        let port = &self.ports[port_index as usize];
        let open = port.occupied() & !paused == 0 && paused >> there.priority & 1 == 0;
        if open && !signal_due && port.free_at <= self.now {
            return self.begin_shared((port_index, self.now), slot);
        }
        if self.admit(switch, port_index, slot) {
            self.serve(port_index);
        } else {
            self.release(input, there.wire_bytes);
        }
    }

    /// An idle wire sends a due control frame first, then the next frame of the levels that are not
    /// paused. A busy one is looked at again when it is free, if there is anything for it: a
    /// picosecond later, because a frame that arrives in the moment when it becomes free may be the
    /// next one, as at a lazy port.
    pub(super) fn serve(&mut self, port_index: u32) {
        while self.ports[port_index as usize].free_at < self.now {
            let free_at = self.ports[port_index as usize].free_at;
            let at = if self.now.since(free_at).0 == 1 { free_at } else { self.now };
            let is_due = self.pauses.links[port_index as usize].signal_due;
            if is_due && self.send_control_frame(port_index).is_some() {
                continue;
            }
            let Some(slot) = self.next_open(port_index) else { return };
            self.begin_shared((port_index, at), slot);
        }
        let state = &self.pauses.links[port_index as usize];
        let port = &self.ports[port_index as usize];
        let something = port.occupied() & !state.paused != 0 || state.signal_due;
        let awaited = &mut self.shared.awaited[port_index as usize];
        if something && !std::mem::replace(awaited, true) {
            let at = SimTime(port.free_at.0 + 1);
            self.schedule(at, NetEvent::Sent(port_index));
        }
    }

    /// The wire of a port is free since a picosecond.
    pub(super) fn on_sent_shared(&mut self, port_index: u32) {
        self.shared.awaited[port_index as usize] = false;
        self.serve(port_index);
    }

    /// Takes the frame that the discipline sends next, of the levels that are not paused.
    fn next_open(&mut self, port_index: u32) -> Option<u32> {
        let hidden =
            self.ports[port_index as usize].hide(self.pauses.links[port_index as usize].paused);
        let slot = self.take_waiting(port_index);
        self.ports[port_index as usize].show(hidden);
        slot
    }

    fn take_waiting(&mut self, port_index: u32) -> Option<u32> {
        let mut waiting = WaitingFrames {
            port: &mut self.ports[port_index as usize],
            levels: &mut self.levels[port_index as usize],
            frames: &mut self.flights.frames,
            tags: &self.flights.tags,
        };
        waiting.highest()?;
        Some(self.queues[port_index as usize].next(&mut waiting))
    }

    /// The first bit of a frame leaves at this time, and its memory is free.
    fn begin_shared(&mut self, (port_index, at): (u32, SimTime), slot: u32) {
        let port = &mut self.ports[port_index as usize];
        let (frames, _, parcels) = self.flights.parts();
        let link = frames[slot as usize].gap;
        self.queues[port_index as usize].departs(&mut frames[slot as usize], at);
        stamp::<W>(port, at, &mut parcels[slot as usize]);
        let there = at_port(port, port_index, slot, frames);
        let arrival = port.start(frames, slot, at);
        self.probe.departed(at, &there);
        if let Some(at) = arrival {
            self.schedule(at, NetEvent::Arrival(port_index));
        }
        self.release((link, there.priority), there.wire_bytes);
    }

    /// Frees the memory of a frame.
    fn release(&mut self, input: (u32, u8), bytes: u32) {
        self.shared.release(input, bytes);
        self.update_input(input);
    }

    /// A level of an input has changed: it may have to be paused, or to continue.
    fn update_input(&mut self, (link, level): (u32, u8)) {
        let state = &mut self.pauses.links[link as usize];
        let is_paused = state.wanted >> level & 1 != 0;
        if self.shared.is_to_pause((link, level), is_paused) != is_paused {
            state.wanted ^= 1 << level;
        }
        self.signal(link);
    }

    /// Drops all frames that wait at a port, because its link failed, and ends its pauses.
    pub(super) fn clear_shared(&mut self, port_index: u32) {
        while let Some(slot) = self.take_waiting(port_index) {
            let frame = self.flights.frame(slot);
            self.lose(slot, LossCause::LinkDown);
            self.release((frame.gap, frame.priority()), u32::from(frame.bytes));
        }
        self.end_pauses(port_index);
    }
}
