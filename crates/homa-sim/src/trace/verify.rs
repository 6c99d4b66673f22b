//! Checks that the events of a run obey physics, knowing nothing but the wiring and what switches
//! may do (cut through, interrupt).
//!
//! * Conservation: a packet is sent once and ends once, at the host it was sent to, or is lost, or
//!   is under way at the end; no byte comes from nowhere.
//! * Causality and rate: it is at the next port, or host, exactly its serialisation and the link's
//!   delay after it left the last, and leaves through neighbouring links only.
//! * Capacity: a link carries one frame at a time, and does not idle while a frame waits for it.
//! * Order: a port sends first in, first out within a priority level, and never a frame while one
//!   of a higher level waits.
//! * Queues: what an arriving frame finds waiting is the sum of the frames that wait.
//!
//! Events are judged as they come: only packets under way are in memory.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use homa_proto::Rate;

use crate::fabric::FabricConfig;
use crate::time::LinkRate;
use crate::topology::{HostId, NodeId, Wiring};

use super::event::{Listener, TraceEvent};

/// A law of physics that a trace breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The event, counted from 0.
    pub event: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what)
    }
}

/// Frames and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Wire bytes.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Events.
    pub events: u64,
    /// Sent by hosts.
    pub sent: Count,
    /// Made by links that duplicate.
    pub copied: Count,
    /// Given to receivers.
    pub received: Count,
    /// Lost.
    pub lost: Count,
    /// Neither, at the end of the run.
    pub under_way: Count,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: u32,
    to: u32,
    wire_bytes: u32,
    priority: u8,
    /// The port it left last, and when its last bit (for a switch that cuts through, its header) is
    /// at the other end.
    left: u32,
    arrives: u64,
    /// The port it waits at.
    waits_at: Option<u32>,
    /// Since when.
    since: u64,
    /// What it sends, or has still to send, at its port: less than all once it was interrupted.
    rest: u32,
    /// Its first bit has left its port.
    begun: bool,
}

/// Violations that are kept.
const MOST: usize = 10;
/// Bytes that a switch must have seen before it sends a frame on.
const HEADER: u32 = 64;

/// See the module's description.
#[derive(Debug)]
pub struct Verifier {
    wiring: Wiring,
    interrupts: bool,
    /// By port: its far end sends on what is still arriving.
    cuts: Vec<bool>,
    rates: Vec<LinkRate>,
    busy_until: Vec<u64>,
    /// By port: wire bytes that wait.
    queued: Vec<u64>,
    /// By port and level: packets that wait.
    queues: BTreeMap<(u32, u8), VecDeque<u32>>,
    packets: Vec<Option<Packet>>,
    checked: Checked,
    violations: Vec<Violation>,
}

impl Listener for Verifier {
    fn hear(&mut self, event: &TraceEvent) {
        self.check(event);
        self.checked.events += 1;
    }
}

/// Links have rates of whole Mbit/s, at least one.
fn link_rate(rate: Rate) -> LinkRate {
    LinkRate::new(Rate::mbps((rate.0 / 1_000_000).max(1)))
}

impl Verifier {
    /// A judge for one network.
    pub fn new(wiring: &Wiring, config: &FabricConfig) -> Self {
        let ports = wiring.ports();
        // By node: its fastest port.
        let mut fastest: BTreeMap<NodeId, Rate> = BTreeMap::new();
        for port in ports {
            let rate = fastest.entry(port.from).or_insert(port.rate);
            *rate = port.rate.max(*rate);
        }
        let cuts = ports.iter().map(|port| {
            let passes_on = port.to.0 >= wiring.hosts() && config.cut_through && !config.preemption;
            passes_on && fastest.get(&port.to).is_none_or(|rate| *rate <= port.rate)
        });
        Self {
            interrupts: config.preemption,
            cuts: cuts.collect(),
            rates: ports.iter().map(|port| link_rate(port.rate)).collect(),
            busy_until: vec![0; ports.len()],
            queued: vec![0; ports.len()],
            queues: BTreeMap::new(),
            wiring: wiring.clone(),
            packets: Vec::new(),
            checked: Checked::default(),
            violations: Vec::new(),
        }
    }

    /// The verdict at the end of a run that leaves `in_flight` packets in the network; of the
    /// violations the first ones.
    pub fn finish(mut self, in_flight: u64) -> Result<Checked, Vec<Violation>> {
        for packet in self.packets.iter().flatten() {
            self.checked.under_way.add(packet.wire_bytes);
        }
        let Checked { sent, copied, received, lost, under_way, .. } = self.checked;
        if under_way.frames != in_flight {
            let frames = under_way.frames;
            self.blame(format!("{frames} packets did not end, {in_flight} are in the network"));
        }
        if sent.bytes + copied.bytes != received.bytes + lost.bytes + under_way.bytes {
            self.blame(format!("bytes are not conserved: {:?}", self.checked));
        }
        if self.violations.is_empty() { Ok(self.checked) } else { Err(self.violations) }
    }

