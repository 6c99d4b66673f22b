//! NDP: switches cut payloads off instead of dropping packets, receivers pull (NDP, SIGCOMM 2017).
//!
//! A sender pushes a window at line rate without asking (NDP §3.2). A switch whose queue is full
//! forwards a packet's header alone, so the receiver knows of everything that was sent: it answers
//! data with an ACK and a header with a NACK, at once, and for each puts a PULL into one queue that
//! all senders share, which is emptied at the rate of its link, in turn among messages (§3.2). A
//! PULL lets its sender transmit one packet: first what a NACK named, then new data. PULLs count
//! cumulatively, so that a later one stands for those that were lost or late. When a message's last
//! packet was seen, only headers that were not made up for are pulled.
//!
//! Senders choose the path of every packet from a permutation of all paths, permuted again after
//! each round, and avoid those with outstandingly many NACKs (`paths.rs`, §3.1.1). Headers for
//! which switches had no room come back (§3.2.4) and wait for a PULL unless none is to come; what
//! even they lose is found by a timeout.
//!
//! A host's packets leave in the order in which they were let go, control packets first. A PULL
//! that takes a shorter way than the NACK it was sent for is kept until that arrives; in the
//! authors' code it is lost, and only the timeout helps. Left out: zero-RTT set-up (there are no
//! connections here), priorities among pulls, multicast.

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
use super::parts::{Pacer, Piece, Timers, WireFormat};
use super::{Arrival, Content, Label, Transport, message_number};

use paths::Paths;
use pulls::PullQueue;
use receiver::Receiving;
use sender::{Sending, Turn};

/// The constants of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpConfig {
    /// Packets on the wire.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// Packets that a message pushes without a PULL (NDP §6.1: 30 of 9000 bytes; the authors' code
    /// 15, their examples 23).
    pub initial_window: u32,
    /// Until a packet of which nothing was heard is sent again (the authors' code).
    pub timeout: Duration,
    /// Paths to distant hosts; switches take what they need of a path's number.
    pub paths: u32,
    /// Avoid paths with outstandingly many NACKs.
    pub avoid_bad_paths: bool,
    /// Seeds the permutations.
    pub seed: u64,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpPacket {
    /// The message.
    pub head: Head,
    /// What it says.
    pub body: NdpBody,
    /// The path it takes.
    pub path: u16,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpBody {
    /// A piece of the message.
    Data {
        /// Which.
        piece: Piece,
        /// Bytes of the first window.
        pushed: u32,
        /// It was sent before.
        resent: bool,
    },
    /// The packet is here.
    Ack {
        /// Which.
        packet: u32,
        /// So are all before this one.
        prefix: u32,
        /// The path that it came by.
        came_by: u16,
    },
    /// Only the packet's header is here.
    Nack {
        /// Which.
        packet: u32,
        /// The path that it came by.
        came_by: u16,
    },
    /// So many packets of the message, besides those of its first window, may be sent.
    Pull {
        /// How many so far.
        count: u32,
        /// Where they end in the message, if all are new.
        end: u32,
    },
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host. See the module's description.
#[derive(Debug)]
pub struct Ndp {
    config: NdpConfig,
    exchange: Exchange<Sending, Receiving>,
    /// Leaves to send a packet, in their order.
    turns: VecDeque<Turn>,
    /// Timeouts of senders.
    timers: Timers,
    pulls: PullQueue,
    pacer: Pacer,
    paths: Paths,
    control: VecDeque<NdpPacket>,
    refused: u64,
}

impl NdpConfig {
    /// Where a message of `length` bytes may be sent up to with so many PULLs.
    fn permitted(&self, pulls: u32, length: u32) -> u32 {
        let packets = u64::from(self.initial_window) + u64::from(pulls);
        (packets * u64::from(self.wire.payload)).min(u64::from(length)) as u32
    }
}

impl Ndp {
    /// A host in its `life`-th life.
    pub fn new(config: NdpConfig, host: HostId, life: u32) -> Self {
        Self {
            pacer: Pacer::new(config.link, config.wire.full()),
            paths: Paths::new(&config, host, life),
            config,
            exchange: Exchange::new(life),
            turns: VecDeque::new(),
            timers: Timers::default(),
            pulls: PullQueue::default(),
            control: VecDeque::new(),
            refused: 0,
        }
    }

    /// Messages under way from here and to here.
    pub fn under_way(&self) -> (usize, usize) {
        self.exchange.under_way()
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
        let start = |_: &Head, length| Sending::new(config, length);
        let (submitted, message) = self.exchange.submit(now, what, start)?;
        if let Some(message) = message {
            self.push_window(message);
        }
        Ok(submitted)
    }

    fn event(&mut self) -> Option<Event> {
        self.exchange.event()
    }

    fn receive(&mut self, now: Time, packet: &NdpPacket, arrival: Arrival) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            NdpBody::Data { piece, .. } if arrival.returned => {
                self.on_returned(now, head, (piece.packet, packet.path));
            }
            // A switch returns data only.
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

    fn content(packet: &NdpPacket) -> Content {
        let message = message_number(packet.head.id);
        match packet.body {
            NdpBody::Data { piece, pushed, resent } => {
                Content::Data(piece.content(&packet.head, (pushed, resent)))
            }
            NdpBody::Pull { end, .. } => Content::Permit { message, offset: end },
            _ => Content::Other,
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
        !(self.control.is_empty() && self.turns.is_empty()) || self.exchange.has_courtesy()
    }
}
