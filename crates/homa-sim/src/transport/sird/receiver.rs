//! A receiver, which decides which sender gets the next credit.

use homa_proto::{DropReason, Duration, Receipt, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Head, MessageLookup, Ref};
use crate::transport::parts::{PacketSet, Piece};

use super::bucket::{Bucket, Marked};
use super::credit::{may_grant, wire_of};
use super::peers::CreditedSender;
use super::{Sird, SirdBody, SirdConfig, SirdOrder};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct SirdReceiving {
    /// Index of its sender.
    source: u32,
    here: PacketSet,
    packets: u32,
    /// Message bytes that have not arrived.
    missing: u32,
    /// Packets that have had credit, those that its sender took included.
    granted: u32,
    /// Packets before this one were sent; those of them that are missing were lost.
    lost: u32,
    /// Lost packets before this one were asked for again.
    asked: u32,
    /// Its key among its sender's messages that need credit.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
    /// When its last credit was sent, counted in credits of this host; 0 if it had none.
    turn: u32,
    /// The unsolicited credit is charged.
    charged: bool,
}

/// A credit that may be sent.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// The message; `None` for credit that is owed.
    message: Option<Ref>,
    bytes: u32,
    /// The lost packet that it is for.
    again: Option<u32>,
}

/// The message, its length, and the packets of it that its sender took credit for.
pub(super) type Announced<'a> = (&'a Head, u32, u32);

impl SirdReceiving {
    fn new(config: &SirdConfig, source: u32, (length, taken, order): (u32, u32, u32)) -> Self {
        let packets = config.wire.packets(length);
        Self {
            source,
            here: PacketSet::new(packets),
            packets,
            missing: length,
            granted: taken.min(packets),
            lost: 0,
            asked: 0,
            listed: None,
            order,
            turn: 0,
            charged: false,
        }
    }

    /// The next packet that needs credit, and whether it is one that was lost.
    fn next(&self) -> Option<(u32, bool)> {
        let lost = self.here.next_missing(self.asked);
        if lost < self.lost.min(self.packets) {
            return Some((lost, true));
        }
        (self.granted < self.packets).then_some((self.granted, false))
    }

    fn key(&self, order: SirdOrder) -> Option<u64> {
        self.next()?;
        let first = match order {
            SirdOrder::Srpt => self.missing,
            SirdOrder::Fair => self.turn,
        };
        Some(u64::from(first) << 32 | u64::from(self.order))
    }
}

impl Sird {
    fn source_of(&mut self, from: HostId) -> u32 {
        let config = &self.config;
        let floors = (config.host_floor, config.network_floor);
        self.sources.index(from, || CreditedSender::new(Bucket::new(&config.rule(), floors)))
    }

    /// The message that a packet of its sender belongs to. What the sender took is charged with the
    /// first one.
    fn find(
        &mut self,
        now: Time,
        from: HostId,
        (head, length, taken): Announced<'_>,
    ) -> MessageLookup {
        let source = self.source_of(from);
        let (config, order) = (&self.config, self.begun);
        let start = || SirdReceiving::new(config, source, (length, taken, order));
        let found = self.exchange.arrived(now, from, (head, length), start);
        if found != MessageLookup::Stale {
            self.meet(now, source, head.epoch);
        }
        let MessageLookup::Open(message) = found else { return found };
        let Some(incoming) = self.exchange.incoming(message) else { return found };
        if !std::mem::replace(&mut incoming.state.charged, true) {
            self.begun = self.begun.wrapping_add(1);
            let (wire, taken) = (&self.config.wire, incoming.state.granted);
            let bytes = wire_of(wire, length, 0) - wire_of(wire, length, taken);
            self.charge(now, source, bytes as i64);
        }
        found
    }

    /// A sender of this life is there. If it restarted, it lost the credit of its former life.
    fn meet(&mut self, now: Time, index: u32, life: u16) {
        let Some(source) = self.sources.get(index) else { return };
        if std::mem::replace(&mut source.life, life) != life {
            source.owed.clear();
            let gone = source.out;
            self.charge(now, index, -gone);
        }
    }

    /// Counts credit that a sender got (positive) or spent (negative).
    fn charge(&mut self, now: Time, source: u32, bytes: i64) {
        let Some(peer) = self.sources.get(source) else { return };
        peer.out += bytes;
        self.budget.out += bytes;
        if bytes > 0 || peer.out != 0 && peer.due.at().is_none() {
            let name = Ref { index: source, generation: 0 };
            self.silences.set(&mut peer.due, name, now + self.config.resend);
        }
    }

