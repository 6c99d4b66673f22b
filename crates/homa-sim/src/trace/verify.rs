//! Checks that the events of a run obey physics, from the wiring and the abilities of the switches.
//!
//! * Time: events come in order of time; only a departure may be reported late.
//! * Conservation: a packet is sent once and ends once. It is delivered to the host it was sent to,
//!   is lost, or is still in flight at the end; no byte appears from nowhere.
//! * Causality and rate: a packet arrives at the next port, or host, exactly its serialisation time
//!   plus the link's delay after it left the last. It crosses adjacent links only, its last bit
//!   leaves no earlier than it came, and it neither loops nor gets stuck.
//! * Capacity: a link carries one frame at a time and is never idle while a frame waits for it.
//! * Order (only if queues are in strict priority order): a port serves each level first in, first
//!   out, and serves no frame while one of a higher level waits. With preemption, a frame of a
//!   higher level does not wait for one in service either.
//! * Queues: an arriving frame finds a backlog equal to the sum of waiting frames. If ports have
//!   separate buffers and strict order, a frame is dropped if and only if it does not fit.
//!
//! Not checked: which of several paths a packet takes, frames that cross a link that is down,
//! losses for reasons other than a full buffer, and buffers that ports share.
//!
//! Events are checked as they come, so that memory holds only the packets in flight.

use std::collections::{BTreeMap, VecDeque};

use homa_proto::Rate;

use crate::fabric::queue::Order;
use crate::fabric::{Buffers, FabricConfig};
use crate::time::LinkRate;
use crate::topology::{HostId, NodeId, Wiring};

use super::checked::{Checked, Violation, link_rate};
use super::event::{TraceEvent, TraceListener};

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    from: u32,
    to: u32,
    wire_bytes: u32,
    priority: u8,
    /// The port it left last, and when it has crossed that link: its last bit, or its header if
    /// the switch there cuts through.
    left: u32,
    arrives: u64,
    /// When its last bit is there.
    whole_at: u64,
    /// Switches it passed.
    hops: u32,
    /// The port where it waits.
    waits_at: Option<u32>,
    /// When it started to wait.
    since: u64,
    /// Bytes to send at its port; fewer than all after an interruption.
    rest: u32,
    /// Its first bit has left its port.
    begun: bool,
}

/// The event that must follow the arrival of a frame at a port.
#[derive(Clone, Copy, Debug)]
struct Owed {
    slot: u32,
    port: u32,
    /// Whether it is dropped; `None` if the model cannot tell.
    drop: Option<bool>,
    /// It interrupts the frame in service.
    interrupts: bool,
}

/// Violations that are kept.
const MOST: usize = 10;
/// Bytes that a switch must have received before it forwards a frame.
const HEADER: u32 = 64;

/// See the module's description.
#[derive(Debug)]
pub struct Verifier {
    wiring: Wiring,
    interrupts: bool,
    cut_through: bool,
    order: Order,
    pauses: bool,
    /// Bytes that switches trimmed.
    cut: u64,
    /// By port: whether the node at its far end forwards frames that are still arriving.
    cuts: Vec<bool>,
    rates: Vec<LinkRate>,
    busy_until: Vec<u64>,
    /// By port: level, bytes and rate of the frame that left last, or is leaving.
    serving: Vec<(u8, u32, u64)>,
    /// Wire bytes that a port may hold, including the frame that is leaving.
    limit: Option<u64>,
    /// Time of the latest event.
    now: u64,
    /// The next event that must occur, except for departures.
    owed: Option<Owed>,
    /// By port: wire bytes waiting.
    queued: Vec<u64>,
    /// By port and level: packets waiting.
    queues: BTreeMap<(u32, u8), VecDeque<u32>>,
    packets: Vec<Option<InFlight>>,
    checked: Checked,
    violations: Vec<Violation>,
}

impl TraceListener for Verifier {
    fn on_event(&mut self, event: &TraceEvent) {
        self.check(event);
        self.checked.events += 1;
    }
}

impl Verifier {
    /// A verifier for one network, whose queues serve in `order`.
    pub fn new(wiring: &Wiring, config: &FabricConfig, order: Order) -> Self {
        let ports = wiring.ports();
        // A level that is paused is overtaken, and its memory is that of the switch.
        let pauses = order == Order::Combined || config.shared.is_some();
        let order = if pauses && order == Order::Strict { Order::Own } else { order };
        let mut verifier = Self {
            pauses,
            interrupts: config.preemption,
            order,
            cut: 0,
            cut_through: config.cut_through && !config.preemption,
            cuts: vec![false; ports.len()],
            rates: ports.iter().map(|port| link_rate(port.rate)).collect(),
            busy_until: vec![0; ports.len()],
            serving: vec![(0, 0, 0); ports.len()],
            limit: match config.buffers {
                _ if order != Order::Strict => None,
                Buffers::PerPort(bytes) => Some(bytes),
                Buffers::Unlimited => Some(u64::MAX),
                Buffers::Shared { .. } | Buffers::PerLevel(_) => None,
            },
            now: 0,
            owed: None,
            queued: vec![0; ports.len()],
            queues: BTreeMap::new(),
            wiring: wiring.clone(),
            packets: Vec::new(),
            checked: Checked::default(),
            violations: Vec::new(),
        };
        verifier.choose_cuts();
        verifier
    }

