//! NDP: switches trim packets instead of dropping them, and receivers pull (NDP, SIGCOMM 2017).
//!
//! A sender pushes a window at line rate without asking (NDP §3.2). If a switch's queue is full, it
//! forwards only the header, so the receiver learns about every packet that was sent. It answers
//! data with an ACK and a header with a NACK, immediately. For each it adds a PULL to one queue
//! that all senders share; the queue is drained at the rate of its link, round-robin among messages
//! (§3.2). A PULL permits one packet: first one that a NACK named, otherwise new data. PULLs count
//! cumulatively, so that a later one covers those that were lost or late. After a message's last
//! packet was seen, only packets that were trimmed are pulled.
//!
//! Senders choose the path of every packet from a random permutation of all paths, which is renewed
//! after each round, and avoid paths with unusually many NACKs (`paths.rs`, §3.1.1). If a switch
//! has no space even for a header, the header returns to its sender (§3.2.4) and waits for a PULL,
//! unless none is expected. A timeout finds packets that are lost nevertheless.
//!
//! A host's packets leave in the order in which they were permitted, control packets first. If a
//! PULL overtakes the NACK that caused it, the PULL is kept until the NACK arrives; in the authors'
//! code it is lost, and only the timeout helps. Left out: zero-RTT set-up (there are no connections
//! here), priorities among pulls, multicast.

mod paths;
mod pulls;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use homa_proto::{
    DropReason, Duration, Event, Rate, Receipt, Submit, SubmitError, Submitted, Time,
};

use crate::topology::HostId;

use super::exchange::{Courtesy, Exchange, Head};
use super::parts::{MessageTimers, PermitPacer, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Transport, message_number};

use paths::NdpPaths;
use pulls::PullQueue;
use receiver::NdpReceiving;
use sender::{NdpSending, Turn};

/// The parameters of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// Packets that a message pushes without a PULL (NDP §6.1: 30 of 9000 bytes; the authors' code
    /// 15, their examples 23).
    pub initial_window: u32,
    /// Time until a packet without an answer is sent again (the authors' code).
    pub timeout: Duration,
    /// Number of paths to distant hosts; switches use as much of a path's number as they need.
    pub paths: u32,
    /// Whether to avoid paths with unusually many NACKs.
    pub avoid_bad_paths: bool,
    /// Packets that are sent again leave before new ones of all messages, and the packet for a
    /// permit is chosen when the permit arrives (htsim).
    pub again_first: bool,
    /// Seeds the permutations.
    pub seed: u64,
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: NdpBody,
    /// Its path.
    pub path: u16,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpBody {
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// End of the first window in the message.
        pushed: u32,
        /// It was sent before.
        resent: bool,
    },
    /// The packet arrived.
    Ack {
        /// The packet's number.
        packet: u32,
        /// All packets before this one arrived, too.
        prefix: u32,
        /// The path that the packet took.
        came_by: u16,
    },
    /// Only the packet's header arrived.
    Nack {
        /// The packet's number.
        packet: u32,
        /// The path that the packet took.
        came_by: u16,
    },
    /// `count` packets of the message may be sent in addition to those of its first window.
    Pull {
        /// Packets pulled so far.
        count: u32,
        /// Their end in the message, if all of them are new.
        end: u32,
    },
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct Ndp {
    config: NdpConfig,
    exchange: Exchange<NdpSending, NdpReceiving>,
    /// Permits to send a packet, in order.
    turns: VecDeque<Turn>,
    /// Permits to send a packet again, which go before the others; empty without `again_first`.
    again: VecDeque<Turn>,
    /// Timeouts of senders.
    timers: MessageTimers,
    pulls: PullQueue,
    pacer: PermitPacer,
    paths: NdpPaths,
    control: VecDeque<NdpPacket>,
    refused: u64,
}

impl NdpConfig {
    /// The end of the bytes of a message of `length` bytes that `pulls` PULLs permit.
    fn permitted(&self, pulls: u32, length: u32) -> u32 {
        let packets = u64::from(self.initial_window) + u64::from(pulls);
        (packets * u64::from(self.wire.payload)).min(u64::from(length)) as u32
    }
}

impl Ndp {
    /// A host in its `life`-th life.
    pub fn new(config: NdpConfig, host: HostId, life: u32) -> Self {
        Self {
            pacer: PermitPacer::new(config.link, config.wire.full()),
            paths: NdpPaths::new(&config, host, life),
            config,
            exchange: Exchange::new(life),
            turns: VecDeque::new(),
            again: VecDeque::new(),
            timers: MessageTimers::default(),
            pulls: PullQueue::default(),
            control: VecDeque::new(),
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

    fn say(&mut self, head: Head, body: NdpBody) {
        let path = self.paths.next(head.to);
        self.control.push_back(NdpPacket { head, body, path });
    }
}

impl Transport for Ndp {
    type Packet = NdpPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let config = &self.config;
        let start = |_: &Head, length| NdpSending::new(config, length);
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.push_window(message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &NdpPacket, arrival: PacketMeta) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            NdpBody::Data { piece, .. } if arrival.returned => {
                self.on_returned(now, head, (piece.packet, packet.path));
            }
            // Switches return only data.
            _ if arrival.returned => {}
            NdpBody::Data { piece, .. } if arrival.trimmed => {
                self.on_header(now, from, (head, piece), packet.path);
            }
            NdpBody::Data { piece, .. } => {
                return self.on_data(now, from, (head, piece), packet.path);
            }
            NdpBody::Ack { packet, prefix, came_by } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.paths.acknowledged(from, came_by);
                    self.on_ack(now, message, (packet, prefix));
                }
            }
            NdpBody::Nack { packet, came_by } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.paths.refused(from, came_by, 1);
                    self.on_nack(now, message, packet);
                }
            }
            NdpBody::Pull { count, .. } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_pull(message, count);
                }
            }
            NdpBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<NdpPacket> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        if let Some((head, what)) = self.exchange.courtesy() {
            let path = self.paths.next(head.to);
            return Some(NdpPacket { head, body: NdpBody::Courtesy(what), path });
        }
        self.next_data(now)
    }

    fn label(&self, packet: &NdpPacket) -> Label {
        let wire = &self.config.wire;
        let (wire_bytes, priority) = match packet.body {
            NdpBody::Data { piece, .. } => (wire.data(piece.len), 0),
            _ => (wire.control, 7),
        };
        Label { priority, flow: u32::from(packet.path), ..Label::new(packet.head.to, wire_bytes) }
    }

    fn content(packet: &NdpPacket) -> PacketContent {
        let message = message_number(packet.head.id);
        match packet.body {
            NdpBody::Data { piece, pushed, resent } => {
                PacketContent::Data(piece.content(&packet.head, (pushed, resent)))
            }
            NdpBody::Pull { end, .. } => PacketContent::Permit { message, offset: end },
            _ => PacketContent::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_timers(now);
        self.pull(now);
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.timers.next(), self.exchange.deadline()];
        let pacer = (!self.pulls.is_empty()).then(|| self.pacer.next());
        timers.into_iter().chain([pacer]).flatten().min()
    }

    fn has_packet(&self) -> bool {
        let permits = [&self.again, &self.turns].iter().any(|turns| !turns.is_empty());
        !self.control.is_empty() || permits || self.exchange.has_courtesy()
    }
}