    fn blame(&mut self, what: String) {
        if self.violations.len() < MOST {
            self.violations.push(Violation { event: self.checked.events, what });
        }
    }

    fn check(&mut self, event: &TraceEvent) {
        match *event {
            TraceEvent::Transmitted { at_ps, slot, host, to, wire_bytes, priority } => {
                self.put(slot, {
                    let (left, arrives, since) = (host, at_ps, at_ps);
                    let (from, waits_at, rest, begun) = (host, None, wire_bytes, false);
                    Packet {
                        from,
                        to,
                        wire_bytes,
                        priority,
                        left,
                        arrives,
                        waits_at,
                        since,
                        rest,
                        begun,
                    }
                });
                self.checked.sent.add(wire_bytes);
                self.serve(at_ps, slot, host);
            }
            TraceEvent::Enqueued { at_ps, slot, port, queued_bytes } => {
                self.on_enqueued(at_ps, slot, (port, queued_bytes));
            }
            TraceEvent::Departed { at_ps, slot, port } => self.on_leaving(at_ps, slot, port, true),
            TraceEvent::Resumed { at_ps, slot, port } => self.on_leaving(at_ps, slot, port, false),
            TraceEvent::Interrupted { at_ps, slot, port, left_bytes } => {
                self.on_interrupted(at_ps, slot, (port, left_bytes));
            }
            TraceEvent::Copied { at_ps, slot, copy } => {
                let Some(packet) = self.due(at_ps, slot, "is duplicated") else { return };
                self.checked.copied.add(packet.wire_bytes);
                self.put(copy, packet);
            }
            TraceEvent::Deferred { at_ps, slot, until_ps } => {
                let Some(packet) = self.due(at_ps, slot, "is held up") else { return };
                let arrives = until_ps.max(at_ps);
                self.packets[slot as usize] = Some(Packet { arrives, ..packet });
            }
            TraceEvent::Received { at_ps, slot, host, from } => {
                let Some(packet) = self.due(at_ps, slot, "is received") else { return };
                self.packets[slot as usize] = None;
                self.checked.received.add(packet.wire_bytes);
                let last = self.wiring.downlink(HostId(host)).0;
                if (packet.to, packet.from, packet.left) != (host, from, last) {
                    self.blame(format!("packet {slot} at host {host} was sent otherwise"));
                }
            }
            TraceEvent::Lost { at_ps, slot, .. } => self.on_lost(at_ps, slot),
            TraceEvent::RateChanged { port, bits_per_second, .. } => {
                self.rates[port as usize] = link_rate(Rate(bits_per_second));
            }
        }
    }

    fn put(&mut self, slot: u32, packet: Packet) {
        let index = slot as usize;
        if self.packets.len() <= index {
            self.packets.resize(index + 1, None);
        }
        if self.packets[index].replace(packet).is_some() {
            self.blame(format!("packet {slot} begins while it is under way"));
        }
    }

    fn packet(&mut self, slot: u32) -> Option<Packet> {
        let packet = self.packets.get(slot as usize).copied().flatten();
        if packet.is_none() {
            self.blame(format!("packet {slot} comes from nowhere"));
        }
        packet
    }

    /// The packet, which something happens to where its link ends.
    fn due(&mut self, at: u64, slot: u32, what: &str) -> Option<Packet> {
        let packet = self.packet(slot)?;
        if packet.waits_at.is_some() || packet.arrives != at {
            let due = packet.arrives;
            self.blame(format!("packet {slot} {what} at {at} ps, due at {due}"));
        }
        Some(packet)
    }

    fn on_enqueued(&mut self, at: u64, slot: u32, (port, queued_bytes): (u32, u64)) {
        let Some(packet) = self.due(at, slot, "is at a port") else { return };
        let ports = self.wiring.ports();
        if ports[packet.left as usize].to != ports[port as usize].from {
            self.blame(format!("packet {slot} jumps from port {} to port {port}", packet.left));
        }
        let waiting = self.queued[port as usize];
        if waiting != queued_bytes {
            self.blame(format!("{queued_bytes} B are said to wait at port {port}, not {waiting}"));
        }
        let (waits_at, since, rest, begun) = (Some(port), at, packet.wire_bytes, false);
        self.packets[slot as usize] = Some(Packet { waits_at, since, rest, begun, ..packet });
        self.queues.entry((port, packet.priority)).or_default().push_back(slot);
        self.queued[port as usize] += u64::from(rest);
    }

