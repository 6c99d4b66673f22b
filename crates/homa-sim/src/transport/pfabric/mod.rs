//! pFabric's hosts: flows start at line rate, switches decide (pFabric, SIGCOMM 2013).
//!
//! Every packet carries the remaining size of its flow, and switches serve and drop packets by it.
//! Hosts do little more (pFabric §4.3, minimal rate control). Their window starts at the
//! bandwidth-delay product. Each packet is acknowledged cumulatively and individually. There is no
//! fast retransmit; the timeout is fixed at about three round trips, and after five timeouts in a
//! row a flow sends probes instead of packets. After a timeout the window is one packet and grows
//! as TCP's: by one per acknowledgement up to half the former window, then by one per window.
//!
//! The paper leaves out some rules that the authors' ns-2 code has: the rank counts bytes that are
//! not acknowledged rather than bytes that were never sent; acknowledgements have the best rank;
//! the window starts at the first packet without acknowledgement; and only cumulative progress
//! restarts the timer.
//!
//! Differences to that code: flows share their host's link by the same rank, and a flow is asked
//! for a packet when the link is free, so that no packet is dropped, and no timeout passes, in the
//! host's own queue; a probe carries no byte. Invariant: a message is listed as ready exactly if
//! its window has space for a packet that may be sent.

mod sender;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use homa_proto::{DropReason, Duration, Event, Receipt, Submit, SubmitError, Submitted, Time};

use crate::topology::HostId;

use super::exchange::{Courtesy, Exchange, Head, MessageLookup};
use super::parts::{MessageTimers, Ordered, PacketSet, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Transport};

use sender::PFabricSending;

/// The level of acknowledgements.
const CONTROL: u8 = 7;
/// The level of data and probes; switches order those by rank.
const DATA: u8 = 0;

/// The parameters of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PFabricConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// The initial window of a flow, in packets (pFabric §5.1: the bandwidth-delay product, 12).
    pub initial_window: u32,
    /// The largest window, in packets (the authors' code: one less than a port's queue holds).
    pub max_window: u32,
    /// The RTO (pFabric §5.1: 45 us, about three round trips).
    pub timeout: Duration,
    /// After this many timeouts in a row, a flow only sends probes (pFabric §4.3: 5).
    pub probe_after: u32,
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PFabricPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: PFabricBody,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PFabricBody {
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// Bytes of the message without acknowledgement: the rank.
        left: u32,
        /// It was sent before.
        resent: bool,
    },
    /// Asks whether the receiver is reachable.
    Probe {
        /// Bytes of the message.
        length: u32,
        /// The rank.
        left: u32,
    },
    /// All packets before `prefix` arrived, and so did `packet`.
    Ack {
        /// The first packet that is missing.
        prefix: u32,
        /// The packet that is acknowledged; `None` in reply to a probe.
        packet: Option<u32>,
    },
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct PFabric {
    config: PFabricConfig,
    exchange: Exchange<PFabricSending, PacketSet>,
    /// Messages that may send, ordered by bytes left.
    ready: Ordered,
    timers: MessageTimers,
    control: VecDeque<PFabricPacket>,
    refused: u64,
    /// Messages so far; of equal messages the older goes first.
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
            timers: MessageTimers::default(),
            control: VecDeque::new(),
            refused: 0,
            started: 0,
            paused: 0,
        }
    }

    /// Numbers of messages that this host is sending and receiving.
    pub fn in_flight(&self) -> (usize, usize) {
        self.exchange.in_flight()
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
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                self.acknowledge(head.to(from), (packets, packet));
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
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

    /// Whether the level is not paused.
    fn may_leave(&self, level: u8) -> bool {
        self.paused >> level & 1 == 0
    }

    /// The first acknowledgement or probe on a level that is not paused.
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
        let start = |_: &Head, length| PFabricSending::new(config, length, order);
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

    fn receive(&mut self, now: Time, packet: &PFabricPacket, arrival: PacketMeta) -> Receipt {
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

    fn content(packet: &PFabricPacket) -> PacketContent {
        match packet.body {
            PFabricBody::Data { piece, resent, .. } => {
                PacketContent::Data(piece.content(&packet.head, (piece.total, resent)))
            }
            _ => PacketContent::Other,
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
