//! pHost: receivers hand out tokens, senders spend them (pHost, CoNEXT 2015).
//!
//! A source announces a message with an RTS and may send a bandwidth-delay product of it at once
//! (*free tokens*); each further packet needs a token, which names the packet (pHost §3.2). A
//! receiver sends one token per packet time of its link, to the message with the fewest packets
//! missing. A source sends for the message with the fewest packets left. A token that is not used
//! expires soon, so that a receiver notices if its source is busy elsewhere: once a pipe full of
//! tokens is unanswered, the message is downgraded for a while and others get the tokens (§3.3).
//! Packets that do not arrive get a second token later. Control packets have the highest of three
//! priorities, and no parameter adapts to the workload (§3.4). Sources differ on the use of the
//! other two priorities ([`PHostLevels`]).
//!
//! Periods are in packet times. If the paper's text gives round trips and its code gives packet
//! times, this module follows the text, with the round trip of the simulated network. Three rules
//! come from the authors' simulator (YAPS): a token counts as answered if it or a higher one was;
//! free tokens expire; tokens carry the receiver's count of missing packets. One rule is an
//! addition, because the paper assumes that control packets arrive: an RTS is repeated, with
//! backoff, until a packet about the message arrives.
//!
//! Left out: policies other than the fewest packets left; the option of YAPS by which a source
//! reports how busy it is.

mod receiver;
mod sender;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use homa_proto::{
    DropReason, Duration, Event, Rate, Receipt, Submit, SubmitError, Submitted, Time,
};

use super::exchange::{Courtesy, Exchange, Head};
use super::parts::{MessageTimers, Ordered, PermitPacer, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Transport, message_number};

use receiver::PHostReceiving;
use sender::PHostSending;
use slots::TokenSlots;

/// The parameters of a host. A packet time is that of a full packet on the host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PHostConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// Packets that a message may send without tokens (pHost §3.2: the bandwidth-delay product).
    pub free_tokens: u32,
    /// Whether longer messages get these free tokens, too (paper: yes; YAPS: no).
    pub free_for_long: bool,
    /// How many unanswered tokens downgrade a message (pHost §3.3: the bandwidth-delay product).
    pub window: u32,
    /// How long a downgrade lasts, in tenths of packet times (pHost §3.3: three round trips).
    pub downgrade: u32,
    /// How long a token is valid, in tenths of packet times (pHost §3.2: 1.5 packet times).
    pub expiry: u32,
    /// Time after the last token until missing packets get new tokens, in tenths of packet times
    /// (pHost §3.3: three round trips).
    pub resend: u32,
    /// The data that goes first.
    pub levels: PHostLevels,
    /// Receivers' token slots are those of YAPS.
    pub token_slots: bool,
}

/// The data that has the second of the three priorities; the rest has the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PHostLevels {
    /// Packets sent with free tokens (Homa §2.2 describes and simulated pHost this way).
    Blind,
    /// Messages short enough for their free tokens (YAPS).
    ShortMessages,
    /// None: all data has the same level.
    One,
}

impl PHostConfig {
    /// The length of `n` tenths of packet times.
    fn tenths(&self, n: u32) -> Duration {
        self.link.time_for(u64::from(self.wire.full()) * u64::from(n) / 10)
    }

