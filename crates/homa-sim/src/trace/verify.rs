//! Replays a trace and checks physics, knowing nothing but the wiring.
//!
//! * Conservation: a packet is sent once and ends once, at the host it was sent to, or is lost; no
//!   byte comes from nowhere.
//! * Causality and rate: it is at the next port, or host, exactly its serialisation and the link's
//!   delay after it left the last, and leaves through neighbouring links only.
//! * Capacity: a link carries one frame at a time.
//! * Order: a port sends first in, first out within a priority level, and never a frame while one
//!   of a higher level waits.
//! * Queues: what an arriving frame finds waiting is the sum of the frames that wait.

use std::fmt;

use crate::time::LinkRate;
use crate::topology::{HostId, Wiring};

use super::event::TraceEvent;

/// A law of physics that a trace breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The event, counted from 0.
    pub event: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what)
    }
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: u32,
    to: u32,
    wire_bytes: u32,
    priority: u8,
    /// The port it left last, and when its last bit is at the other end.
    left: u32,
    arrives: u64,
    /// The port it waits at.
    waiting: bool,
}

/// A frame that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    since: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Verifier {
    hosts: u32,
    wiring: Wiring,
    rates: Vec<LinkRate>,
    busy_until: Vec<u64>,
    queues: Vec<Vec<Waiting>>,
    packets: Vec<Option<Packet>>,
    /// Wire bytes sent, received and lost.
    pub bytes: [u64; 3],
    count: usize,
    violations: Vec<Violation>,
}

impl Verifier {
    /// A judge for one network.
    pub fn new(wiring: &Wiring) -> Self {
        let ports = wiring.ports();
        Self {
            hosts: wiring.hosts(),
            rates: ports.iter().map(|port| LinkRate::new(port.rate)).collect(),
            busy_until: vec![0; ports.len()],
            queues: vec![Vec::new(); ports.len()],
            wiring: wiring.clone(),
            packets: Vec::new(),
            bytes: [0; 3],
            count: 0,
            violations: Vec::new(),
        }
    }

    /// Checks all events of a complete run; the violations, first ones first.
    pub fn judge(mut self, events: &[TraceEvent]) -> Result<[u64; 3], Vec<Violation>> {
        for event in events {
            self.check(event);
            self.count += 1;
        }
        if let Some(slot) = self.packets.iter().position(Option::is_some) {
            self.blame(format!("packet {slot} was neither received nor lost"));
        }
        let [sent, received, lost] = self.bytes;
        if sent != received + lost && self.violations.is_empty() {
            self.blame(format!("{sent} B sent, {received} received and {lost} lost"));
        }
        if self.violations.is_empty() { Ok(self.bytes) } else { Err(self.violations) }
    }

    fn blame(&mut self, what: String) {
        self.violations.push(Violation { event: self.count, what });
    }

    fn check(&mut self, event: &TraceEvent) {
        match *event {
            TraceEvent::Transmitted { at_ps, slot, host, to, wire_bytes, priority } => {
                let index = slot as usize;
                if self.packets.len() <= index {
                    self.packets.resize(index + 1, None);
                }
                if self.packets[index].is_some() {
                    self.blame(format!("packet {slot} is sent while it is under way"));
                }
                let (left, waiting) = (host, false);
                let packet =
                    Packet { from: host, to, wire_bytes, priority, left, arrives: 0, waiting };
                self.packets[index] = Some(packet);
                self.bytes[0] += u64::from(wire_bytes);
                self.serve(at_ps, slot, host);
            }
            TraceEvent::Enqueued { at_ps, slot, port, queued_bytes } => {
                self.on_enqueued(at_ps, slot, (port, queued_bytes));
            }
            TraceEvent::Departed { at_ps, slot, port } => self.on_departed(at_ps, slot, port),
            TraceEvent::Received { at_ps, slot, host, from } => {
                let Some(packet) = self.end(slot) else { return };
                self.bytes[1] += u64::from(packet.wire_bytes);
                let last = self.wiring.downlink(HostId(host)).0;
                if (packet.to, packet.from, packet.left) != (host, from, last) {
                    self.blame(format!("packet {slot} at host {host} was sent otherwise"));
                }
                if packet.arrives != at_ps {
                    self.blame(format!("packet {slot} is received at {at_ps}, not when due"));
                }
            }
            TraceEvent::Lost { slot, .. } => {
                let Some(packet) = self.end(slot) else { return };
                self.bytes[2] += u64::from(packet.wire_bytes);
                for queue in &mut self.queues {
                    queue.retain(|waiting| waiting.slot != slot);
                }
            }
        }
    }

    fn end(&mut self, slot: u32) -> Option<Packet> {
        let packet = self.packets.get_mut(slot as usize).and_then(Option::take);
        if packet.is_none() {
            self.blame(format!("packet {slot} comes from nowhere"));
        }
        packet
    }

    fn on_enqueued(&mut self, at: u64, slot: u32, (port, queued_bytes): (u32, u64)) {
        let Some(Some(packet)) = self.packets.get_mut(slot as usize) else {
            return self.blame(format!("packet {slot} comes from nowhere"));
        };
        packet.waiting = true;
        let packet = *packet;
        let ports = self.wiring.ports();
        if ports[packet.left as usize].to != ports[port as usize].from {
            self.blame(format!("packet {slot} jumps from port {} to port {port}", packet.left));
        }
        if packet.arrives != at {
            self.blame(format!("packet {slot} is at port {port} at {at}, not when due"));
        }
        let waiting: u64 = self.queues[port as usize]
            .iter()
            .filter_map(|waiting| self.packets[waiting.slot as usize])
            .map(|packet| u64::from(packet.wire_bytes))
            .sum();
        if waiting != queued_bytes {
            self.blame(format!("{queued_bytes} B are said to wait at port {port}, not {waiting}"));
        }
        self.queues[port as usize].push(Waiting { slot, since: at });
    }

    fn on_departed(&mut self, at: u64, slot: u32, port: u32) {
        let queue = &mut self.queues[port as usize];
        let Some(index) = queue.iter().position(|waiting| waiting.slot == slot) else {
            return self.blame(format!("packet {slot} leaves port {port} without being there"));
        };
        let waited = queue.remove(index);
        let level = |slot: u32| self.packets[slot as usize].map_or(0, |packet| packet.priority);
        let mine = level(slot);
        // One that came at this very moment may be too late.
        let overtaken = queue.iter().enumerate().any(|(position, other)| {
            let higher = level(other.slot) > mine && other.since < at;
            higher || (level(other.slot) == mine && position < index)
        });
        if overtaken || waited.since > at {
            self.blame(format!("packet {slot} leaves port {port} out of order"));
        }
        self.serve(at, slot, port);
    }

    /// The packet's first bit leaves a port.
    fn serve(&mut self, at: u64, slot: u32, port: u32) {
        if self.busy_until[port as usize] > at {
            self.blame(format!("port {port} sends packet {slot} while it sends another"));
        }
        let delay = self.wiring.ports()[port as usize].delay.0;
        let rate = self.rates[port as usize];
        if let Some(Some(packet)) = self.packets.get_mut(slot as usize) {
            let end = at + rate.serialisation(packet.wire_bytes).0;
            self.busy_until[port as usize] = end;
            packet.left = port;
            packet.arrives = end + delay;
            packet.waiting = false;
        }
        if port < self.hosts && self.packets[slot as usize].is_some_and(|p| p.from != port) {
            self.blame(format!("packet {slot} leaves a host that did not send it"));
        }
    }
}
