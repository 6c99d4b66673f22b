//! Arrival at a switch, the forwarding engine, and the crossbar.

use crate::engine::agenda::NetEvent;
use crate::engine::hop::at_port;
use crate::engine::net::Net;
use crate::engine::probe::{LossCause, PortBacklog, Probe};
use crate::engine::world::World;
use crate::fabric::{Marks, NONE};

impl<W: World> Net<W> {
    /// A frame's first bit is at the end of its link, which `gap` names. It takes memory, or is
    /// dropped if there is none.
    #[inline]
    pub fn enter_input(&mut self, slot: u32) {
        let frame = self.flights.frame(slot);
        let (link, bytes) = (frame.gap, u32::from(frame.bytes));
        let input = &mut self.cioq.inputs[link as usize];
        if !self.cioq.room.at_input(&input.drain, (frame.priority(), bytes)) {
            return self.drop_at(link, slot);
        }
        input.drain.arrive(frame.priority(), bytes);
        let ready = self.cioq.whole[slot as usize].max(self.now) + self.cioq.lookup;
        self.probe.deferred(self.now, slot, ready);
        self.schedule(ready, NetEvent::LookedUp(slot));
        self.update_pauses(link);
    }

    /// The forwarding engine has chosen the output of a frame.
    #[inline]
    pub fn on_looked_up(&mut self, slot: u32) {
        let link = self.flights.frame(slot).gap;
        let switch = self.ports[link as usize].to.0 - self.wiring.hosts();
        let Some(output) = self.choose_port(switch, slot) else {
            self.leave_input(link, slot);
            return self.lose(slot, LossCause::NoRoute);
        };
        let backlog = self.backlog_at_output(output);
        let frames = &mut self.flights.frames;
        let there = at_port(&self.ports[output as usize], output, slot, frames);
        self.probe.enqueued(self.now, &there, &backlog);
        frames[slot as usize].gap = output;
        self.cioq.inputs[link as usize].queue.push(frames, slot);
        self.cioq.note_waiting(link);
        let port = &mut self.cioq.outputs[output as usize];
        port.asking += 1;
        port.bound += there.wire_bytes;
        self.send_across(link);
    }

    /// The queue that a frame bound for an output finds: all frames at the switch that wait for it.
    fn backlog_at_output(&self, output: u32) -> PortBacklog {
        let state = &self.cioq.outputs[output as usize];
        let port = &self.ports[output as usize];
        let (bytes, in_service_priority) = state.leaving;
        PortBacklog {
            queued_bytes: u64::from(state.bound),
            residual_bytes: port.residual(self.now, port.mbps).min(u32::from(bytes)),
            in_service_priority,
        }
    }

    /// If an input is idle, it sends the first frame that an output can take, the highest level
    /// first.
    #[inline]
    pub(super) fn send_across(&mut self, link: u32) {
        let input = &self.cioq.inputs[link as usize];
        if input.crossing != NONE {
            return;
        }
        let mut levels = input.queue.occupied;
        while let Some(level) = levels.checked_ilog2() {
            levels &= !(1 << level);
            if let Some(found) = self.candidate(link, level as u8, NONE) {
                return self.cross(link, found);
            }
        }
    }

    /// A frame of a level that may cross now, and the frame before it in its list. This is the
    /// first frame of the list or, with virtual output queues, the first for any output; with
    /// `wanted`, only frames for that output count.
    #[inline]
    fn candidate(&mut self, link: u32, level: u8, wanted: u32) -> Option<(u32, u32)> {
        let cioq = &mut self.cioq;
        let frames = &self.flights.frames;
        cioq.passed.clear();
        let (mut before, mut slot) = (NONE, cioq.inputs[link as usize].queue.first(level));
        while slot != NONE {
            let frame = frames[slot as usize];
            let output = frame.gap;
            if (wanted == NONE || wanted == output) && !cioq.passed.contains(&output) {
                let size = (level, u32::from(frame.bytes));
                let state = &cioq.outputs[output as usize];
                if state.coming == 0 && cioq.room.may_cross(&state.drain, size) {
                    return Some((before, slot));
                }
                cioq.passed.push(output);
            }
            if !cioq.virtual_outputs {
                return None;
            }
            (before, slot) = (slot, frame.next);
        }
        None
    }

