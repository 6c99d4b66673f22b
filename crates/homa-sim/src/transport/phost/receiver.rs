//! A destination: which message is given the next token (pHost §3.2, §3.3).

use homa_proto::{DropReason, Receipt, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Found, Head, Ref};
use crate::transport::parts::{Due, PacketSet, Piece};

use super::{PHost, PHostBody, PHostConfig};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct Receiving {
    here: PacketSet,
    packets: u32,
    /// Tokens so far, free ones included.
    issued: u32,
    /// One more than the highest token that was answered.
    answered: u32,
    /// When so many tokens were issued, every packet that is missing has had one, and the rest are
    /// waited for.
    goal: u32,
    /// Tokens named the packets before, in this round.
    next: u32,
    /// The last token.
    issued_at: Time,
    /// Downgraded, or waiting for the rest.
    due: Due,
    /// Its place among those that may be given tokens.
    listed: Option<u64>,
    /// The older of equals goes first.
    order: u32,
}

impl Receiving {
    pub fn new(config: &PHostConfig, now: Time, (length, order): (u32, u32)) -> Self {
        let packets = config.wire.packets(length);
        let free = config.free(packets);
        Self {
            here: PacketSet::new(packets),
            packets,
            issued: free,
            answered: 0,
            goal: packets,
            next: free,
            issued_at: now,
            due: Due::default(),
            listed: None,
            order,
        }
    }

    fn missing(&self) -> u32 {
        self.packets - self.here.count()
    }

    fn unanswered(&self) -> u32 {
        self.issued.saturating_sub(self.answered)
    }

    /// The next packet that a token should name: in turn, those that are here left out.
    fn next_packet(&mut self) -> u32 {
        let next = self.here.next_missing(self.next);
        let packet = if next < self.packets { next } else { self.here.prefix() };
        self.next = packet + 1;
        packet
    }
}

impl PHost {
    pub(super) fn on_rts(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) {
        match self.find(now, from, (head, length)) {
            Found::Open(message) => {
                self.consider(now, message);
                self.grant(now);
            }
            Found::Done => self.say(head.to(from), PHostBody::Ack),
            Found::Stale => {}
        }
    }

    /// The message that a packet belongs to; data may overtake its RTS.
    fn find(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) -> Found {
        let (config, order) = (&self.config, self.begun);
        let start = || Receiving::new(config, now, (length, order));
        let found = self.exchange.arrived(now, from, (head, length), start);
        self.begun = self.begun.wrapping_add(1);
        found
    }

    pub(super) fn on_data(
        &mut self,
        now: Time,
        from: HostId,
        (head, piece): (&Head, Piece),
        token: u32,
    ) -> Receipt {
        let message = match self.find(now, from, (head, piece.total)) {
            Found::Open(message) => message,
            Found::Done => {
                self.say(head.to(from), PHostBody::Ack);
                return self.refuse(DropReason::Duplicate);
            }
            Found::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let receiving = &mut incoming.state;
        receiving.answered = receiving.answered.max(token.saturating_add(1)).min(receiving.issued);
        let fresh = piece.packet < receiving.packets && receiving.here.insert(piece.packet);
        let whole = receiving.missing() == 0;
        if whole {
            self.granting.set(&mut receiving.listed, message, None);
            self.say(head.to(from), PHostBody::Ack);
        } else {
            self.consider(now, message);
        }
        self.grant(now);
        if !fresh {
            return self.refuse(DropReason::Duplicate);
        }
        self.exchange.place(message, (piece.offset, piece.len), whole)
    }

    /// Whether a message may be given tokens now; if not, when to ask again.
    fn consider(&mut self, now: Time, message: Ref) {
        let config = self.config;
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let receiving = &mut incoming.state;
        let wait = if receiving.issued >= receiving.goal {
            Some(config.resend)
        } else {
            (receiving.unanswered() >= config.window).then_some(config.downgrade)
        };
        let key = u64::from(receiving.missing()) << 32 | u64::from(receiving.order);
        match wait.map(|tenths| receiving.issued_at + config.tenths(tenths)) {
            Some(until) if until > now => {
                self.granting.set(&mut receiving.listed, message, None);
                self.timers.set(&mut receiving.due, message, until);
            }
            Some(_) => self.on_wait_over(message),
            None => {
                receiving.due.clear();
                self.granting.set(&mut receiving.listed, message, Some(key));
            }
        }
    }

    /// A message was downgraded, or what is missing was waited for, long enough.
    fn on_wait_over(&mut self, message: Ref) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let receiving = &mut incoming.state;
        if receiving.issued >= receiving.goal {
            receiving.goal = receiving.issued + receiving.missing();
        }
        // YAPS: one more token may go out. If that is answered, more follow.
        let most = self.config.window.saturating_sub(1);
        if receiving.unanswered() > most {
            receiving.answered = receiving.issued - most;
        }
        let key = u64::from(receiving.missing()) << 32 | u64::from(receiving.order);
        self.granting.set(&mut receiving.listed, message, Some(key));
    }

    pub(super) fn expire_waits(&mut self, now: Time) {
        while let Some((listed, message)) = self.timers.pop(now) {
            let Some(incoming) = self.exchange.incoming(message) else { continue };
            let due = &mut incoming.state.due;
            if self.timers.fired(due, (listed, message), now) {
                self.on_wait_over(message);
            }
        }
    }

    /// Sends a token when one is due.
    pub(super) fn grant(&mut self, now: Time) {
        while let Some(message) = self.granting.first() {
            let Some(incoming) = self.exchange.incoming(message) else {
                self.granting.drop_first();
                continue;
            };
            if !self.pacer.take(now) {
                return;
            }
            let (head, length) = (incoming.head, incoming.length);
            let receiving = &mut incoming.state;
            let (packet, token) = (receiving.next_packet(), receiving.issued);
            receiving.issued += 1;
            receiving.issued_at = now;
            let left = receiving.missing();
            let (offset, len) = self.config.wire.span(packet, length);
            let end = offset + len;
            self.say(head, PHostBody::Token { packet, token, left, end });
            self.consider(now, message);
        }
    }
}
