//! SIRD: receivers schedule their links, and senders tell them how congested they are (NSDI 2025).
//!
//! A receiver's link has one owner, so the receiver hands out credit for it: one credit per packet
//! time, to the message with the fewest bytes missing, and never more than a budget of 1.5 BDP at
//! all senders together (`credit.rs`). Links that several receivers share are managed by feedback
//! instead. A sender that holds more credit than a threshold and has several messages to send marks
//! its data (csn), switches mark it on congested links among themselves (ECN), and for each sender
//! two control loops turn the marks into a limit on its credit (`bucket.rs`). So little credit lies
//! idle at busy senders, and a small budget keeps the receiver's link full.
//!
//! Messages of at most 1 BDP take credit for themselves and are sent at once. Senders request
//! credit for longer messages. Credit belongs to the receiver: any message to it may spend it. A
//! sender gives half of its link to the receiver of its shortest message and divides the rest
//! equally (`turns.rs`). Control packets and unsolicited data use a higher priority level than
//! other data, but the design works with one level.
//!
//! Rules and constants follow the authors' simulator (`epfl-dcsl/SIRD-Simulator`, revision f2be06a,
//! `r2p2-cc-hybrid.cc`). It has neither losses nor acknowledgements: every message is a request,
//! and its response says that it arrived. Inferred here: a receiver acknowledges a whole message; a
//! sender that neither sent nor heard anything about a message for `resend` reports its progress;
//! the receiver then gives credit for what is missing, and counts credit as lost if the sender was
//! silent for that long or restarted.
//!
//! Limit: lost credit counts as out until its sender is silent, so a sender of many short messages
//! may run out of credit for its long ones.
//!
//! Left out: the rule that an unannounced message is sent before shorter ones to the same receiver,
//! and the experimental variants of the simulator (HPCC's rule in place of csn, resets).

mod bucket;
mod credit;
mod peers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::VecDeque;

use homa_proto::{
    DropReason, Duration, Event, Rate, Receipt, Submit, SubmitError, Submitted, Time,
};

use super::exchange::{Courtesy, Exchange, Head};
use super::parts::{MessageTimers, Ordered, Peers, PermitPacer, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Transport, message_number};

use bucket::{AimdRule, Marked};
use credit::CreditBudget;
use peers::{CreditedSender, Sink};
use receiver::SirdReceiving;
use sender::SirdSending;
use turns::Turns;

/// The parameters of a host. Credit is counted in wire bytes of data packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SirdConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// The bandwidth-delay product of a host.
    pub bdp: u32,
    /// Credit that a receiver may have at all senders together (B).
    pub credit: u32,
    /// Credit that it may have at one sender (SBmax).
    pub sender_credit: u32,
    /// A sender that holds more credit than this marks its data (SThr).
    pub csn_threshold: u32,
    /// Longer messages ask before they send (UnschT).
    pub unsolicited: u64,
    /// Weight of the latest period in the marked fraction (g).
    pub gain: f64,
    /// The least credit of one sender, however often its host marks.
    pub host_floor: u32,
    /// The least credit of one sender, however often switches mark.
    pub network_floor: u32,
    /// Which message gets the next credit.
    pub order: SirdOrder,
    /// Thousandths of a sender's link for the receiver of its shortest message.
    pub shortest_share: u32,
    /// What travels at the higher of two priority levels.
    pub first: SirdFirst,
    /// How long a sender waits for an answer, and a receiver for its credit (inferred).
    pub resend: Duration,
}

/// Which message a receiver grants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SirdOrder {
    /// The one with the fewest bytes missing.
    Srpt,
    /// The one that got its last credit first.
    Fair,
}

/// What travels at the higher of two priority levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SirdFirst {
    /// Control packets and unsolicited data.
    Unsolicited,
    /// Control packets.
    Control,
    /// Nothing: all packets have the same level.
    Nothing,
}

