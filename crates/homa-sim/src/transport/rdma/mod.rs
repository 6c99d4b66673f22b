//! RDMA over Ethernet (RoCEv2): queue pairs whose network card paces them, with go-back-N, under
//! one of several congestion controls. Rules and constants are those of the simulator of
//! HPCC's authors, `alibaba-edu/High-Precision-Congestion-Control`, revision 9f4be2a (`rdma-hw.cc`,
//! `rdma-queue-pair.cc`, `qbb-net-device.cc`).
//!
//! | file | contents |
//! |---|---|
//! | `sender.rs` | queue pairs: turns, paces, windows, go-back-N |
//! | `receiver.rs` | the next byte expected, ACKs and NACKs |
//! | `control.rs`, `controls.rs` | the interface of a congestion control, and the choice of one |
//! | `telemetry.rs` | what packets collect on their way (INT) |
//! | `hpcc.rs`, `dcqcn.rs`, `timely.rs`, `dctcp.rs`, `powertcp.rs`, `swift.rs` | the algorithms |
//!
//! Each message is a queue pair and starts at the rate of its link. A pair sends if its window is
//! open and the time of its last packet at its rate has passed; pairs that may send take turns.
//! Every packet in order is acknowledged, and an acknowledgement returns what the packet collected.
//! A gap is answered by a NACK, and the sender goes back to it. Control packets leave a host first.
//! Levels that priority flow control pauses wait here, not in the network card, so that a packet
//! counts as sent, and has its time, when it leaves.
//!
//! A timeout is inferred, because the authors' network loses nothing: without it a lost last packet
//! stops a message for ever. So is the answer to a copy. Left out: several network cards per host,
//! and messages that share a queue pair.

pub mod control;
mod controls;
mod dcqcn;
mod dctcp;
mod hpcc;
mod powertcp;
mod receiver;
mod sender;
mod swift;
mod telemetry;
#[cfg(test)]
mod tests;
mod timely;

use std::collections::VecDeque;

use homa_proto::{DropReason, Duration, Event, Receipt, Submit, SubmitError, Submitted, Time};

use super::exchange::{Courtesy, Exchange, Head, Ref};
use super::parts::{MessageTimers, Piece, WireFormat};
use super::{Label, LeavingHop, PacketContent, PacketMeta, Timeouts, Transport};

use receiver::RdmaReceiving;
use sender::QueuePair;

pub use controls::ControlConfig;
pub use dcqcn::{Dcqcn, DcqcnConfig};
pub use dctcp::{DctcpRate, DctcpRateConfig};
pub use hpcc::{Hpcc, HpccConfig};
pub use powertcp::{PowerConfig, PowerTcp, ThetaPowerTcp};
pub use swift::{Swift, SwiftConfig};
pub use telemetry::{ArrivalStack, Carried, IntRecord, IntStack, SentAcross, SentAt};
pub use timely::{Timely, TimelyConfig};

/// The parameters of a host, without those of its congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// Rate of the host's link, bit/s: the highest rate of a queue pair, and its first.
    pub link: u64,
    /// The lowest rate of a queue pair, bit/s.
    pub least: u64,
    /// The window at the rate of the link, message bytes; it follows the rate. `None`: there is no
    /// window.
    pub window: Option<u32>,
    /// Time until a receiver sends a NACK for the same gap again.
    pub nack_every: Duration,
    /// Time without an answer after which a sender goes back to the first byte in flight.
    pub timeout: Duration,
    /// ACKs travel at a level above data.
    pub acks_first: bool,
    /// Unit of what switches record, see [`IntRecord`].
    pub int_unit: u32,
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: RdmaBody,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaBody {
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// It was sent before.
        resent: bool,
        /// What it collected so far.
        collected: Carried,
    },
    /// An answer to a packet.
    Answer(RdmaAnswer),
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// An ACK or a NACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaAnswer {
    /// The next byte that the receiver expects.
    pub expected: u32,
    /// The packet came after a gap.
    pub is_nack: bool,
    /// A switch marked the packet.
    pub marked: bool,
    /// What the packet collected; `None` if the answer is not to be measured.
    pub collected: Option<Carried>,
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct Rdma {
    config: RdmaConfig,
    control: ControlConfig,
    exchange: Exchange<QueuePair, RdmaReceiving>,
    /// Pairs that may send now, in turn.
    turns: VecDeque<Ref>,
    /// When pairs may send again.
    paces: MessageTimers,
    timers: MessageTimers,
    /// Events of congestion controls.
    alarms: MessageTimers,
    answers: VecDeque<RdmaPacket>,
    /// Levels that may not leave, as bits.
    paused: u8,
    timeouts: Timeouts,
    refused: u64,
}

