//! pFabric's hosts: flows start at line rate, switches decide (pFabric, SIGCOMM 2013).
//!
//! Every packet carries how much of its flow is left, and switches serve and drop by it. Hosts do
//! little beside (pFabric §4.3, minimal rate control): a window that begins at the
//! bandwidth-delay product, an acknowledgement per packet with the sum of all before it and the
//! packet itself, no fast retransmit, a fixed timeout of about three round trips, and after five
//! of those in a row probes instead of packets. After a timeout the window is one packet and grows
//! as TCP's: by one per acknowledgement up to half the window before, then by one per window.
//!
//! Facts that the paper leaves out and the authors' ns-2 code has: the rank counts bytes that are
//! not acknowledged, not those that were never sent; acknowledgements have the best rank; the
//! window is counted from the first packet without acknowledgement; only progress of the sum
//! restarts the timer.
//!
//! Differences to that code: flows share their host's link by the same rank and are asked for a
//! packet when the link is free, so that nothing is dropped, and no timeout passes, in the host's
//! own queue; a probe has no byte. Invariant: a message is listed as ready exactly when its window
//! has room for a packet that may be sent.

mod sender;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use homa_proto::{DropReason, Duration, Event, Receipt, Submit, SubmitError, Submitted, Time};

use crate::topology::HostId;

use super::exchange::{Courtesy, Exchange, Found, Head};
use super::parts::{Ordered, PacketSet, Piece, Timers, WireFormat};
use super::{Arrival, Content, Label, Transport};

use sender::Sending;

/// The level of acknowledgements.
const CONTROL: u8 = 7;
/// That of data and probes, among which ranks decide.
const DATA: u8 = 0;