impl SirdConfig {
    fn rule(&self) -> AimdRule {
        AimdRule { full: self.wire.full(), most: self.sender_credit, gain: self.gain }
    }
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SirdPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: SirdBody,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SirdBody {
    /// A message of `length` bytes waits for credit, or for an answer.
    Request {
        /// Bytes of the message.
        length: u32,
        /// Packets of it for which its sender took credit.
        unsolicited: u32,
        /// Packets of it that were sent at least once.
        sent: u32,
    },
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// Packets of the message for which its sender took credit.
        unsolicited: u32,
        /// The sender holds more credit than its threshold.
        csn: bool,
        /// It was sent before.
        resent: bool,
    },
    /// Credit for any message to this receiver.
    Credit {
        /// Wire bytes.
        bytes: u32,
        /// A packet of the message that was lost and should be sent again.
        again: Option<u32>,
        /// The end of the message's packets that have had credit.
        end: u32,
    },
    /// The whole message arrived.
    Ack,
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct Sird {
    config: SirdConfig,
    exchange: Exchange<SirdSending, SirdReceiving>,
    sinks: Peers<Sink>,
    /// Receivers for which a packet may be sent, shortest message first.
    ready: Ordered<u32>,
    /// The same in turn; it may have others that may not send now.
    round: VecDeque<u32>,
    turns: Turns,
    /// Credit of all receivers that this host holds.
    held: u64,
    /// Messages with packets to send.
    outbound: u32,
    /// Timers of messages that are being sent.
    timers: MessageTimers,
    sources: Peers<CreditedSender>,
    /// Senders that may get credit now.
    granting: Ordered<u32>,
    /// Credit at all senders.
    budget: CreditBudget,
    pacer: PermitPacer,
    /// A credit may be sent once the pacer allows it.
    waits: bool,
    /// Credits so far.
    issued: u32,
    /// Timers of senders, named by their index.
    silences: MessageTimers,
    control: VecDeque<SirdPacket>,
    refused: u64,
    /// Messages so far; of equal messages the older goes first.
    begun: u32,
}

impl Sird {
    /// A host in its `life`-th life.
    pub fn new(config: SirdConfig, life: u32) -> Self {
        Self {
            exchange: Exchange::new(life),
            sinks: Peers::default(),
            ready: Ordered::default(),
            round: VecDeque::new(),
            turns: Turns::new(config.shortest_share),
            held: 0,
            outbound: 0,
            timers: MessageTimers::default(),
            sources: Peers::default(),
            granting: Ordered::default(),
            budget: CreditBudget { out: 0, limit: config.credit },
            pacer: PermitPacer::new(config.link, config.wire.full()),
            waits: false,
            issued: 0,
            silences: MessageTimers::default(),
            control: VecDeque::new(),
            refused: 0,
            begun: 0,
            config,
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

    fn say(&mut self, head: Head, body: SirdBody) {
        self.control.push_back(SirdPacket { head, body });
    }
}

impl Transport for Sird {
    type Packet = SirdPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, sinks, order) = (&self.config, &mut self.sinks, self.begun);
        let start = |head: &Head, length| {
            let index = sinks.index(head.to, Sink::default);
            let held = sinks.get(index).map_or(0, |sink| sink.credit);
            SirdSending::new(config, length, (index, held, order))
        };
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.begun = self.begun.wrapping_add(1);
            self.start(now, message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &SirdPacket, arrival: PacketMeta) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            SirdBody::Request { length, unsolicited, sent } => {
                self.on_request(now, from, ((head, length, unsolicited), sent));
            }
            SirdBody::Data { piece, unsolicited, csn, .. } => {
                let marked = Marked { csn, ecn: arrival.ce };
                return self.on_data(now, from, ((head, piece, unsolicited), marked));
            }
            SirdBody::Credit { bytes, again, .. } => {
                self.on_credit(now, from, (head, bytes, again));
            }
            SirdBody::Ack => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_ack(message);
                }
            }
            SirdBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<SirdPacket> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        if let Some((head, what)) = self.exchange.courtesy() {
            return Some(SirdPacket { head, body: SirdBody::Courtesy(what) });
        }
        self.next_data(now)
    }

    fn label(&self, packet: &SirdPacket) -> Label {
        let wire = &self.config.wire;
        let (wire_bytes, ect, first) = match packet.body {
            SirdBody::Data { piece, unsolicited, .. } => {
                let first = self.config.first == SirdFirst::Unsolicited;
                (wire.data(piece.len), true, first && piece.packet < unsolicited)
            }
            _ => (wire.control, false, self.config.first != SirdFirst::Nothing),
        };
        let (priority, flow) = (if first { 7 } else { 0 }, packet.head.serial);
        Label { priority, flow, ect, ..Label::new(packet.head.to, wire_bytes) }
    }

    fn content(packet: &SirdPacket) -> PacketContent {
        let message = message_number(packet.head.id);
        match packet.body {
            SirdBody::Data { piece, unsolicited, resent, .. } => {
                // All packets before this one are full; if there is none, this one is.
                let full = piece.offset.checked_div(piece.packet).unwrap_or(piece.len);
                let taken = unsolicited.saturating_mul(full).min(piece.total);
                PacketContent::Data(piece.content(&packet.head, (taken, resent)))
            }
            SirdBody::Credit { end, .. } if end > 0 => {
                PacketContent::Permit { message, offset: end }
            }
            _ => PacketContent::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_requests(now);
        self.expire_silences(now);
        self.grant(now);
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.timers.next(), self.silences.next(), self.exchange.deadline()];
        let pacer = self.waits.then(|| self.pacer.next());
        timers.into_iter().chain([pacer]).flatten().min()
    }

    fn has_packet(&self) -> bool {
        !(self.control.is_empty() && self.ready.is_empty()) || self.exchange.has_courtesy()
    }
}