    /// A switch cuts through if the incoming link is at least as fast as its fastest port.
    fn choose_cuts(&mut self) {
        let ports = self.wiring.ports();
        let mut fastest: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (port, rate) in ports.iter().zip(&self.rates) {
            let seen = fastest.entry(port.from).or_default();
            *seen = rate.rate().0.max(*seen);
        }
        let hosts = self.wiring.hosts();
        let cuts = ports.iter().zip(&self.rates).map(|(port, rate)| {
            let cuts_through = self.cut_through && rate.rate().0 >= fastest[&port.to];
            port.to.0 >= hosts && (cuts_through || self.order == Order::Combined)
        });
        self.cuts = cuts.collect();
    }

    /// The verdict at the end of a run that leaves `expected` packets in the network: the first
    /// violations, if there are any.
    pub fn finish(mut self, expected: u64) -> Result<Checked, Vec<Violation>> {
        self.settle(None);
        self.blame_stuck();
        for packet in self.packets.iter().flatten() {
            self.checked.in_flight.add(packet.wire_bytes);
        }
        let Checked { sent, copied, received, lost, in_flight, .. } = self.checked;
        if in_flight.frames != expected {
            let frames = in_flight.frames;
            self.blame(format!("{frames} packets did not end, {expected} are in the network"));
        }
        let ended = received.bytes + lost.bytes + in_flight.bytes + self.cut;
        if sent.bytes + copied.bytes != ended {
            self.blame(format!("bytes are not conserved: {:?}", self.checked));
        }
        if self.violations.is_empty() { Ok(self.checked) } else { Err(self.violations) }
    }

    fn blame(&mut self, what: String) {
        if self.violations.len() < MOST {
            self.violations.push(Violation { event: self.checked.events, what });
        }
    }

    /// Reports packets that should have left their port, or arrived, by now.
    fn blame_stuck(&mut self) {
        let late = |packet: &InFlight| packet.waits_at.is_none() && packet.arrives < self.now;
        let stuck = self.packets.iter().flatten().find(|packet| late(packet));
        if let Some(InFlight { from, to, arrives, .. }) = stuck.copied() {
            self.blame(format!("a packet from {from} to {to}, due at {arrives} ps, never arrives"));
        }
        // If the port cannot be paused, a waiting frame leaves no later than the frame ahead of it
        // reaches the far end of the link.
        let idle = |port: u32| {
            let delay = self.wiring.ports()[port as usize].delay.0;
            !self.pauses && self.busy_until[port as usize] + delay < self.now
        };
        let port = self.queues.keys().map(|(port, _)| *port).find(|port| idle(*port));
        if let Some(port) = port {
            self.blame(format!("port {port} stays idle although a packet waits"));
        }
    }

    /// Checks that the event that the last arrival at a port called for has happened.
    fn settle(&mut self, event: Option<&TraceEvent>) {
        let Some(Owed { slot, port, drop, interrupts }) = self.owed.take() else { return };
        let dropped = matches!(event,
            Some(TraceEvent::Lost { slot: lost, overflow: true, .. }) if *lost == slot);
        let interrupted =
            matches!(event, Some(TraceEvent::Interrupted { port: at, .. }) if *at == port);
        match drop {
            Some(true) if !dropped => {
                self.blame(format!("packet {slot} is more than port {port} can hold"));
            }
            Some(false) if dropped => {
                self.blame(format!("packet {slot} is dropped, port {port} has room"));
            }
            _ => {}
        }
        if interrupts != interrupted && !dropped {
            let what = if interrupts { "does not interrupt" } else { "must not interrupt" };
            self.blame(format!("packet {slot} {what} the frame in service at port {port}"));
        }
    }

    /// Advances the time. Departures may be reported late, so they do not move it.
    fn tick(&mut self, event: &TraceEvent) {
        let (at, before) = (event.at_ps(), self.now);
        self.now = at.max(before);
        let departure = matches!(event, TraceEvent::Departed { .. });
        if !departure {
            self.settle(Some(event));
        }
        if at < before && !departure {
            self.blame(format!("an event of {at} ps is reported at {before} ps"));
        }
    }