/// The constants of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PFabricConfig {
    /// Packets on the wire.
    pub wire: WireFormat,
    /// The window that a flow begins with, packets (pFabric §5.1: the bandwidth-delay product, 12).
    pub initial_window: u32,
    /// The largest window, packets (the authors' code: one less than a port's queue holds).
    pub max_window: u32,
    /// Until a packet is taken for lost (pFabric §5.1: 45 us, about three round trips).
    pub timeout: Duration,
    /// Timeouts in a row from which on flows only probe (pFabric §4.3: 5).
    pub probe_after: u32,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PFabricPacket {
    /// The message.
    pub head: Head,
    /// What it says.
    pub body: PFabricBody,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PFabricBody {
    /// A piece of the message.
    Data {
        /// Which.
        piece: Piece,
        /// Bytes of the message that are not acknowledged: the rank.
        left: u32,
        /// It was sent before.
        resent: bool,
    },
    /// Anybody there?
    Probe {
        /// Bytes of the message.
        length: u32,
        /// The rank.
        left: u32,
    },
    /// All packets before `prefix` are here, and so is `packet`.
    Ack {
        /// The first packet that is missing.
        prefix: u32,
        /// The packet that is acknowledged; a probe's names none.
        packet: Option<u32>,
    },
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host. See the module's description.
#[derive(Debug)]
pub struct PFabric {
    config: PFabricConfig,
    exchange: Exchange<Sending, PacketSet>,
    /// Messages that may send, by bytes left.
    ready: Ordered,
    timers: Timers,
    control: VecDeque<PFabricPacket>,
    refused: u64,
    /// Messages so far: the older of equals goes first.
    started: u32,
    /// Levels that may not leave (priority flow control), as bits.
    paused: u8,
}

impl PFabric {
    /// A host in its `life`-th life.
    pub fn new(config: PFabricConfig, life: u32) -> Self {
        Self {
            config,
            exchange: Exchange::new(life),
            ready: Ordered::default(),
            timers: Timers::default(),
            control: VecDeque::new(),
            refused: 0,
            started: 0,
            paused: 0,
        }
    }

    /// Messages under way from here and to here.
    pub fn under_way(&self) -> (usize, usize) {
        self.exchange.under_way()
    }

    /// Data or a probe arrives; `packet` is the number of the data.
    fn on_message(
        &mut self,
        now: Time,
        from: HostId,
        (head, length, packet): (&Head, u32, Option<u32>),
    ) -> Receipt {
        let packets = self.config.wire.packets(length);
        let start = || PacketSet::new(packets);
        let message = match self.exchange.arrived(now, from, (head, length), start) {
            Found::Open(message) => message,
            Found::Done => {
                self.acknowledge(head.to(from), (packets, packet));
                return self.refuse(DropReason::Duplicate);
            }
            Found::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let fresh = packet.is_some_and(|packet| packet < packets && incoming.state.insert(packet));
        let (prefix, whole) = (incoming.state.prefix(), incoming.state.count() == packets);
        self.acknowledge(head.to(from), (prefix, packet));
        match packet {
            Some(packet) if fresh => {
                let span = self.config.wire.span(packet, length);
                self.exchange.place(message, span, whole)
            }
            Some(_) => self.refuse(DropReason::Duplicate),
            None => Receipt::Consumed,
        }
    }

    /// The level is not paused.
    fn may_leave(&self, level: u8) -> bool {
        self.paused >> level & 1 == 0
    }

    /// The first acknowledgement or probe of a level that may leave.
    fn next_control(&mut self) -> Option<PFabricPacket> {
        if self.paused == 0 {
            return self.control.pop_front();
        }
        let may_leave = |packet| self.may_leave(self.label(packet).priority);
        let at = self.control.iter().position(may_leave)?;
        self.control.remove(at)
    }

    fn refuse(&mut self, reason: DropReason) -> Receipt {
        self.refused += 1;
        Receipt::Dropped(reason)
    }

    fn acknowledge(&mut self, head: Head, (prefix, packet): (u32, Option<u32>)) {
        self.control.push_back(PFabricPacket { head, body: PFabricBody::Ack { prefix, packet } });
    }
}

impl Transport for PFabric {
    type Packet = PFabricPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, order) = (&self.config, self.started);
        let start = |_: &Head, length| Sending::new(config, length, order);
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.started = self.started.wrapping_add(1);
            self.refresh(message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &PFabricPacket, arrival: Arrival) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            PFabricBody::Data { piece, .. } => {
                return self.on_message(now, from, (head, piece.total, Some(piece.packet)));
            }
            PFabricBody::Probe { length, .. } => {
                return self.on_message(now, from, (head, length, None));
            }
            PFabricBody::Ack { prefix, packet } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_ack(now, message, (prefix, packet));
                }
            }
            PFabricBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<PFabricPacket> {
        if let Some(control) = self.next_control() {
            return Some(control);
        }
        if self.may_leave(CONTROL)
            && let Some((head, what)) = self.exchange.courtesy()
        {
            return Some(PFabricPacket { head, body: PFabricBody::Courtesy(what) });
        }
        if self.may_leave(DATA) { self.next_data(now) } else { None }
    }

    fn label(&self, packet: &PFabricPacket) -> Label {
        let (wire_bytes, priority, rank) = match packet.body {
            PFabricBody::Data { piece, left, .. } => (self.config.wire.data(piece.len), DATA, left),
            PFabricBody::Probe { left, .. } => (self.config.wire.control, DATA, left),
            _ => (self.config.wire.control, CONTROL, 0),
        };
        Label {
            priority,
            rank: u64::from(rank),
            flow: packet.head.serial,
            ..Label::new(packet.head.to, wire_bytes)
        }
    }

    fn content(packet: &PFabricPacket) -> Content {
        match packet.body {
            PFabricBody::Data { piece, resent, .. } => {
                Content::Data(piece.content(&packet.head, (piece.total, resent)))
            }
            _ => Content::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn pause(&mut self, _: Time, levels: u8) {
        self.paused = levels;
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_timers(now);
    }

    fn deadline(&self) -> Option<Time> {
        self.timers.next().into_iter().chain(self.exchange.deadline()).min()
    }

    fn has_packet(&self) -> bool {
        !(self.control.is_empty() && self.ready.is_empty()) || self.exchange.has_courtesy()
    }
}
