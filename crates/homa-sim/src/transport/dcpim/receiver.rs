//! A receiver: which messages may get tokens, requests, and the acceptance of grants.

use homa_proto::{DropReason, Duration, Receipt, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Head, MessageLookup, Ref};
use crate::transport::parts::{MessageTimer, Ordered, PacketSet, Piece};

use super::channels::ChannelPair;
use super::matching::{Bid, divide, wanted};
use super::{Channels, Dcpim, DcpimBody, DcpimConfig, is_too_late};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct DcpimReceiving {
    /// Index of its sender.
    source: u32,
    here: PacketSet,
    packets: u32,
    /// Tokens so far; a message that needs no match has one for each packet.
    issued: u32,
    /// One more than the highest token that was answered.
    answered: u32,
    /// The last token was for the packet before this one.
    next: u32,
    /// When the last token was sent, if there was one.
    issued_at: Option<Time>,
    /// When missing packets may get tokens again.
    due: MessageTimer,
    /// Its key among its sender's messages that may get tokens.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
    /// Its first packet was seen.
    noticed: bool,
}

/// A sender, as its receiver knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct MatchedSource {
    /// Its messages that may get tokens, fewest packets missing first.
    messages: Ordered,
    /// When its last packet arrived.
    heard: Time,
    /// Grants in a row that came too late.
    late: u32,
    /// The order of the message of the last request.
    asked: u32,
}

/// Channels that a sender granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedChannels {
    source: u32,
    head: Head,
    bid: Bid,
}

/// A sender that was silent for this long is not asked any more, and for as many times the period
/// of its notifications (inferred).
const SILENCE: Duration = Duration::millis(50);
const SILENT_PERIODS: u64 = 4;

impl DcpimReceiving {
    fn new(config: &DcpimConfig, (source, length, order): (u32, u32, u32)) -> Self {
        let packets = config.wire.packets(length);
        let taken = if packets <= config.short { packets } else { 0 };
        Self {
            source,
            here: PacketSet::new(packets),
            packets,
            issued: taken,
            answered: 0,
            next: taken,
            issued_at: None,
            due: MessageTimer::default(),
            listed: None,
            order,
            noticed: false,
        }
    }

    /// Packets that are missing.
    pub fn missing(&self) -> u32 {
        self.packets - self.here.count()
    }

    fn unanswered(&self) -> u32 {
        self.issued.saturating_sub(self.answered)
    }

    /// Makes room for one more token if `limit` may be unanswered before it. If more are, and the
    /// last one is older than `timeout`, some count as lost. Otherwise returns when they will.
    pub fn make_room(&mut self, now: Time, limit: u32, timeout: Duration) -> Result<(), Time> {
        if self.unanswered() <= limit {
            return Ok(());
        }
        match self.issued_at.map(|at| at + timeout) {
            Some(until) if until > now => Err(until),
            _ => {
                self.answered = self.issued - limit.saturating_sub(1);
                Ok(())
            }
        }
    }

    /// The packet after the last token's that is missing; after the end of the message the first
    /// that is.
    fn following(&self) -> u32 {
        let next = self.here.next_missing(self.next);
        if next < self.packets { next } else { self.here.prefix() }
    }

    /// The packet and the number of the next token, and whether every missing packet has then had
    /// one.
    pub fn next_token(&mut self, now: Time) -> (u32, u32, bool) {
        let (packet, number) = (self.following(), self.issued);
        self.next = packet + 1;
        self.issued += 1;
        self.issued_at = Some(now);
        (packet, number, self.following() <= packet)
    }

    fn key(&self) -> u64 {
        u64::from(self.missing()) << 32 | u64::from(self.order)
    }
}

impl Dcpim {
    pub(super) fn on_notify(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) {
        if self.find(now, from, (head, length)) == MessageLookup::Done {
            self.say(head.to(from), DcpimBody::Ack);
        }
    }