    fn on_interrupted(&mut self, at: u64, slot: u32, (port, left_bytes): (u32, u32)) {
        let Some(packet) = self.packet(slot) else { return };
        let free_at = self.busy_until[port as usize];
        let ends = packet.arrives.saturating_sub(self.wiring.ports()[port as usize].delay.0);
        let in_service = (packet.waits_at, packet.left, ends) == (None, port, free_at);
        if !self.interrupts || !in_service || free_at <= at {
            self.blame(format!("packet {slot} is interrupted, not in service at port {port}"));
        }
        let rate = u128::from(self.rates[port as usize].rate().0);
        let to_go = u128::from(free_at.saturating_sub(at)) * rate;
        let left = to_go.div_ceil(8_000_000_000_000).min(u128::from(packet.rest));
        if u128::from(left_bytes) != left {
            self.blame(format!("packet {slot} has {left} B to go, not {left_bytes}"));
        }
        let (waits_at, rest) = (Some(port), left_bytes);
        self.packets[slot as usize] = Some(Packet { waits_at, rest, ..packet });
        self.queues.entry((port, packet.priority)).or_default().push_front(slot);
        self.queued[port as usize] += u64::from(rest);
        self.busy_until[port as usize] = at;
    }

    /// The first bit of a packet, or of its rest, leaves a port of a switch.
    fn on_leaving(&mut self, at: u64, slot: u32, port: u32, whole: bool) {
        let Some(packet) = self.packet(slot) else { return };
        if packet.waits_at != Some(port) || whole == packet.begun {
            return self.blame(format!("packet {slot} leaves port {port} without being there"));
        }
        let oldest = |queue: &VecDeque<u32>| {
            let first = *queue.front()?;
            self.packets[first as usize].map(|packet| packet.since)
        };
        let here = self.queues.range((port, 0)..=(port, u8::MAX));
        let waited_since = here.filter_map(|(_, queue)| oldest(queue)).min().unwrap_or(at);
        let higher = self.queues.range((port, packet.priority + 1)..=(port, u8::MAX));
        // One that came at this very moment may be too late.
        let overtaken = higher.filter_map(|(_, queue)| oldest(queue)).any(|since| since < at);
        let first = self.queues.get(&(port, packet.priority)).and_then(VecDeque::front);
        if overtaken || first != Some(&slot) || packet.since > at {
            self.blame(format!("packet {slot} leaves port {port} out of order"));
        }
        if at > waited_since.max(self.busy_until[port as usize]) {
            self.blame(format!("port {port} idles while packet {slot} waits"));
        }
        self.unqueue(slot, packet);
        self.serve(at, slot, port);
    }

    /// A packet waits no more.
    fn unqueue(&mut self, slot: u32, packet: Packet) {
        let Some(port) = packet.waits_at else { return };
        let key = (port, packet.priority);
        if let Some(queue) = self.queues.get_mut(&key) {
            if let Some(place) = queue.iter().position(|other| *other == slot) {
                queue.remove(place);
            }
            if queue.is_empty() {
                self.queues.remove(&key);
            }
        }
        self.queued[port as usize] -= u64::from(packet.rest);
    }

    fn on_lost(&mut self, at: u64, slot: u32) {
        let Some(packet) = self.packet(slot) else { return };
        if packet.waits_at.is_none() && packet.arrives != at {
            let due = packet.arrives;
            self.blame(format!("packet {slot} is lost at {at} ps, on a link until {due}"));
        }
        self.unqueue(slot, packet);
        self.packets[slot as usize] = None;
        self.checked.lost.add(packet.wire_bytes);
    }

    /// A packet, or its rest, is on the wire behind a port.
    fn serve(&mut self, at: u64, slot: u32, port: u32) {
        if self.busy_until[port as usize] > at {
            self.blame(format!("port {port} sends packet {slot} while it sends another"));
        }
        let delay = self.wiring.ports()[port as usize].delay.0;
        let rate = self.rates[port as usize];
        let Some(Some(packet)) = self.packets.get_mut(slot as usize) else { return };
        let time = |bytes: u32| rate.serialisation(bytes).0;
        let end = at + time(packet.rest);
        self.busy_until[port as usize] = end;
        let seen = if self.cuts[port as usize] { packet.rest.min(HEADER) } else { packet.rest };
        packet.left = port;
        packet.arrives = at + time(seen) + delay;
        packet.waits_at = None;
        packet.begun = true;
    }
}
