//! pHost: receivers hand out tokens, senders spend them (pHost, CoNEXT 2015).
//!
//! A source announces a message with an RTS and may send a bandwidth-delay product of it at once
//! (*free tokens*); every further packet needs a token, which names the packet (pHost §3.2). A
//! receiver sends one token per packet time of its link, to the message with the fewest packets
//! missing; a source sends for the message with the fewest packets left, and a token it does not
//! use soon expires, so that a receiver whose source is busy elsewhere notices: when as many tokens
//! as fill the pipe went unanswered, the message is downgraded for a while and others get the
//! tokens (§3.3). Packets that do not arrive get a second token later. Control packets have the
//! highest of three priorities, and nothing is adjusted (§3.4); of the other two sources differ
//! ([`PHostLevels`]).
//!
//! Periods are in packet times. Where the paper's text speaks of round trips and its code of packet
//! times, the text holds, with the round trip of the network at hand. From the authors' simulator
//! (YAPS) come: which token counts as answered (all up to the highest that was), when free tokens
//! expire, that tokens carry the receiver's count of what is left. Ours, since the paper assumes
//! that control packets arrive: an RTS is repeated, ever more seldom, until anything is heard of
//! the message.
//!
//! Left out: other policies than the fewest packets left; the option of YAPS by which a source
//! reports how busy it is.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use homa_proto::{
    DropReason, Duration, Event, Rate, Receipt, Submit, SubmitError, Submitted, Time,
};

use super::exchange::{Courtesy, Exchange, Head};
use super::parts::{Ordered, Pacer, Piece, Timers, WireFormat};
use super::{Arrival, Content, Label, Transport, message_number};

use receiver::Receiving;
use sender::Sending;

/// The constants of a host. Packet times are those of a full packet on the host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PHostConfig {
    /// Packets on the wire.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// Packets that a message may send without tokens (pHost §3.2: the bandwidth-delay product).
    pub free_tokens: u32,
    /// Whether messages that need more than those get them, too (the paper; in YAPS they do not).
    pub free_for_long: bool,
    /// Unanswered tokens at which a message is downgraded (pHost §3.3: the same).
    pub window: u32,
    /// How long it is, tenths of packet times (pHost §3.3: three round trips).
    pub downgrade: u32,
    /// How long a token is good for, tenths of packet times (pHost §3.2: 1.5 packet times).
    pub expiry: u32,
    /// After the last token, until those of packets that are missing are sent again, tenths of
    /// packet times (pHost §3.3: three round trips).
    pub resend: u32,
    /// Which data goes first.
    pub levels: PHostLevels,
}

/// Which data has the second of the three priorities; the rest has the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PHostLevels {
    /// What was sent without waiting for a token (Homa §2.2 describes pHost so, and simulated it).
    Blind,
    /// Messages that free tokens suffice for (YAPS).
    ShortMessages,
    /// Nothing: all data has one level.
    One,
}

impl PHostConfig {
    /// A number of tenths of packet times.
    fn tenths(&self, n: u32) -> Duration {
        self.link.time_for(u64::from(self.wire.full()) * u64::from(n) / 10)
    }

    /// Free tokens of a message of so many packets.
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

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PHostPacket {
    /// The message.
    pub head: Head,
    /// What it says.
    pub body: PHostBody,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PHostBody {
    /// Request to send: a message of `length` bytes begins.
    Rts {
        /// Bytes of the message.
        length: u32,
    },
    /// A piece of the message.
    Data {
        /// Which.
        piece: Piece,
        /// The number of the token that let it go; free tokens are the first.
        token: u32,
        /// Bytes that needed none but free tokens.
        free: u32,
        /// It was sent before.
        resent: bool,
    },
    /// The source may send `packet`.
    Token {
        /// Which.
        packet: u32,
        /// The number of this token among the message's.
        token: u32,
        /// Packets that are missing at the receiver.
        left: u32,
        /// Where the packet ends in the message.
        end: u32,
    },
    /// The message is here.
    Ack,
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host. See the module's description.
#[derive(Debug)]
pub struct PHost {
    config: PHostConfig,
    exchange: Exchange<Sending, Receiving>,
    /// Messages with tokens, by packets left.
    ready: Ordered,
    /// Messages that may be given tokens, by packets missing.
    granting: Ordered,
    /// Of sources: RTS again. Of receivers: downgraded or waiting for what is missing.
    rts_timers: Timers,
    timers: Timers,
    pacer: Pacer,
    control: VecDeque<PHostPacket>,
    refused: u64,
    /// Messages so far: the older of equals goes first.
    begun: u32,
}

impl PHost {
    /// A host in its `life`-th life.
    pub fn new(config: PHostConfig, life: u32) -> Self {
        Self {
            pacer: Pacer::new(config.link, config.wire.full()),
            config,
            exchange: Exchange::new(life),
            ready: Ordered::default(),
            granting: Ordered::default(),
            rts_timers: Timers::default(),
            timers: Timers::default(),
            control: VecDeque::new(),
            refused: 0,
            begun: 0,
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

    fn say(&mut self, head: Head, body: PHostBody) {
        self.control.push_back(PHostPacket { head, body });
    }
}

impl Transport for PHost {
    type Packet = PHostPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let (config, order) = (&self.config, self.begun);
        let start = |_: &Head, length| Sending::new(config, now, (length, order));
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

    fn receive(&mut self, now: Time, packet: &PHostPacket, arrival: Arrival) -> Receipt {
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

    fn content(packet: &PHostPacket) -> Content {
        let message = message_number(packet.head.id);
        match packet.body {
            PHostBody::Data { piece, free, resent, .. } => {
                Content::Data(piece.content(&packet.head, (free, resent)))
            }
            PHostBody::Token { end, .. } => Content::Permit { message, offset: end },
            _ => Content::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.expire_rts(now);
        self.expire_waits(now);
        self.grant(now);
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.rts_timers.next(), self.timers.next(), self.exchange.deadline()];
        let pacer = (!self.granting.is_empty()).then(|| self.pacer.next());
        timers.into_iter().chain([pacer]).flatten().min()
    }

    fn has_packet(&self) -> bool {
        !(self.control.is_empty() && self.ready.is_empty()) || self.exchange.has_courtesy()
    }
}
