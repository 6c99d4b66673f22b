//! The time of one-way messages, divided by cause. One probe follows every packet.
//!
//! The latency of a message consists of the time until its completing packet's first bit left, and
//! that packet's path through the fabric. The first part divides into the message's own packets on
//! the wire, times when all permitted bytes had been sent (waiting for a grant), and the rest,
//! which is waiting behind other messages. The second part divides into waits at the fabric's ports
//! and everything else. If the completing packet was a retransmission, the time from the end of the
//! message's first transmission on is recovery. The parts therefore sum to the latency exactly, in
//! picoseconds; a message for which they do not is counted.
//!
//! Waits divide further as in Homa's Figure 11. While a frame of lower priority in transmission has
//! bytes left, the wait is preemption lag; all other waiting is queueing, including that of an
//! interrupted frame. At the sender, a packet counts as lower if its message has more bytes left.
//! lower.

use homa_proto::{Event, MessageKind, Rate, Receipt, Submit, SubmitError, Submitted};

use crate::engine::{AtPort, PortBacklog, Probe};
use crate::time::{LinkRate, SimTime};
use crate::topology::{HostId, PortId, Tier};
use crate::transport::Numbered;
use crate::transport::{DataContent, Label, PacketContent, Transport, message_number};

/// The places at which a packet waits on a path of two tiers. With three tiers, all ports up count
/// together, and so do all ports down except the last. Ports between the switches of a graph count
/// as up.
pub const HOPS: [&str; 4] = ["nic", "tor_up", "aggr_down", "tor_down"];

/// Index of a port's tier in [`HOPS`].
const fn hop(tier: Tier) -> usize {
    match tier {
        Tier::HostUp => 0,
        Tier::TorUp | Tier::AggrUp | Tier::Fabric => 1,
        Tier::CoreDown | Tier::AggrDown => 2,
        Tier::TorDown => 3,
    }
}

/// A wait in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// For the rest of a frame of lower priority.
    pub lag: u64,
    /// For any other reason.
    pub queueing: u64,
}

/// The parts of a delivered message's latency, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journey {
    /// Message bytes.
    pub bytes: u32,
    /// Time from submission to delivery.
    pub latency: u64,
    /// Waiting behind other messages at the sender.
    pub sender_queue: u64,
    /// Waiting for a grant, with all permitted bytes sent.
    pub grant_wait: u64,
    /// Serialisation and fixed delays.
    pub wire: u64,
    /// Waiting at the fabric's ports.
    pub fabric_queue: u64,
    /// Time until a lost packet was retransmitted.
    pub recovery: u64,
    /// Waits of the completing packet, by [`HOPS`].
    pub waits: [Wait; HOPS.len()],
}

/// A message in transmission.
#[derive(Clone, Copy, Debug)]
struct SentMessage {
    submitted: SimTime,
    bytes: u32,
    measured: bool,
    /// Rest in ps of the packet on the wire at submission, if its message had more bytes left.
    lag: u64,
    /// Bytes that the sender may send.
    permitted: u32,
    /// Time that the message's packets spent on the wire so far, in ps.
    own: u64,
    grant_wait: u64,
    blocked: Option<SimTime>,
    /// When its last byte had been sent for the first time.
    sent_whole: Option<SimTime>,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    /// The parts known so far.
    journey: Journey,
    submitted: SimTime,
    sent: SimTime,
    measured: bool,
    /// Start of its wait at a port.
    arrived: SimTime,
    /// Rest in ps of the frame in service at the port where it waits, if of lower priority.
    residual: u64,
}

/// The probe that records journeys.
#[derive(Debug)]
pub struct Journeys {
    open: bool,
    /// Rates by port; those of hosts come first.
    rates: Vec<LinkRate>,
    outgoing: Vec<Numbered<SentMessage>>,
    /// By host: end of the packet on its wire, and the bytes its message has left.
    on_wire: Vec<(SimTime, u32)>,
    flights: Vec<Flight>,
    /// By host: the packet received last.
    last: Vec<Flight>,
    /// Size in bytes of the largest message whose journey is kept.
    kept: u32,
    /// Journeys of the measured messages up to that size, in the order of delivery.
    pub done: Vec<Journey>,
    /// Number of messages whose parts did not sum to their latency.
    pub unbalanced: u64,
}

impl Journeys {
    /// A closed probe, which keeps the journeys of messages up to `kept` bytes. `rates` covers all
    /// ports; those of hosts come first.
    pub fn new(hosts: u32, rates: Vec<LinkRate>, kept: u32) -> Self {
        Self {
            open: false,
            rates,
            outgoing: (0..hosts).map(|_| Numbered::default()).collect(),
            on_wire: vec![(SimTime::ZERO, 0); hosts as usize],
            flights: Vec::new(),
            last: vec![Flight::default(); hosts as usize],
            kept,
            done: Vec::new(),
            unbalanced: 0,
        }
    }

    /// Messages that start from now on are measured.
    pub fn open(&mut self) {
        self.open = true;
    }

    /// Messages that start from now on are not measured.
    pub fn close(&mut self) {
        self.open = false;
    }

    fn flight(&mut self, slot: u32) -> &mut Flight {
        let slot = slot as usize;
        if self.flights.len() <= slot {
            self.flights.resize(slot + 1, Flight::default());
        }
        &mut self.flights[slot]
    }