    /// A sender announced a message, or reports its progress: `sent` packets were sent at least
    /// once.
    pub(super) fn on_request(
        &mut self,
        now: Time,
        from: HostId,
        (announced, sent): (Announced<'_>, u32),
    ) {
        match self.find(now, from, announced) {
            MessageLookup::Open(message) => {
                self.recover(now, message, sent);
                self.consider(message);
                self.grant(now);
            }
            MessageLookup::Done => self.say(announced.0.to(from), SirdBody::Ack),
            MessageLookup::Stale => {}
        }
    }

    /// A sender has waited long enough for `sent` packets to arrive, so those that are missing were
    /// lost. If it has not sent anything to this host either, its credit was lost, too. The
    /// authors' simulator has no losses; these rules are additions.
    fn recover(&mut self, now: Time, message: Ref, sent: u32) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let (length, state) = (incoming.length, &mut incoming.state);
        if state.granted == 0 && sent == 0 {
            return;
        }
        let Some(source) = self.sources.get(state.source) else { return };
        let recent = Duration(2 * self.config.link.time_for(self.config.bdp.into()).0);
        let silent = now.since(source.heard) >= Duration(self.config.resend.0 / 2);
        let travels = now.since(source.granted) < recent;
        let cleared = source.cleared.is_some_and(|at| now.since(at) < recent);
        let index = state.source;
        let mut gone = 0;
        (state.lost, state.asked) = (sent.min(state.packets), 0);
        if silent && (cleared || !travels) {
            state.granted = state.granted.min(state.lost);
        }
        if silent && !travels {
            (gone, source.cleared) = (source.out, Some(now));
        } else {
            let mut packet = state.here.next_missing(0);
            while packet < state.lost {
                gone += i64::from(self.config.wire.data(self.config.wire.span(packet, length).1));
                packet = state.here.next_missing(packet + 1);
            }
            gone = gone.min(source.out.max(0));
        }
        self.charge(now, index, -gone);
    }

    pub(super) fn on_data(
        &mut self,
        now: Time,
        from: HostId,
        ((head, piece, taken), marked): ((&Head, Piece, u32), Marked),
    ) -> Receipt {
        let found = self.find(now, from, (head, piece.total, taken));
        let index = match found {
            MessageLookup::Open(message) => {
                self.exchange.incoming(message).map_or(0, |incoming| incoming.state.source)
            }
            _ => self.source_of(from),
        };
        // Credit of a former life was written off at the restart.
        if found != MessageLookup::Stale {
            self.on_arrival(now, index, (self.config.wire.data(piece.len), marked));
        }
        let receipt = match found {
            MessageLookup::Open(message) => self.insert(message, piece),
            MessageLookup::Done => {
                self.say(head.to(from), SirdBody::Ack);
                self.refuse(DropReason::Duplicate)
            }
            MessageLookup::Stale => self.refuse(DropReason::UnknownRpc),
        };
        self.refresh_source(index);
        self.grant(now);
        receipt
    }

    /// Data of a sender arrived: it has spent credit, and its marks move its limits.
    fn on_arrival(&mut self, now: Time, index: u32, (bytes, marked): (u32, Marked)) {
        let (rule, resend) = (self.config.rule(), self.config.resend);
        let Some(source) = self.sources.get(index) else { return };
        source.bucket.on_packet(&rule, marked);
        source.heard = now;
        if source.due.at().is_some() {
            let name = Ref { index, generation: 0 };
            self.silences.set(&mut source.due, name, now + resend);
        }
        self.charge(now, index, -i64::from(bytes));
    }

    fn insert(&mut self, message: Ref, piece: Piece) -> Receipt {
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let (head, length, state) = (incoming.head, incoming.length, &mut incoming.state);
        if piece.packet >= state.packets || !state.here.insert(piece.packet) {
            return self.refuse(DropReason::Duplicate);
        }
        state.missing = state.missing.saturating_sub(piece.len);
        let whole = state.here.count() == state.packets;
        if whole {
            let owed = wire_of(&self.config.wire, length, state.granted);
            if let Some(source) = self.sources.get(state.source) {
                source.wanting.set(&mut state.listed, message, None);
                if owed > 0 {
                    source.owed.push_back((head, owed));
                }
            }
            self.say(head, SirdBody::Ack);
        } else {
            self.consider_key(message);
        }
        self.exchange.place(message, (piece.offset, piece.len), whole)
    }

