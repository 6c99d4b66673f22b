//! Link-level preemption at the ports of switches: a frame of higher priority interrupts the one in
//! service, whose rest is sent later (Homa §5.2: all that is left to win). Hosts choose their next
//! packet when the wire is free. Fragments cost no extra bytes.
//!
//! Here a port needs an event for "transmission finished", because that time may move. An
//! interrupted frame waits at the head of its level with its remaining bytes. Its whole length is
//! kept in `gap`, which is unused outside of a pipe, with a bit that is set if it has been in
//! service.
//!
//! Invariants: a frame enters the pipe when its last bit has left; of several events of one port
//! only the one at `free_at` counts.

use crate::fabric::NONE;

use super::agenda::NetEvent;
use super::hop::at_port;
use super::net::{Net, Service};
use super::probe::Probe;
use super::world::World;

/// Bit of `gap` above the frame's length: the frame has been in service.
const BEGUN: u32 = 1 << 16;

impl<W: World> Net<W> {
    /// A packet arrives at an output port.
    #[cold]
    pub fn enqueue_preempting(&mut self, switch: u32, port_index: u32, slot: u32) {
        let port = &self.ports[port_index as usize];
        let there = at_port(port, port_index, slot, &self.flights.frames);
        let serving = self.services[port_index as usize].slot;
        let backlog = self.backlog(port_index);
        self.probe.enqueued(self.now, &there, &backlog);
        if u64::from(there.wire_bytes) > self.room(switch, port_index) {
            return self.drop_at(port_index, slot);
        }
        self.flights.frames[slot as usize].gap = there.wire_bytes;
        let lower = backlog.in_service_priority < there.priority;
        match serving {
            NONE => self.begin(port_index, slot),
            serving if lower && backlog.residual_bytes > 0 => {
                self.interrupt(port_index, serving, backlog.residual_bytes);
                self.begin(port_index, slot);
            }
            _ => {
                let port = &mut self.ports[port_index as usize];
                let frames = &mut self.flights.frames;
                port.wait(&mut self.levels[port_index as usize], frames, (there.priority, slot));
            }
        }
    }

    /// The frame in service waits again, with `rest` bytes left to send.
    fn interrupt(&mut self, port_index: u32, serving: u32, rest: u32) {
        let port = &mut self.ports[port_index as usize];
        let frames = &mut self.flights.frames;
        frames[serving as usize].bytes = rest as u16;
        port.sent_bytes -= u64::from(rest);
        port.wait_first(&mut self.levels[port_index as usize], frames, serving);
        self.probe.interrupted(self.now, &at_port(port, port_index, serving, frames));
    }

    /// A frame, or the rest of one, enters service.
    fn begin(&mut self, port_index: u32, slot: u32) {
        let port = &mut self.ports[port_index as usize];
        let frame = self.flights.frame(slot);
        let there = at_port(port, port_index, slot, &self.flights.frames);
        if frame.gap & BEGUN == 0 {
            self.flights.frames[slot as usize].gap |= BEGUN;
            self.probe.departed(self.now, &there);
        } else {
            self.probe.resumed(self.now, &there);
        }
        self.services[port_index as usize] = Service::of(port, slot, &there);
        let free_at = port.occupy(self.now, frame.bytes);
        self.schedule(free_at, NetEvent::Served(port_index));
    }

    /// The last bit of the frame in service may have left. If the frame was interrupted, it left
    /// later and this event is stale.
    pub fn on_served(&mut self, port_index: u32) {
        let port = &mut self.ports[port_index as usize];
        let slot = self.services[port_index as usize].slot;
        if slot == NONE || port.free_at != self.now {
            return;
        }
        self.services[port_index as usize].slot = NONE;
        let frames = &mut self.flights.frames;
        let frame = &mut frames[slot as usize];
        frame.bytes = frame.gap as u16;
        let alone = port.launch(frames, slot);
        let next = port.take_first(&mut self.levels[port_index as usize], frames);
        if let Some(at) = alone {
            self.schedule(at, NetEvent::Arrival(port_index));
        }
        if let Some(next) = next {
            self.begin(port_index, next);
        }
    }
}