    /// Free tokens of a message of `packets` packets.
    fn free(&self, packets: u32) -> u32 {
        if packets <= self.free_tokens {
            packets
        } else if self.free_for_long {
            self.free_tokens
        } else {
            0
        }
    }
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PHostPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: PHostBody,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PHostBody {
    /// Request to send: a message of `length` bytes starts.
    Rts {
        /// Bytes of the message.
        length: u32,
    },
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// The number of the token that it spends; free tokens have the lowest numbers.
        token: u32,
        /// Bytes of the message that free tokens permit.
        free: u32,
        /// It was sent before.
        resent: bool,
    },
    /// The source may send `packet`.
    Token {
        /// The packet's number.
        packet: u32,
        /// The number of this token within the message.
        token: u32,
        /// Packets that are missing at the receiver.
        left: u32,
        /// The end of the packet in the message.
        end: u32,
    },
    /// The whole message arrived.
    Ack,
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct PHost {
    config: PHostConfig,
    exchange: Exchange<PHostSending, PHostReceiving>,
    /// Messages with tokens, ordered by packets left.
    ready: Ordered,
    /// Messages that may get tokens, ordered by packets missing.
    granting: Ordered,
    /// Timers of sources, to repeat an RTS.
    rts_timers: MessageTimers,
    /// Timers of receivers, for downgraded messages and those that wait for missing packets.
    timers: MessageTimers,
    pacer: PermitPacer,
    slots: TokenSlots,
    control: VecDeque<PHostPacket>,
    refused: u64,
    /// Messages so far; of equal messages the older goes first.
    begun: u32,
}

impl PHost {
    /// A host in its `life`-th life.
    pub fn new(config: PHostConfig, life: u32) -> Self {
        Self {
            pacer: PermitPacer::new(config.link, config.wire.full()),
            slots: TokenSlots::new(config.token_slots),
            config,
            exchange: Exchange::new(life),
            ready: Ordered::default(),
            granting: Ordered::default(),
            rts_timers: MessageTimers::default(),
            timers: MessageTimers::default(),
            control: VecDeque::new(),
            refused: 0,
            begun: 0,
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

    fn say(&mut self, head: Head, body: PHostBody) {
        self.control.push_back(PHostPacket { head, body });
    }
}

impl Transport for PHost {
    type Packet = PHostPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, order) = (&self.config, self.begun);
        let start = |_: &Head, length| PHostSending::new(config, now, (length, order));
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

    fn receive(&mut self, now: Time, packet: &PHostPacket, arrival: PacketMeta) -> Receipt {
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            PHostBody::Rts { length } => self.on_rts(now, from, (head, length)),
            PHostBody::Data { piece, token, .. } => {
                return self.on_data(now, from, (head, piece), token);
            }
            PHostBody::Token { packet, token, left, .. } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_token(now, message, (packet, token, left));
                }
            }
            PHostBody::Ack => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.exchange.finish(message);
                }
            }
            PHostBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<PHostPacket> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        if let Some((head, what)) = self.exchange.courtesy() {
            return Some(PHostPacket { head, body: PHostBody::Courtesy(what) });
        }
        self.next_data(now)
    }

    fn label(&self, packet: &PHostPacket) -> Label {
        let wire = &self.config.wire;
        let (wire_bytes, priority) = match packet.body {
            PHostBody::Data { piece, token, .. } => {
                let packets = wire.packets(piece.total);
                let second = match self.config.levels {
                    PHostLevels::Blind => token < self.config.free(packets),
                    PHostLevels::ShortMessages => packets <= self.config.free_tokens,
                    PHostLevels::One => true,
                };
                (wire.data(piece.len), if second { 6 } else { 5 })
            }
            _ => (wire.control, 7),
        };
        Label { priority, flow: packet.head.serial, ..Label::new(packet.head.to, wire_bytes) }
    }

    fn content(packet: &PHostPacket) -> PacketContent {
        let message = message_number(packet.head.id);
        match packet.body {
            PHostBody::Data { piece, free, resent, .. } => {
                PacketContent::Data(piece.content(&packet.head, (free, resent)))
            }
            PHostBody::Token { end, .. } => PacketContent::Permit { message, offset: end },
            _ => PacketContent::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_rts(now);
        self.expire_waits(now);
        self.slots.expire(now);
        self.grant(now);
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.rts_timers.next(), self.timers.next(), self.exchange.deadline()];
        let runs = !self.granting.is_empty() && !self.slots.is_asleep() || self.slots.runs_idle();
        let pacer = runs.then(|| self.pacer.next());
        timers.into_iter().chain([pacer, self.slots.due()]).flatten().min()
    }

    fn has_packet(&self) -> bool {
        !(self.control.is_empty() && self.ready.is_empty()) || self.exchange.has_courtesy()
    }
}