    fn check(&mut self, event: &TraceEvent) {
        self.tick(event);
        match *event {
            TraceEvent::Transmitted { at_ps, slot, host, to, wire_bytes, priority } => {
                let packet = InFlight {
                    from: host,
                    to,
                    wire_bytes,
                    priority,
                    left: host,
                    arrives: at_ps,
                    whole_at: at_ps,
                    hops: 0,
                    waits_at: None,
                    since: at_ps,
                    rest: wire_bytes,
                    begun: false,
                };
                self.put(slot, packet);
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
            TraceEvent::Trimmed { slot, left_bytes, .. } => self.on_trimmed(slot, left_bytes),
            TraceEvent::Returned { at_ps, slot, left_bytes } => {
                self.on_trimmed(slot, left_bytes);
                self.on_returned(at_ps, slot);
            }
            TraceEvent::Copied { at_ps, slot, copy } => {
                let Some(packet) = self.due(at_ps, slot, "is duplicated") else { return };
                self.checked.copied.add(packet.wire_bytes);
                self.put(copy, packet);
            }
            TraceEvent::Deferred { at_ps, slot, until_ps } => {
                let Some(packet) = self.due(at_ps, slot, "is delayed") else { return };
                let arrives = until_ps.max(at_ps);
                self.packets[slot as usize] = Some(InFlight { arrives, ..packet });
            }
            TraceEvent::Received { at_ps, slot, host, from } => {
                let Some(packet) = self.due(at_ps, slot, "is received") else { return };
                self.packets[slot as usize] = None;
                self.checked.received.add(packet.wire_bytes);
                let last = self.wiring.downlink(HostId(host)).0;
                if (packet.to, packet.from, packet.left) != (host, from, last) {
                    self.blame(format!("packet {slot} arrives at host {host}, the wrong host"));
                }
            }
            TraceEvent::Lost { at_ps, slot, .. } => self.on_lost(at_ps, slot),
            TraceEvent::RateChanged { port, bits_per_second, .. } => {
                self.rates[port as usize] = link_rate(Rate(bits_per_second));
                self.choose_cuts();
            }
        }
    }

    fn put(&mut self, slot: u32, packet: InFlight) {
        let index = slot as usize;
        if self.packets.len() <= index {
            self.packets.resize(index + 1, None);
        }
        if self.packets[index].replace(packet).is_some() {
            self.blame(format!("packet {slot} starts while it is in flight"));
        }
    }

    fn packet(&mut self, slot: u32) -> Option<InFlight> {
        let packet = self.packets.get(slot as usize).copied().flatten();
        if packet.is_none() {
            self.blame(format!("packet {slot} comes from nowhere"));
        }
        packet
    }

    /// The packet, which must be at the end of its link at time `at`.
    fn due(&mut self, at: u64, slot: u32, what: &str) -> Option<InFlight> {
        let mut packet = self.packet(slot)?;
        if packet.waits_at.is_some() || packet.arrives != at {
            let due = packet.arrives;
            self.blame(format!("packet {slot} {what} at {at} ps, due at {due}"));
            self.unqueue(slot, packet);
            packet.waits_at = None;
            self.packets[slot as usize] = Some(packet);
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
            self.blame(format!("port {port} reports {queued_bytes} B waiting, not {waiting}"));
        }
        self.owed = Some(self.owed(at, slot, (port, &packet)));
        let hops = packet.hops + 1;
        if hops > self.wiring.switches() {
            self.blame(format!("packet {slot} loops"));
        }
        let (waits_at, since, rest, begun) = (Some(port), at, packet.wire_bytes, false);
        self.packets[slot as usize] =
            Some(InFlight { hops, waits_at, since, rest, begun, ..packet });
        self.queues.entry((port, packet.priority)).or_default().push_back(slot);
        self.queued[port as usize] += u64::from(rest);
    }

    /// The event that must follow the arrival of a packet at a port.
    fn owed(&self, at: u64, slot: u32, (port, packet): (u32, &InFlight)) -> Owed {
        let waiting = self.queued[port as usize];
        let busy = self.busy_until[port as usize] > at;
        let (level, leaving, _) = self.serving[port as usize];
        let held = waiting + if busy { u64::from(leaving) } else { 0 };
        // A frame that need not wait may be longer than the buffer.
        let waits = busy || waiting > 0;
        let full = |limit: u64| held + u64::from(packet.wire_bytes) > limit;
        let drop = self.limit.map(full).filter(|full| waits || !full);
        Owed { slot, port, drop, interrupts: self.interrupts && busy && level < packet.priority }
    }

    /// A switch trimmed a waiting packet.
    fn on_trimmed(&mut self, slot: u32, left_bytes: u32) {
        let Some(packet) = self.packet(slot) else { return };
        let Some(port) = packet.waits_at.filter(|_| left_bytes <= packet.wire_bytes) else {
            return self
                .blame(format!("packet {slot} is trimmed to {left_bytes} B where it cannot be"));
        };
        let cut = u64::from(packet.wire_bytes - left_bytes);
        self.cut += cut;
        self.queued[port as usize] = self.queued[port as usize].saturating_sub(cut);
        let (wire_bytes, rest) = (left_bytes, left_bytes);
        // A switch that cuts through acts as soon as the headers are there, and the headers are all
        // that is left.
        let whole_at = packet.whole_at.min(packet.since);
        self.packets[slot as usize] = Some(InFlight { wire_bytes, rest, whole_at, ..packet });
    }

    /// A switch takes a waiting packet out of its queue and sends it back to its sender.
    fn on_returned(&mut self, at: u64, slot: u32) {
        let Some(packet) = self.packet(slot) else { return };
        if packet.waits_at.is_none() || packet.to == packet.from {
            self.blame(format!("packet {slot} is sent back where it cannot be"));
        }
        self.unqueue(slot, packet);
        let (to, hops, waits_at, arrives) = (packet.from, 0, None, at);
        self.packets[slot as usize] = Some(InFlight { to, hops, waits_at, arrives, ..packet });
    }

    fn on_interrupted(&mut self, at: u64, slot: u32, (port, left_bytes): (u32, u32)) {
        let Some(packet) = self.packet(slot) else { return };
        let free_at = self.busy_until[port as usize];
        let ends = packet.arrives.saturating_sub(self.wiring.ports()[port as usize].delay.0);
        let in_service = (packet.waits_at, packet.left, ends) == (None, port, free_at);
        if !self.interrupts || !in_service || free_at <= at {
            self.blame(format!("packet {slot} is interrupted, not in service at port {port}"));
        }
        let (.., rate) = self.serving[port as usize];
        let to_go = u128::from(free_at.saturating_sub(at)) * u128::from(rate);
        let left = to_go.div_ceil(8_000_000_000_000).min(u128::from(packet.rest));
        if u128::from(left_bytes) != left {
            self.blame(format!("packet {slot} has {left} B to go, not {left_bytes}"));
        }
        let (waits_at, rest, whole_at) = (Some(port), left_bytes, packet.since);
        self.packets[slot as usize] = Some(InFlight { waits_at, rest, whole_at, ..packet });
        self.queues.entry((port, packet.priority)).or_default().push_front(slot);
        self.queued[port as usize] += u64::from(rest);
        self.busy_until[port as usize] = at;
    }

    /// The first bit of a packet, or of the rest of an interrupted one, leaves a port of a switch.
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
        // A frame that arrived at this very moment may be too late to be served first.
        let overtaken = higher.filter_map(|(_, queue)| oldest(queue)).any(|since| since < at);
        let first = self.queues.get(&(port, packet.priority)).and_then(VecDeque::front);
        let strict = self.order == Order::Strict;
        if strict && (overtaken || first != Some(&slot)) || packet.since > at {
            self.blame(format!("packet {slot} leaves port {port} out of order"));
        }
        let idled = at > waited_since.max(self.busy_until[port as usize]);
        if idled && !self.pauses {
            self.blame(format!("port {port} idles while packet {slot} waits"));
        }
        self.unqueue(slot, packet);
        self.serve(at, slot, port);
    }