    fn on_data(&mut self, now: SimTime, host: HostId, data: &DataContent, label: &Label) -> Flight {
        let serialisation = self.rates[host.0 as usize].serialisation(label.wire_bytes);
        let end = now + serialisation;
        self.on_wire[host.0 as usize] = (end, data.total - data.offset);
        let Some(message) = self.outgoing[host.0 as usize].get_mut(data.message) else {
            return Flight::default();
        };
        let since = now.since(message.submitted).0;
        let mut journey = Journey { bytes: message.bytes, ..Journey::default() };
        let first_sent = message.sent_whole.filter(|_| data.resent);
        journey.recovery = first_sent.map_or(0, |whole| now.since(whole).0);
        journey.grant_wait = message.grant_wait;
        journey.wire = message.own;
        let known = journey.recovery + journey.grant_wait + journey.wire;
        journey.sender_queue = since.saturating_sub(known);
        let lag = message.lag.min(journey.sender_queue);
        journey.waits[0] = Wait { lag, queueing: journey.sender_queue - lag };
        let flight = Flight {
            journey,
            submitted: message.submitted,
            sent: now,
            measured: message.measured,
            ..Flight::default()
        };
        if !data.resent {
            let sent = data.offset + data.len;
            message.own += serialisation.0;
            message.permitted = message.permitted.max(data.permitted);
            if sent >= message.bytes {
                message.sent_whole = Some(end);
            } else if sent >= message.permitted {
                message.blocked = Some(end);
            }
        }
        flight
    }

    fn on_permit(&mut self, now: SimTime, sender: HostId, (id, offset): (u32, u32)) {
        let Some(message) = self.outgoing[sender.0 as usize].get_mut(id) else { return };
        if offset > message.permitted {
            message.permitted = offset;
            if let Some(since) = message.blocked.take() {
                message.grant_wait += now.since(since).0;
            }
        }
    }

    /// A frame that waited at a port enters service.
    fn on_wait_over(&mut self, at: SimTime, frame: &AtPort) {
        let flight = self.flight(frame.slot);
        let wait = at.since(flight.arrived).0;
        flight.journey.fabric_queue += wait;
        let lag = wait.min(flight.residual);
        // The wait at the NIC was recorded when the packet left its transport.
        if frame.tier != Tier::HostUp {
            let at = &mut flight.journey.waits[hop(frame.tier)];
            at.lag += lag;
            at.queueing += wait - lag;
        }
    }

    /// The packet received last at `host` completed a message.
    fn on_delivered(&mut self, now: SimTime, host: HostId, (from, id): (u32, u32)) {
        self.outgoing[from as usize].take(id);
        let flight = self.last[host.0 as usize];
        if !flight.measured {
            return;
        }
        let mut journey = flight.journey;
        journey.latency = now.since(flight.submitted).0;
        let way = now.since(flight.sent).0;
        journey.wire += way.saturating_sub(journey.fabric_queue);
        let sum = journey.sender_queue
            + journey.grant_wait
            + journey.wire
            + journey.fabric_queue
            + journey.recovery;
        self.unbalanced += u64::from(sum != journey.latency);
        if journey.bytes <= self.kept {
            self.done.push(journey);
        }
    }
}

impl<T: Transport> Probe<T> for Journeys {
    fn submitted(
        &mut self,
        now: SimTime,
        host: HostId,
        what: &Submit,
        result: &Result<Submitted, SubmitError>,
    ) {
        let &Submit::OneWay { length, .. } = what else { return };
        if result.is_err() {
            return;
        }
        let (ends, left) = self.on_wire[host.0 as usize];
        let lag = if left > length { ends.since(now).0 } else { 0 };
        self.outgoing[host.0 as usize].push(SentMessage {
            submitted: now,
            bytes: length,
            measured: self.open,
            lag,
            permitted: 0,
            own: 0,
            grant_wait: 0,
            blocked: None,
            sent_whole: None,
        });
    }

    fn event(&mut self, now: SimTime, host: HostId, event: &Event) {
        if let Event::Delivered(message) = event
            && message.kind == MessageKind::OneWay
        {
            self.on_delivered(now, host, (message.peer.0, message_number(message.id.client())));
        }
    }

    fn transmitted(
        &mut self,
        now: SimTime,
        host: HostId,
        slot: u32,
        packet: &T::Packet,
        label: &Label,
    ) {
        let flight = if let PacketContent::Data(data) = T::content(packet) {
            self.on_data(now, host, &data, label)
        } else {
            let end = now + self.rates[host.0 as usize].serialisation(label.wire_bytes);
            self.on_wire[host.0 as usize] = (end, 0);
            Flight::default()
        };
        *self.flight(slot) = flight;
    }

    fn enqueued(&mut self, now: SimTime, frame: &AtPort, backlog: &PortBacklog) {
        let rate = self.rates[frame.port.0 as usize];
        let lower = backlog.in_service_priority < frame.priority;
        let residual = if lower { rate.serialisation(backlog.residual_bytes).0 } else { 0 };
        let flight = self.flight(frame.slot);
        flight.arrived = now;
        flight.residual = residual;
    }

    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        self.on_wait_over(at, frame);
    }

    fn interrupted(&mut self, now: SimTime, frame: &AtPort) {
        let flight = self.flight(frame.slot);
        flight.arrived = now;
        flight.residual = 0;
    }

    fn resumed(&mut self, now: SimTime, frame: &AtPort) {
        self.on_wait_over(now, frame);
    }

    fn rate_changed(&mut self, _: SimTime, port: PortId, rate: Rate) {
        self.rates[port.0 as usize] = LinkRate::new(rate);
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        _from: HostId,
        slot: u32,
        packet: &T::Packet,
        _receipt: &Receipt,
    ) {
        match T::content(packet) {
            PacketContent::Data(_) => self.last[host.0 as usize] = *self.flight(slot),
            PacketContent::Permit { message, offset } => {
                self.on_permit(now, host, (message, offset))
            }
            PacketContent::Other => {}
        }
    }
}
