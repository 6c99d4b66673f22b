//! A destination, which decides which message gets the next token (pHost §3.2, §3.3).

use homa_proto::{DropReason, Receipt, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Head, MessageLookup, Ref};
use crate::transport::parts::{MessageTimer, PacketSet, Piece};

use super::{PHost, PHostBody, PHostConfig};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct PHostReceiving {
    here: PacketSet,
    packets: u32,
    /// Tokens issued so far, including free ones.
    issued: u32,
    /// One more than the highest token that was answered.
    answered: u32,
    /// Once this many tokens were issued, every missing packet has had one, and the receiver waits
    /// for the packets.
    goal: u32,
    /// Tokens of this round have named all packets before this one.
    next: u32,
    /// When the last token was issued.
    issued_at: Time,
    /// The end of a downgrade, or of the wait for missing packets.
    due: MessageTimer,
    /// Its key among the messages that may get tokens.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
    /// The token slots have taken notice of it.
    noticed: bool,
}

impl PHostReceiving {
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
            due: MessageTimer::default(),
            listed: None,
            order,
            noticed: false,
        }
    }

    fn missing(&self) -> u32 {
        self.packets - self.here.count()
    }

    fn unanswered(&self) -> u32 {
        self.issued.saturating_sub(self.answered)
    }

    /// The next packet that a token should name: the packets in order, except those that are here.
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
            MessageLookup::Open(message) => {
                self.consider(now, message);
                self.grant(now);
            }
            MessageLookup::Done => self.say(head.to(from), PHostBody::Ack),
            MessageLookup::Stale => {}
        }
    }

    /// The message that a packet belongs to. The packet may be data that overtook the RTS.
    fn find(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) -> MessageLookup {
        let (config, order) = (&self.config, self.begun);
        let start = || PHostReceiving::new(config, now, (length, order));
        let found = self.exchange.arrived(now, from, (head, length), start);
        self.begun = self.begun.wrapping_add(1);
        if let MessageLookup::Open(message) = found
            && let Some(incoming) = self.exchange.incoming(message)
            && !std::mem::replace(&mut incoming.state.noticed, true)
        {
            self.slots.begin(incoming.state.issued);
        }
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
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                self.say(head.to(from), PHostBody::Ack);
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
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

    /// Lists a message if it may get tokens now; otherwise sets a timer to check again.
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

    /// A downgrade, or a wait for missing packets, has ended.
    fn on_wait_over(&mut self, message: Ref) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let receiving = &mut incoming.state;
        if receiving.issued >= receiving.goal {
            receiving.goal = receiving.issued + receiving.missing();
        }
        // YAPS: one more token may go out. If it is answered, more follow.
        let most = self.config.window.saturating_sub(1);
        if receiving.unanswered() > most {
            receiving.answered = receiving.issued - most;
        }
        let key = u64::from(receiving.missing()) << 32 | u64::from(receiving.order);
        self.granting.set(&mut receiving.listed, message, Some(key));
    }

    pub(super) fn expire_waits(&mut self, now: Time) {
        while let Some(message) =
            self.timers.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.incoming(message)?.state.due)
            })
        {
            self.slots.wake();
            self.on_wait_over(message);
        }
    }

    /// Sends tokens that are due.
    pub(super) fn grant(&mut self, now: Time) {
        if self.slots.is_asleep() {
            return;
        }
        while self.slots.has_passing() {
            if !self.pacer.take(now) {
                return;
            }
            self.slots.passes();
        }
        if self.granting.is_empty() {
            if self.pacer.next() <= now {
                self.slots.sleep(self.timers.next());
            }
            return;
        }
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