    /// Takes a packet out of its queue.
    fn unqueue(&mut self, slot: u32, packet: InFlight) {
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
        let queued = &mut self.queued[port as usize];
        *queued = queued.saturating_sub(u64::from(packet.rest));
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

    /// Puts a packet, or the rest of it, on the wire of a port.
    fn serve(&mut self, at: u64, slot: u32, port: u32) {
        if self.busy_until[port as usize] > at {
            self.blame(format!("port {port} sends packet {slot} while it sends another"));
        }
        let delay = self.wiring.ports()[port as usize].delay.0;
        let rate = self.rates[port as usize];
        let Some(Some(packet)) = self.packets.get_mut(slot as usize) else { return };
        let time = |bytes: u32| rate.serialisation(bytes).0;
        let end = at + time(packet.rest);
        let early = end < packet.whole_at;
        self.busy_until[port as usize] = end;
        self.serving[port as usize] = (packet.priority, packet.rest, rate.rate().0);
        let header = if self.order == Order::Combined { 0 } else { HEADER };
        let needed = if self.cuts[port as usize] { packet.rest.min(header) } else { packet.rest };
        packet.left = port;
        packet.arrives = at + time(needed) + delay;
        packet.whole_at = end + delay;
        packet.waits_at = None;
        packet.begun = true;
        if early {
            self.blame(format!("packet {slot} has left port {port} before it was there"));
        }
    }
}