    /// If an output can take a frame, it gets one of the highest level, with inputs in turn.
    #[inline]
    pub(super) fn fill_output(&mut self, output: u32) {
        let state = &self.cioq.outputs[output as usize];
        if state.asking == 0 || state.coming != 0 {
            return;
        }
        let open = self.cioq.room.open_levels(&state.drain);
        if open == 0 {
            return;
        }
        let switch = self.wiring.ports()[output as usize].from.0 - self.wiring.hosts();
        let mut best: Option<(u8, u32, u32, (u32, u32))> = None;
        let turn = state.turn;
        for place in self.cioq.places_from(switch, turn) {
            let link = self.cioq.inputs_of[switch as usize][place as usize];
            let input = &self.cioq.inputs[link as usize];
            if input.crossing != NONE {
                continue;
            }
            let mut levels = input.queue.occupied & open;
            while let Some(level) = levels.checked_ilog2() {
                levels &= !(1 << level);
                let level = level as u8;
                if best.is_some_and(|(highest, ..)| highest >= level) {
                    break;
                }
                if let Some(found) = self.candidate(link, level, output) {
                    best = Some((level, place, link, found));
                    break;
                }
            }
        }
        if let Some((_, place, link, found)) = best {
            self.cioq.outputs[output as usize].turn = place;
            self.cross(link, found);
        }
    }

    /// A frame leaves its list and begins to cross.
    fn cross(&mut self, link: u32, found: (u32, u32)) {
        let cioq = &mut self.cioq;
        let frames = &mut self.flights.frames;
        let input = &mut cioq.inputs[link as usize];
        input.queue.take(frames, found);
        let slot = found.1;
        input.crossing = slot;
        cioq.note_waiting(link);
        let frame = frames[slot as usize];
        let output = &mut cioq.outputs[frame.gap as usize];
        output.coming = u32::from(frame.bytes);
        output.asking -= 1;
        let switch = self.ports[link as usize].to.0 - self.wiring.hosts();
        let time = cioq.crossbars[switch as usize].serialisation(output.coming);
        self.schedule(self.now + time, NetEvent::Crossed(link));
    }

    /// The last bit of a frame has crossed.
    #[inline]
    pub fn on_crossed(&mut self, link: u32) {
        let input = &mut self.cioq.inputs[link as usize];
        let slot = std::mem::replace(&mut input.crossing, NONE);
        self.cioq.note_waiting(link);
        let frame = self.flights.frame(slot);
        let output = frame.gap;
        let state = &mut self.cioq.outputs[output as usize];
        state.coming = 0;
        let full = self.cioq.mark_above.is_some_and(|limit| state.drain.at(0) > limit);
        if full && frame.marks().has(Marks::ECT) {
            self.flights.frames[slot as usize].set(Marks::CE);
        }
        let (level, bytes) = (frame.priority(), u32::from(frame.bytes));
        if self.cioq.room.is_dropped(&state.drain, (level, bytes)) {
            state.bound -= bytes;
            self.leave_input(link, slot);
            self.drop_at(output, slot);
        } else {
            state.drain.arrive(level, bytes);
            state.queue.push(&mut self.flights.frames, slot);
            self.leave_input(link, slot);
            self.send_on(output);
        }
        self.fill_output(output);
        self.send_across(link);
    }

    /// Frees a frame's memory at its input.
    fn leave_input(&mut self, link: u32, slot: u32) {
        let frame = self.flights.frame(slot);
        let input = &mut self.cioq.inputs[link as usize];
        input.drain.depart(frame.priority(), u32::from(frame.bytes));
        self.update_pauses(link);
    }
}
