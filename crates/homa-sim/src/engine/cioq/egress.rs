//! The output queues of switches, and their wires.

use crate::engine::agenda::NetEvent;
use crate::engine::hop::at_port;
use crate::engine::net::Net;
use crate::engine::probe::{LossCause, Probe};
use crate::engine::world::World;

impl<W: World> Net<W> {
    /// An idle wire sends a due control frame first, then the oldest frame of the highest level
    /// that is not paused.
    #[inline]
    pub fn send_on(&mut self, output: u32) {
        let state = &mut self.cioq.outputs[output as usize];
        if state.busy {
            return;
        }
        if self.pauses.links[output as usize].signal_due
            && let Some(free_at) = self.send_control_frame(output)
        {
            self.cioq.outputs[output as usize].busy = true;
            return self.schedule(free_at, NetEvent::Sent(output));
        }
        let state = &mut self.cioq.outputs[output as usize];
        let frames = &self.flights.frames;
        let open = !self.pauses.paused(output);
        let Some(slot) = state.queue.pop(frames, open) else { return };
        let frame = frames[slot as usize];
        state.busy = true;
        state.leaving = (frame.bytes, frame.priority());
        state.bound -= u32::from(frame.bytes);
        let there = at_port(&self.ports[output as usize], output, slot, frames);
        self.probe.departed(self.now, &there);
        self.launch(output, slot);
        let free_at = self.ports[output as usize].free_at;
        self.schedule(free_at, NetEvent::Sent(output));
    }

    /// A frame's first bit leaves a port of a switch or a host. Switches receive the frame when its
    /// first bit arrives, hosts when all of it has arrived.
    #[inline]
    pub fn launch(&mut self, port_index: u32, slot: u32) {
        let port = &mut self.ports[port_index as usize];
        let frames = &mut self.flights.frames;
        let alone = if port.to.0 < self.wiring.hosts() {
            port.start(frames, slot, self.now)
        } else {
            let free_at = port.occupy(self.now, frames[slot as usize].bytes);
            self.cioq.note_whole(slot, free_at + port.delay);
            port.launch_to(frames, slot, self.now + port.delay)
        };
        if let Some(at) = alone {
            self.schedule(at, NetEvent::Arrival(port_index));
        }
    }

    /// The last bit of a frame has left.
    #[inline]
    pub fn on_sent(&mut self, output: u32) {
        let state = &mut self.cioq.outputs[output as usize];
        let (bytes, level) = std::mem::take(&mut state.leaving);
        state.busy = false;
        if bytes > 0 {
            state.drain.depart(level, u32::from(bytes));
        }
        self.send_on(output);
        self.fill_output(output);
    }

    /// Drops all frames that wait at a port, because its link failed, and ends its pauses.
    pub fn clear_output(&mut self, output: u32) {
        while let Some(slot) =
            self.cioq.outputs[output as usize].queue.pop(&self.flights.frames, u8::MAX)
        {
            let frame = self.flights.frame(slot);
            let state = &mut self.cioq.outputs[output as usize];
            state.drain.depart(frame.priority(), u32::from(frame.bytes));
            state.bound -= u32::from(frame.bytes);
            self.lose(slot, LossCause::LinkDown);
        }
        self.end_pauses(output);
        if output >= self.wiring.hosts() {
            self.fill_output(output);
        }
    }
}
