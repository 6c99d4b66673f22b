//! dcPIM: senders and receivers are matched before long messages are sent (SIGCOMM 2022).
//!
//! Messages of at most a bandwidth-delay product are sent at once. For longer ones time is divided
//! into epochs of a few rounds (`clock.rs`). In each round receivers request channels, senders
//! grant some of them, and receivers accept (`matching.rs`), as parallel iterative matching (PIM)
//! does in switches. During the next epoch, while the following matching is under way, a receiver
//! sends tokens for its matched channels at their share of its link, each for one packet
//! (`channels.rs`), and the sender spends them (`tokens.rs`). Channels that neither end uses in the
//! epoch under way begin at once (*prompt*). Packets that do not arrive get a second token a
//! bandwidth-delay product after the last one; those of short messages, too, which then take part
//! in the matching. The level of a packet is that of its message's size.
//!
//! Rules and constants follow the authors' simulator (`Terabit-Ethernet/dcPIM`, revision 2abda17,
//! `pimhost.cpp`, `pimflow.cpp`), in which all hosts have the same clock. It has no losses of
//! control packets and no path that is slower than a round. Inferred here: a sender repeats its
//! notification, with backoff, until a packet about the message arrives; a receiver no longer asks
//! a sender that was silent for a while; control packets that come too late are ignored, as there,
//! but if all of a message do for several epochs, they count.
//!
//! Left out: data phases of another length than the matching, and matchings in which deadlines
//! decide one side.

mod channels;
mod clock;
mod matching;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::{BTreeSet, VecDeque};

use homa_proto::{
    DropReason, Duration, Event, Rate, Receipt, Submit, SubmitError, Submitted, Time,
};
use homa_workload::rng::Rng;

use crate::time::LinkRate;
use crate::topology::HostId;

use super::exchange::{Courtesy, Exchange, Head};
use super::parts::{MessageTimers, Peers, Piece, WireFormat};
use super::{Label, PacketContent, PacketMeta, Transport, message_number};

use channels::ChannelPair;
use clock::RoundClock;
pub use matching::Channels;
use matching::{BidOrder, TakenChannels};
use receiver::{DcpimReceiving, GrantedChannels, MatchedSource};
use sender::{ChannelRequest, DcpimSending};
use tokens::TokenQueue;

/// The parameters of a host. A packet time is that of a full packet on the host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpimConfig {
    /// Wire format of packets.
    pub wire: WireFormat,
    /// The host's link.
    pub link: Rate,
    /// Messages of at most this many packets are sent without a match.
    pub short: u32,
    /// Rounds of a matching (r); at least 1.
    pub rounds: u32,
    /// Channels of a host in either role (k); at least 1.
    pub channels: u32,
    /// Length of a round; at least 2 ns.
    pub round: Duration,
    /// In as many rounds the shortest message goes first; the others are random.
    pub sorted_rounds: u32,
    /// Tokens of a message that may be unanswered if all channels are matched with its sender.
    pub window: u32,
    /// Time after the last token until one more may be sent beyond the window.
    pub window_timeout: Duration,
    /// Time after the last token until missing packets get tokens again.
    pub resend: Duration,
    /// How long tokens are valid after the end of their data phase.
    pub grace: Duration,
    /// How long a sender waits for a packet about a message before it announces it again
    /// (inferred).
    pub notify: Duration,
    /// Seeds the random rounds.
    pub seed: u64,
}

impl DcpimConfig {
    /// Picoseconds of a packet time.
    fn packet_time(&self) -> u64 {
        LinkRate::new(self.link).serialisation(self.wire.full()).0
    }

    /// Packets of a channel in a data phase.
    fn carries(&self) -> u32 {
        let epoch = self.clock().length().0 * 1_000;
        let packet = self.packet_time() * u64::from(self.channels);
        (epoch / packet.max(1)).clamp(1, u64::from(u32::MAX)) as u32
    }

    fn clock(&self) -> RoundClock {
        RoundClock { round: self.round, rounds: self.rounds }
    }

    /// Packets that come too late count after this many in a row.
    fn patience(&self) -> u32 {
        PATIENT_EPOCHS * self.rounds
    }
}

/// Epochs after which packets that come too late count (inferred).
const PATIENT_EPOCHS: u32 = 4;

