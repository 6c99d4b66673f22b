//! A source: RTS, tokens, and which message sends next (pHost §3.2, §3.3).

use std::collections::VecDeque;

use homa_proto::{Duration, Time};

use crate::transport::exchange::Ref;
use crate::transport::parts::Due;

use super::{PHost, PHostBody, PHostConfig, PHostPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    tokens: VecDeque<Token>,
    /// Packets that are missing at the receiver, as it said last.
    left: u32,
    /// Packets before were sent at some time.
    sent: u32,
    /// RTS again.
    due: Due,
    patience: Duration,
    /// Its place among the ready.
    listed: Option<u64>,
    /// The older of equals goes first.
    order: u32,
}

/// Leave to send a packet.
#[derive(Clone, Copy, Debug)]
struct Token {
    packet: u32,
    number: u32,
    /// Good up to here.
    until: Time,
}

/// Between RTSs at most.
const MOST: Duration = Duration::millis(10);

impl Sending {
    pub fn new(config: &PHostConfig, now: Time, (length, order): (u32, u32)) -> Self {
        let packets = config.wire.packets(length);
        let free = config.free(packets);
        // YAPS: as many packet times longer as there are.
        let until = now + config.tenths(10 * free + config.expiry);
        Self {
            tokens: (0..free).map(|n| Token { packet: n, number: n, until }).collect(),
            left: packets,
            sent: 0,
            due: Due::default(),
            patience: config.tenths(config.resend.saturating_mul(2)),
            listed: None,
            order,
        }
    }

    /// Drops tokens that expired; whether one is left.
    fn may_send(&mut self, now: Time) -> bool {
        while self.tokens.front().is_some_and(|token| token.until < now) {
            self.tokens.pop_front();
        }
        !self.tokens.is_empty()
    }

    fn key(&self) -> u64 {
        u64::from(self.left) << 32 | u64::from(self.order)
    }
}

impl PHost {
    /// A message begins: RTS first.
    pub(super) fn start(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (head, length) = (outgoing.head, outgoing.length);
        self.say(head, PHostBody::Rts { length });
        self.refresh(now, message);
        self.await_word(now, message);
    }

    /// Sets the timer of a message's RTS anew.
    fn await_word(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        self.rts_timers.set(&mut sending.due, message, now + sending.patience);
    }

    /// Lists a message as ready, or not.
    fn refresh(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let key = sending.may_send(now).then(|| sending.key());
        self.ready.set(&mut sending.listed, message, key);
    }

    pub(super) fn on_token(
        &mut self,
        now: Time,
        message: Ref,
        (packet, number, left): (u32, u32, u32),
    ) {
        let until = now + self.config.tenths(self.config.expiry);
        let patience = self.config.tenths(self.config.resend.saturating_mul(2));
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let packets = self.config.wire.packets(outgoing.length);
        let sending = &mut outgoing.state;
        if packet >= packets {
            return;
        }
        sending.left = left;
        sending.patience = patience;
        sending.tokens.push_back(Token { packet, number, until });
        self.refresh(now, message);
        self.await_word(now, message);
    }

    /// The next packet of the message with the fewest packets left, among those with tokens.
    pub(super) fn next_data(&mut self, now: Time) -> Option<PHostPacket> {
        loop {
            let message = self.ready.first()?;
            let Some(outgoing) = self.exchange.outgoing(message) else {
                self.ready.drop_first();
                continue;
            };
            let (head, length) = (outgoing.head, outgoing.length);
            let sending = &mut outgoing.state;
            let token = if sending.may_send(now) { sending.tokens.pop_front() } else { None };
            let resent = token.is_some_and(|token| token.packet < sending.sent);
            if let Some(token) = token {
                sending.sent = sending.sent.max(token.packet + 1);
            }
            self.refresh(now, message);
            if let Some(Token { packet, number, .. }) = token {
                let piece = self.config.wire.piece(packet, length);
                let free = self.config.free(self.config.wire.packets(length));
                let free = (free * self.config.wire.payload).min(length);
                let body = PHostBody::Data { piece, token: number, free, resent };
                return Some(PHostPacket { head, body });
            }
        }
    }

    /// Nothing was heard of a message: it may be that its RTS was lost, or the receiver's last
    /// word.
    pub(super) fn expire_rts(&mut self, now: Time) {
        while let Some((listed, message)) = self.rts_timers.pop(now) {
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let due = &mut outgoing.state.due;
            let fired = self.rts_timers.fired(due, (listed, message), now);
            if !fired || self.exchange.give_up(now, message) {
                continue;
            }
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length) = (outgoing.head, outgoing.length);
            let patience = &mut outgoing.state.patience;
            *patience = Duration(patience.0 * 2).min(MOST);
            self.say(head, PHostBody::Rts { length });
            self.await_word(now, message);
        }
    }
}
