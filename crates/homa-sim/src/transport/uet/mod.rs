//! Ultra Ethernet's transport (UET 1.0): spraying over many paths, trimming switches, and a window
//! of the sender (NSCC), credit of the receiver (RCCC), or both. Rules and constants are those of
//! the authors' simulator, `ultraethernet/uet-htsim`, revision 40ccb05.
//!
//! A sender begins with 1.5 bandwidth-delay products. Every packet carries an entropy value that
//! chooses its path (`entropy.rs`), and may arrive in any order. Receivers acknowledge selectively
//! (`receiver.rs`) and name packets that switches trimmed. Marks and delays move the window
//! (`window.rs`); a receiver pulls at the pace of its link (`credit.rs`), or of the core if that is
//! oversubscribed (`core_rate.rs`); bytes in flight and packets to be sent again are in `sent.rs`.
//!
//! A NIC sends one packet at a time. Messages take turns, and while data waits, ten control packets
//! go for each data packet. Control packets take the path of the data that they answer.
//!
//! Each message has a window and paths of its own, as each flow has there. A late packet keeps its
//! entropy value at the sender, so that a timeout punishes the path it took; there the sender does
//! not know it. A request to send (RTS) has no packet number here, because a pull answers it. Left
//! out: connections that several messages share, ordered delivery, requests to send after a timeout
//! with a full window, and NICs with several ports.

mod core_rate;
mod credit;
mod entropy;
mod receiver;
mod sender;
mod sent;
#[cfg(test)]
mod tests;
mod window;

use std::collections::VecDeque;

use homa_proto::{DropReason, Duration, Event, Receipt, Submit, SubmitError, Submitted, Time};
use homa_workload::rng::Rng;

use crate::topology::HostId;

use super::exchange::{Courtesy, Exchange, Head, Ref};
use super::parts::{MessageTimers, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Timeouts, Transport};

use credit::CreditQueue;
use receiver::UetReceiving;
use sender::UetSending;

pub use credit::RcccConfig;
pub use entropy::UetPaths;
pub use window::NsccConfig;

/// Which end decides how much is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UetControl {
    /// The sender, by its window.
    Nscc,
    /// The receiver, by credit.
    Rccc,
    /// Both: a packet needs room in the window, and credit.
    Both,
}

impl UetControl {
    /// Whether windows hold senders back.
    pub const fn has_windows(self) -> bool {
        !matches!(self, Self::Rccc)
    }

    /// Whether senders need credit.
    pub const fn has_credit(self) -> bool {
        !matches!(self, Self::Nscc)
    }
}

/// The parameters of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UetConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// What holds a sender back.
    pub control: UetControl,
    /// The sender's window.
    pub nscc: NsccConfig,
    /// The receiver's credit.
    pub rccc: RcccConfig,
    /// How paths are chosen.
    pub paths: UetPaths,
    /// Entropy values of a flow, a power of two of at most 2^15.
    pub evs: u16,
    /// Wire bytes after which a receiver acknowledges.
    pub ack_every: u32,
    /// Time until a packet without an answer is sent again.
    pub timeout: Duration,
    /// Seeds the entropy values.
    pub seed: u64,
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UetPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: UetBody,
    /// Its entropy value.
    pub ev: u16,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UetBody {
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// It asks for an acknowledgement (AR).
        asks: bool,
        /// It was sent before.
        resent: bool,
        /// Quanta of credit that the sender wants in all; 0 without credit.
        target: u32,
    },
    /// Packets arrived.
    Ack {
        /// Which.
        ack: UetAck,
        /// The packet that caused it was sent again.
        resent: bool,
        /// Entropy value of that packet.
        came_by: u16,
    },
    /// Only a packet's header arrived.
    Nack {
        /// The packet's number.
        packet: u32,
        /// Its entropy value.
        came_by: u16,
        /// The last switch trimmed it.
        last_hop: bool,
        /// Another switch had marked it.
        marked: bool,
    },
    /// The receiver has granted as many quanta of the message so far.
    Pull {
        /// 256 bytes each.
        quanta: u32,
    },
    /// A request to send (RTS), because a sender that lacks credit had a timeout.
    Rts {
        /// Bytes of the message.
        length: u32,
        /// As in data.
        target: u32,
    },
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UetAck {
    /// The packet that caused it.
    pub packet: u32,
    /// All packets before this one arrived.
    pub prefix: u32,
    /// The first packet of the bitmap.
    pub from: u32,
    /// The packets from there on that arrived, lowest bit first.
    pub bitmap: u64,
    /// Wire bytes of the message that arrived so far, without those of copies.
    pub received: u64,
    /// A switch marked the packet that caused it.
    pub marked: bool,
}

/// Control packets that leave for each data packet while both wait.
const CONTROL_PER_DATA: u32 = 10;