/// The level of data.
const DATA_LEVEL: u8 = 0;

impl Rdma {
    /// A host in its `life`-th life.
    pub fn new((config, control): (RdmaConfig, ControlConfig), life: u32) -> Self {
        Self {
            config,
            control,
            exchange: Exchange::new(life),
            turns: VecDeque::new(),
            paces: MessageTimers::default(),
            timers: MessageTimers::default(),
            alarms: MessageTimers::default(),
            answers: VecDeque::new(),
            paused: 0,
            timeouts: Timeouts::default(),
            refused: 0,
        }
    }

    /// Numbers of messages that this host is sending and receiving.
    pub fn in_flight(&self) -> (usize, usize) {
        self.exchange.in_flight()
    }

    /// The level of packets without bytes of a message.
    fn control_level(&self) -> u8 {
        if self.config.acks_first { 7 } else { DATA_LEVEL }
    }

    fn may_send(&self, level: u8) -> bool {
        self.paused >> level & 1 == 0
    }

    fn refuse(&mut self, reason: DropReason) -> Receipt {
        self.refused += 1;
        Receipt::Dropped(reason)
    }
}

impl Transport for Rdma {
    type Packet = RdmaPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, control) = (&self.config, &self.control);
        let start = |_: &Head, _| QueuePair::new(config, control);
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.list(now, message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &RdmaPacket, arrival: PacketMeta) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            RdmaBody::Data { piece, collected, .. } => {
                return self.on_data(now, (head, piece), collected, arrival);
            }
            RdmaBody::Answer(answer) => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_answer(now, message, &answer);
                }
            }
            RdmaBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<RdmaPacket> {
        let courtesy = |(head, what)| RdmaPacket { head, body: RdmaBody::Courtesy(what) };
        if self.may_send(self.control_level()) {
            let control = self.answers.pop_front();
            let control = control.or_else(|| self.exchange.courtesy().map(courtesy));
            if control.is_some() {
                return control;
            }
        }
        if self.may_send(DATA_LEVEL) { self.next_data(now) } else { None }
    }

    fn label(&self, packet: &RdmaPacket) -> Label {
        let config = &self.config;
        let (wire_bytes, priority, ect) = match packet.body {
            RdmaBody::Data { piece, .. } => (config.wire.data(piece.len), DATA_LEVEL, true),
            _ => (config.wire.control, self.control_level(), false),
        };
        let flow = packet.head.serial;
        Label { priority, flow, ect, ..Label::new(packet.head.to, wire_bytes) }
    }

    const IS_STAMPED: bool = true;

    fn stamp(packet: &mut RdmaPacket, hop: &LeavingHop) {
        if let RdmaBody::Data { collected, .. } = &mut packet.body {
            collected.stamp(hop);
        }
    }

    /// Rates and windows, not permits, hold a sender back, so all of a message counts as permitted.
    fn content(packet: &RdmaPacket) -> PacketContent {
        match packet.body {
            RdmaBody::Data { piece, resent, .. } => {
                PacketContent::Data(piece.content(&packet.head, (piece.total, resent)))
            }
            _ => PacketContent::Other,
        }
    }

    fn echoes_congestion(packet: &RdmaPacket) -> bool {
        matches!(packet.body, RdmaBody::Answer(RdmaAnswer { marked: true, .. }))
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
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.paces.next(), self.timers.next(), self.alarms.next()];
        timers.into_iter().chain([self.exchange.deadline()]).flatten().min()
    }

    fn pause(&mut self, _: Time, levels: u8) {
        self.paused = levels;
    }

    fn has_packet(&self) -> bool {
        let control = !self.answers.is_empty() || self.exchange.has_courtesy();
        control && self.may_send(self.control_level())
            || !self.turns.is_empty() && self.may_send(DATA_LEVEL)
    }
}