    /// Lists a message among those of its sender if it needs credit, and removes it otherwise.
    fn consider_key(&mut self, message: Ref) -> Option<u32> {
        let incoming = self.exchange.incoming(message)?;
        let state = &mut incoming.state;
        let key = state.key(self.config.order);
        let source = self.sources.get(state.source)?;
        source.wanting.set(&mut state.listed, message, key);
        Some(state.source)
    }

    fn consider(&mut self, message: Ref) {
        if let Some(index) = self.consider_key(message) {
            self.refresh_source(index);
        }
    }

    /// The credit that a sender should get next. Credit that is owed goes first: the messages that
    /// it was meant for had no bytes left.
    fn offer(&mut self, index: u32) -> Option<(u64, Offer)> {
        let source = self.sources.get(index)?;
        if let Some(&(_, owed)) = source.owed.front() {
            let bytes = owed.min(self.config.wire.full().into()) as u32;
            return Some((0, Offer { message: None, bytes, again: None }));
        }
        while let (Some(key), Some(message)) = (source.wanting.key(), source.wanting.first()) {
            if let Some(incoming) = self.exchange.incoming(message)
                && let Some((packet, lost)) = incoming.state.next()
            {
                let len = self.config.wire.span(packet, incoming.length).1;
                let (bytes, again) = (self.config.wire.data(len), lost.then_some(packet));
                return Some((key, Offer { message: Some(message), bytes, again }));
            }
            source.wanting.drop_first();
        }
        None
    }

    /// Lists a sender if it should get credit and its bucket has room for it.
    fn refresh_source(&mut self, index: u32) {
        let offer = self.offer(index);
        let Some(source) = self.sources.get(index) else { return };
        let account = source.account(self.config.wire.full());
        let key = offer.filter(|(_, offer)| account.has_room(offer.bytes)).map(|(key, _)| key);
        self.granting.set(&mut source.listed, index, key);
    }

    /// Sends the credits that are due.
    pub(super) fn grant(&mut self, now: Time) {
        self.waits = false;
        while let Some(index) = self.granting.first() {
            let offer = self.offer(index);
            let Some(source) = self.sources.get(index) else { return };
            let account = source.account(self.config.wire.full());
            let Some((_, offer)) = offer else {
                self.refresh_source(index);
                continue;
            };
            if !may_grant(offer.bytes, self.budget, account) {
                return;
            }
            if !self.pacer.take_for(now, offer.bytes) {
                self.waits = true;
                return;
            }
            self.issue(now, index, offer);
        }
    }

    fn issue(&mut self, now: Time, index: u32, Offer { message, bytes, again }: Offer) {
        self.charge(now, index, bytes.into());
        let wire = self.config.wire;
        let Some(source) = self.sources.get(index) else { return };
        source.granted = now;
        self.issued = self.issued.wrapping_add(1);
        let (head, end) = match message.and_then(|message| self.exchange.incoming(message)) {
            Some(incoming) => {
                let state = &mut incoming.state;
                match again {
                    Some(packet) => state.asked = packet + 1,
                    None => state.granted += 1,
                }
                state.turn = self.issued;
                let end = state.granted.saturating_mul(wire.payload).min(incoming.length);
                (incoming.head, end)
            }
            None => {
                let Some((head, owed)) = source.owed.front_mut() else { return };
                *owed = owed.saturating_sub(bytes.into());
                let (head, done) = (*head, *owed == 0);
                if done {
                    source.owed.pop_front();
                }
                (head, 0)
            }
        };
        self.say(head, SirdBody::Credit { bytes, again, end });
        match message {
            Some(message) => self.consider(message),
            None => self.refresh_source(index),
        }
    }

    /// Senders that got no credit and sent nothing for a while no longer have what they got before.
    pub(super) fn expire_silences(&mut self, now: Time) {
        while let Some(name) = self.silences.next_fired(now, &mut self.sources, |sources, name| {
            Some(&mut sources.get(name.index)?.due)
        }) {
            let Some(source) = self.sources.get(name.index).filter(|source| source.out != 0) else {
                continue;
            };
            let gone = source.out;
            source.cleared = Some(now);
            self.charge(now, name.index, -gone);
            self.refresh_source(name.index);
        }
    }
}