/// A host; see the module's description.
#[derive(Debug)]
pub struct Uet {
    config: UetConfig,
    exchange: Exchange<UetSending, UetReceiving>,
    /// Messages that may send, in turn.
    turns: VecDeque<Ref>,
    /// Timeouts of senders.
    timers: MessageTimers,
    /// Messages to be pulled.
    pulls: CreditQueue,
    control: VecDeque<UetPacket>,
    /// Control packets in a row that left while data waited.
    run: u32,
    rng: Rng,
    timeouts: Timeouts,
    refused: u64,
}

impl Uet {
    /// A host in its `life`-th life.
    pub fn new(config: UetConfig, host: HostId, life: u32) -> Self {
        let own = u64::from(host.0) << 16 ^ u64::from(life) << 48;
        Self {
            config,
            exchange: Exchange::new(life),
            turns: VecDeque::new(),
            timers: MessageTimers::default(),
            pulls: CreditQueue::new(&config.rccc, Rng::stream(config.seed ^ own, "pulls")),
            control: VecDeque::new(),
            run: 0,
            rng: Rng::stream(config.seed ^ own, "entropy"),
            timeouts: Timeouts::default(),
            refused: 0,
        }
    }

    /// Numbers of messages that this host is sending and receiving.
    pub fn in_flight(&self) -> (usize, usize) {
        self.exchange.in_flight()
    }

    fn refuse(&mut self, reason: DropReason) -> Receipt {
        self.refused += 1;
        Receipt::Dropped(reason)
    }

    /// Queues a control packet. It takes the path of the packet that it answers, if it answers one.
    fn say(&mut self, head: Head, body: UetBody) {
        let ev = match body {
            UetBody::Ack { came_by, .. } | UetBody::Nack { came_by, .. } => came_by,
            _ => 0,
        };
        self.control.push_back(UetPacket { head, body, ev });
    }

    fn next_control(&mut self) -> Option<UetPacket> {
        let courtesy = |(head, what)| UetPacket { head, body: UetBody::Courtesy(what), ev: 0 };
        self.control.pop_front().or_else(|| self.exchange.courtesy().map(courtesy))
    }
}

impl Transport for Uet {
    type Packet = UetPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, rng) = (&self.config, &mut self.rng);
        let start = |_: &Head, length| UetSending::new(config, rng, (now, length));
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.list(message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &UetPacket, arrival: PacketMeta) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            UetBody::Data { piece, resent, target, .. } if arrival.trimmed => {
                self.on_header(now, (head, piece), (resent, packet.ev, target), arrival);
            }
            UetBody::Data { piece, asks, resent, target } => {
                let flags = (asks, resent, packet.ev);
                return self.on_data(now, (head, piece), (flags, target), arrival);
            }
            UetBody::Ack { ack, resent, came_by } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_ack(now, message, (ack, resent, came_by));
                }
            }
            UetBody::Nack { packet, came_by, last_hop, marked } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_nack(now, message, (packet, came_by), (last_hop, marked));
                }
            }
            UetBody::Pull { quanta } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_pull(now, message, quanta);
                }
            }
            UetBody::Rts { length, target } => {
                self.on_rts(now, from, (head, length), (packet.ev, target));
            }
            UetBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<UetPacket> {
        let waits = !self.control.is_empty() || self.exchange.has_courtesy();
        if waits && !self.turns.is_empty() {
            self.run += 1;
            if self.run > CONTROL_PER_DATA {
                self.run = 0;
                if let Some(data) = self.next_data(now) {
                    return Some(data);
                }
            }
        }
        match waits {
            true => self.next_control(),
            false => self.next_data(now),
        }
    }

    fn label(&self, packet: &UetPacket) -> Label {
        let wire = &self.config.wire;
        let (wire_bytes, priority, ect) = match packet.body {
            UetBody::Data { piece, .. } => (wire.data(piece.len), 0, true),
            _ => (wire.control, 7, false),
        };
        let flow = u32::from(packet.ev);
        Label { priority, flow, ect, ..Label::new(packet.head.to, wire_bytes) }
    }

    /// Windows hold a sender back, or credit that is no certain place in the message, so all of it
    /// counts as permitted.
    fn content(packet: &UetPacket) -> PacketContent {
        match packet.body {
            UetBody::Data { piece, resent, .. } => {
                PacketContent::Data(piece.content(&packet.head, (piece.total, resent)))
            }
            _ => PacketContent::Other,
        }
    }

    fn echoes_congestion(packet: &UetPacket) -> bool {
        matches!(packet.body, UetBody::Ack { ack: UetAck { marked: true, .. }, .. })
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_timers(now);
        self.pull(now);
    }

    fn deadline(&self) -> Option<Time> {
        let due = [self.timers.next(), self.pulls.next(), self.exchange.deadline()];
        due.into_iter().flatten().min()
    }

    fn has_packet(&self) -> bool {
        !self.control.is_empty() || !self.turns.is_empty() || self.exchange.has_courtesy()
    }
}