    /// The message that a packet belongs to. The packet may be data that overtook the notification.
    fn find(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) -> MessageLookup {
        let source = self.sources.index(from, MatchedSource::default);
        let (config, order) = (&self.config, self.begun);
        let start = || DcpimReceiving::new(config, (source, length, order));
        let found = self.exchange.arrived(now, from, (head, length), start);
        self.hear(now, source);
        if let MessageLookup::Open(message) = found
            && let Some(incoming) = self.exchange.incoming(message)
            && !std::mem::replace(&mut incoming.state.noticed, true)
        {
            self.begun = self.begun.wrapping_add(1);
            self.notice(now, message);
        }
        found
    }

    /// A packet of a sender arrived.
    fn hear(&mut self, now: Time, index: u32) {
        let Some(source) = self.sources.get(index) else { return };
        source.heard = now;
        if !source.messages.is_empty() {
            self.wanting.insert(index);
        }
    }

    /// A message is new. If its packets come unasked, as many tokens of the host's channels are
    /// left out (the number is set, not added), and missing ones get tokens once they are overdue.
    fn notice(&mut self, now: Time, message: Ref) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let (source, unasked) = (incoming.state.source, incoming.state.issued);
        if unasked > 0 {
            self.hold = unasked;
            let arrive = self.config.packet_time() * u64::from(unasked) / 1_000;
            self.wait(now + Duration(arrive) + self.config.resend, message);
        } else {
            self.list(message);
            if self.shortest(source) == Some(message) {
                self.wake(now, source);
            }
        }
    }

    /// Removes a message from those that may get tokens until it is time.
    pub(super) fn wait(&mut self, until: Time, message: Ref) {
        self.unlist(message);
        if let Some(incoming) = self.exchange.incoming(message) {
            self.waits.set(&mut incoming.state.due, message, until);
        }
    }

    pub(super) fn expire_waits(&mut self, now: Time) {
        while let Some(message) =
            self.waits.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.incoming(message)?.state.due)
            })
        {
            self.list(message);
        }
    }

    /// Lists a message among those that may get tokens.
    fn list(&mut self, message: Ref) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let (index, state) = (incoming.state.source, &mut incoming.state);
        let key = state.key();
        if let Some(source) = self.sources.get(index) {
            source.messages.set(&mut state.listed, message, Some(key));
            self.wanting.insert(index);
        }
    }

    fn unlist(&mut self, message: Ref) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let (index, state) = (incoming.state.source, &mut incoming.state);
        if let Some(source) = self.sources.get(index) {
            source.messages.set(&mut state.listed, message, None);
            if source.messages.is_empty() {
                self.wanting.remove(&index);
            }
        }
    }

    /// The message of a sender with the fewest packets missing, of those that may get tokens.
    pub(super) fn shortest(&mut self, index: u32) -> Option<Ref> {
        let source = self.sources.get(index)?;
        while let Some(message) = source.messages.first() {
            if self.exchange.incoming(message).is_some() {
                return Some(message);
            }
            source.messages.drop_first();
        }
        self.wanting.remove(&index);
        None
    }

    pub(super) fn on_data(
        &mut self,
        now: Time,
        from: HostId,
        (head, piece): (&Head, Piece),
        number: u32,
    ) -> Receipt {
        let message = match self.find(now, from, (head, piece.total)) {
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                self.say(head.to(from), DcpimBody::Ack);
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let state = &mut incoming.state;
        state.answered = state.answered.max(number.saturating_add(1)).min(state.issued);
        let fresh = piece.packet < state.packets && state.here.insert(piece.packet);
        let (whole, is_listed) = (state.missing() == 0, state.listed.is_some());
        let (source, has_room) = (state.source, state.unanswered() <= self.config.window);
        if whole {
            self.unlist(message);
            self.say(head.to(from), DcpimBody::Ack);
        } else if is_listed {
            self.list(message);
            if has_room && self.shortest(source) == Some(message) {
                self.wake(now, source);
            }
        }
        if !fresh {
            return self.refuse(DropReason::Duplicate);
        }
        self.exchange.place(message, (piece.offset, piece.len), whole)
    }

    /// True unless nothing can happen at the beginning of the next round.
    pub(super) fn is_matching(&self) -> bool {
        let idle = self.wanting.is_empty() && self.grants.is_empty();
        !(idle && self.matching.is_empty() && self.current.is_empty())
    }

    /// Requests channels for the shortest message of each sender.
    pub(super) fn request(&mut self, now: Time) {
        let free = self.receiving.free(self.config.channels);
        if free.count == 0 || self.wanting.is_empty() {
            return;
        }
        let silence = SILENCE.max(Duration(SILENT_PERIODS * self.config.notify.0));
        let (carries, round) = (self.config.carries(), self.round);
        let indexes: Vec<u32> = self.wanting.iter().copied().collect();
        for index in indexes {
            if self.sources.get(index).is_none_or(|source| now.since(source.heard) > silence) {
                self.wanting.remove(&index);
                continue;
            }
            let (message, held) = (self.shortest(index), self.held(index));
            let incoming = message.and_then(|message| self.exchange.incoming(message));
            let Some(incoming) = incoming else { continue };
            let (head, order, left) =
                (incoming.head, incoming.state.order, incoming.state.missing());
            if let Some(channels) = wanted(left, carries, held, free) {
                if let Some(source) = self.sources.get(index) {
                    source.asked = order;
                }
                self.say(head, DcpimBody::Request { round, left, channels });
            }
        }
    }

    pub(super) fn on_grant(
        &mut self,
        now: Time,
        from: HostId,
        head: &Head,
        (round, left, channels): (u64, u32, Channels),
    ) {
        let index = self.sources.index(from, MatchedSource::default);
        self.hear(now, index);
        let (in_time, patience) = (round == self.round, self.config.patience());
        let Some(source) = self.sources.get(index) else { return };
        if is_too_late(&mut source.late, in_time, patience) {
            return;
        }
        let bid = Bid { left, order: source.asked, wants: channels };
        self.grants.push(GrantedChannels { source: index, head: head.to(from), bid });
    }

    /// The round ends: accepts as many of the granted channels as are free.
    pub(super) fn accept(&mut self, now: Time) {
        if self.grants.is_empty() {
            return;
        }
        let grants = std::mem::take(&mut self.grants);
        let bids: Vec<Bid> = grants.iter().map(|grant| grant.bid).collect();
        let free = self.receiving.free(self.config.channels);
        for (at, channels) in divide(&bids, free, self.bid_order()) {
            let GrantedChannels { source, head, bid } = grants[at];
            self.receiving.take(channels);
            self.say(head, DcpimBody::Accept { round: self.round, channels });
            let known = self.matching.iter().position(|pair| pair.source == source);
            let known = known.unwrap_or_else(|| {
                self.matching.push(ChannelPair::new(source, bid.left));
                self.matching.len() - 1
            });
            let pair = &mut self.matching[known];
            pair.channels.count += channels.count;
            pair.channels.prompt += channels.prompt;
            if channels.prompt > 0 {
                pair.start(now);
            }
        }
    }

    /// A sender takes channels back.
    pub(super) fn on_return(&mut self, from: HostId, (round, channels): (u64, Channels)) {
        let index = self.sources.index(from, MatchedSource::default);
        let pairs = match self.clock.epoch(self.round).checked_sub(self.clock.epoch(round)) {
            Some(0) => &mut self.matching,
            Some(1) => &mut self.current,
            _ => return,
        };
        for pair in pairs.iter_mut().filter(|pair| pair.source == index) {
            let Channels { count, prompt } = pair.channels;
            let count = count.saturating_sub(channels.count);
            pair.channels =
                Channels { count, prompt: prompt.saturating_sub(channels.prompt).min(count) };
        }
    }
}