/// Whether a control packet is ignored because it came too late. `late` counts those in a row.
fn is_too_late(late: &mut u32, in_time: bool, patience: u32) -> bool {
    *late = if in_time { 0 } else { late.saturating_add(1) };
    (1..=patience).contains(late)
}

/// A packet of this transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpimPacket {
    /// The message.
    pub head: Head,
    /// Its content.
    pub body: DcpimBody,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DcpimBody {
    /// A message of `length` bytes starts.
    Notify {
        /// Bytes of the message.
        length: u32,
    },
    /// The receiver asks for channels.
    Request {
        /// The round.
        round: u64,
        /// Packets that are missing.
        left: u32,
        /// Channels that the message could use.
        channels: Channels,
    },
    /// The sender offers channels.
    Grant {
        /// The round.
        round: u64,
        /// Packets that are missing, as in the request.
        left: u32,
        /// Channels.
        channels: Channels,
    },
    /// The receiver takes channels.
    Accept {
        /// The round of the grant.
        round: u64,
        /// Channels.
        channels: Channels,
    },
    /// The sender takes channels back, because it has granted more than it has.
    Return {
        /// The round of the grant.
        round: u64,
        /// Channels.
        channels: Channels,
    },
    /// The sender may send `packet`.
    Token {
        /// The packet's number.
        packet: u32,
        /// The number of this token within the message.
        number: u32,
        /// Packets that are missing.
        left: u32,
        /// The end of the packet in the message.
        end: u32,
        /// The epoch at whose end it expires.
        epoch: u64,
        /// The level of its channel.
        level: u8,
    },
    /// A piece of the message.
    Data {
        /// Its range.
        piece: Piece,
        /// The number of the token that it spends.
        number: u32,
        /// It was sent before.
        resent: bool,
        /// The message needs no match.
        short: bool,
    },
    /// The whole message arrived.
    Ack,
    /// About an abandoned message.
    Courtesy(Courtesy),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct Dcpim {
    config: DcpimConfig,
    clock: RoundClock,
    exchange: Exchange<DcpimSending, DcpimReceiving>,
    /// The round under way.
    round: u64,
    rng: Rng,

    // As a receiver.
    sources: Peers<MatchedSource>,
    /// Senders with messages that may get tokens.
    wanting: BTreeSet<u32>,
    grants: Vec<GrantedChannels>,
    receiving: TakenChannels,
    /// Channels in their data phase.
    current: Vec<ChannelPair>,
    /// Channels that are being matched.
    matching: Vec<ChannelPair>,
    /// Tokens that are left out, because as many packets come unasked.
    hold: u32,
    /// Timers of messages whose packets have all had tokens.
    waits: MessageTimers,

    // As a sender.
    requests: Vec<ChannelRequest>,
    /// When they are answered.
    answers_at: Option<Time>,
    sending: TakenChannels,
    /// The same of the epoch before.
    sending_before: TakenChannels,
    tokens: TokenQueue,
    /// Timers of notifications.
    notices: MessageTimers,

    control: VecDeque<DcpimPacket>,
    refused: u64,
    /// Messages so far; of equal messages the older goes first.
    begun: u32,
}

impl Dcpim {
    /// A host in its `life`-th life.
    pub fn new(config: DcpimConfig, host: HostId, life: u32) -> Self {
        Self {
            config,
            clock: config.clock(),
            exchange: Exchange::new(life),
            round: 0,
            rng: Rng::stream(config.seed, &format!("dcpim h{} #{life}", host.0)),
            sources: Peers::default(),
            wanting: BTreeSet::new(),
            grants: Vec::new(),
            receiving: TakenChannels::default(),
            current: Vec::new(),
            matching: Vec::new(),
            hold: 0,
            waits: MessageTimers::default(),
            requests: Vec::new(),
            answers_at: None,
            sending: TakenChannels::default(),
            sending_before: TakenChannels::default(),
            tokens: TokenQueue::default(),
            notices: MessageTimers::default(),
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

    fn say(&mut self, head: Head, body: DcpimBody) {
        self.control.push_back(DcpimPacket { head, body });
    }

    /// Begins the round that it is time for. Rounds in which the host has nothing to match are
    /// skipped.
    fn turn(&mut self, now: Time) {
        let round = self.clock.at(now);
        if round <= self.round {
            return;
        }
        self.accept(now);
        let epochs = self.clock.epoch(round) - self.clock.epoch(self.round);
        self.round = round;
        for _ in 0..epochs.min(2) {
            self.sending_before = self.sending;
            self.sending.turn();
            self.receiving.turn();
            self.begin_phase(now);
        }
        self.request(now);
        // Last, because channels that are matched in the last round are not prompt.
        self.run_channels(now);
    }

    /// The order of bids in the round under way.
    fn bid_order(&mut self) -> BidOrder<'_> {
        match self.clock.number(self.round) < self.config.sorted_rounds {
            true => BidOrder::Shortest,
            false => BidOrder::Random(&mut self.rng),
        }
    }
}

impl Transport for Dcpim {
    type Packet = DcpimPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.turn(now);
        let (config, order) = (&self.config, self.begun);
        let start = |_: &Head, length| DcpimSending::new(config, (length, order));
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

    fn receive(&mut self, now: Time, packet: &DcpimPacket, arrival: PacketMeta) -> Receipt {
        self.turn(now);
        let (head, from) = (&packet.head, arrival.from);
        match packet.body {
            DcpimBody::Notify { length } => self.on_notify(now, from, (head, length)),
            DcpimBody::Data { piece, number, .. } => {
                return self.on_data(now, from, (head, piece), number);
            }
            DcpimBody::Grant { round, left, channels } => {
                self.on_grant(now, from, head, (round, left, channels));
            }
            DcpimBody::Return { round, channels } => self.on_return(from, (round, channels)),
            DcpimBody::Request { round, left, channels } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_request(now, message, (round, left, channels));
                }
            }
            DcpimBody::Accept { round, channels } => {
                self.exchange.answered(now, from, head);
                self.on_accept(head.to(from), (round, channels));
            }
            DcpimBody::Token { packet, number, left, epoch, level, .. } => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.on_token(now, message, ((packet, number, left), epoch, level));
                }
            }
            DcpimBody::Ack => {
                if let Some(message) = self.exchange.answered(now, from, head) {
                    self.exchange.finish(message);
                }
            }
            DcpimBody::Courtesy(what) => self.exchange.on_courtesy(now, from, head, what),
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<DcpimPacket> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        if let Some((head, what)) = self.exchange.courtesy() {
            return Some(DcpimPacket { head, body: DcpimBody::Courtesy(what) });
        }
        self.next_data(now)
    }

    fn label(&self, packet: &DcpimPacket) -> Label {
        let wire = &self.config.wire;
        let (wire_bytes, priority) = match packet.body {
            DcpimBody::Data { piece, .. } => {
                (wire.data(piece.len), level(wire.packets(piece.total), self.config.short))
            }
            _ => (wire.control, 7),
        };
        Label { priority, flow: packet.head.serial, ..Label::new(packet.head.to, wire_bytes) }
    }

    fn content(packet: &DcpimPacket) -> PacketContent {
        let message = message_number(packet.head.id);
        match packet.body {
            DcpimBody::Data { piece, resent, short, .. } => {
                let free = if short { piece.total } else { 0 };
                PacketContent::Data(piece.content(&packet.head, (free, resent)))
            }
            DcpimBody::Token { end, .. } => PacketContent::Permit { message, offset: end },
            _ => PacketContent::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expire(&mut self, now: Time) {
        self.exchange.expire(now);
        self.turn(now);
        self.grant(now);
        self.expire_notices(now);
        self.expire_waits(now);
        self.run_channels(now);
    }

    fn deadline(&self) -> Option<Time> {
        let timers = [self.notices.next(), self.waits.next(), self.exchange.deadline()];
        let round = self.is_matching().then(|| self.clock.start(self.round + 1));
        let pairs = self.current.iter().chain(&self.matching).filter_map(ChannelPair::due);
        let others = [round, self.answers_at].into_iter().flatten();
        timers.into_iter().flatten().chain(others).chain(pairs).min()
    }

    fn has_packet(&self) -> bool {
        !(self.control.is_empty() && self.tokens.is_empty()) || self.exchange.has_courtesy()
    }
}

/// The priority level of the data of a message of `packets` packets: six levels below that of
/// control packets, divided at powers of 7. Without messages that are sent at once all data has the
/// first (authors' simulator: `packet_priority`).
fn level(packets: u32, short: u32) -> u8 {
    match packets {
        _ if short == 0 => 6,
        0..=7 => 6,
        8..=49 => 5,
        50..=343 => 4,
        344..=2_401 => 3,
        2_402..=16_807 => 2,
        _ => 1,
    }
}
