//! A source: RTS, tokens, and the choice of the message that sends next (pHost §3.2, §3.3).

use std::collections::VecDeque;

use homa_proto::{Duration, Time};

use crate::transport::exchange::Ref;
use crate::transport::parts::MessageTimer;

use super::{PHost, PHostBody, PHostConfig, PHostPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct PHostSending {
    tokens: VecDeque<Token>,
    /// Packets missing at the receiver, according to its last token.
    left: u32,
    /// All packets before this one were sent at least once.
    sent: u32,
    /// When to repeat the RTS.
    due: MessageTimer,
    rts_timeout: Duration,
    /// Its key among the ready messages.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
}

/// A permit to send one packet.
#[derive(Clone, Copy, Debug)]
struct Token {
    packet: u32,
    number: u32,
    /// It is valid up to this time.
    until: Time,
}

/// The longest time between two RTSs.
const MAX_RTS_TIMEOUT: Duration = Duration::millis(10);

impl PHostSending {
    pub fn new(config: &PHostConfig, now: Time, (length, order): (u32, u32)) -> Self {
        let packets = config.wire.packets(length);
        let free = config.free(packets);
        // YAPS: one packet time longer for each free token.
        let until = now + config.tenths(10 * free + config.expiry);
        Self {
            tokens: (0..free).map(|n| Token { packet: n, number: n, until }).collect(),
            left: packets,
            sent: 0,
            due: MessageTimer::default(),
            rts_timeout: config.tenths(config.resend.saturating_mul(2)),
            listed: None,
            order,
        }
    }

    /// Drops expired tokens; true if a valid one is left.
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
    /// Starts a message with an RTS.
    pub(super) fn start(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (head, length) = (outgoing.head, outgoing.length);
        self.say(head, PHostBody::Rts { length });
        self.refresh(now, message);
        self.restart_rts_timer(now, message);
    }

    /// Restarts the timer of a message's RTS.
    fn restart_rts_timer(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        self.rts_timers.set(&mut sending.due, message, now + sending.rts_timeout);
    }

    /// Lists a message if it is ready to send, and removes it otherwise.
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
        let rts_timeout = self.config.tenths(self.config.resend.saturating_mul(2));
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let packets = self.config.wire.packets(outgoing.length);
        let sending = &mut outgoing.state;
        if packet >= packets {
            return;
        }
        sending.left = left;
        sending.rts_timeout = rts_timeout;
        sending.tokens.push_back(Token { packet, number, until });
        self.refresh(now, message);
        self.restart_rts_timer(now, message);
    }

    /// The next packet of the message with the fewest packets left, of those with tokens.
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

    /// No packet about a message arrived in time, because its RTS or the receiver's last packet may
    /// have been lost.
    pub(super) fn expire_rts(&mut self, now: Time) {
        while let Some(message) =
            self.rts_timers.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.outgoing(message)?.state.due)
            })
        {
            if self.exchange.give_up(now, message) {
                continue;
            }
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length) = (outgoing.head, outgoing.length);
            let rts_timeout = &mut outgoing.state.rts_timeout;
            *rts_timeout = Duration(rts_timeout.0 * 2).min(MAX_RTS_TIMEOUT);
            self.say(head, PHostBody::Rts { length });
            self.restart_rts_timer(now, message);
        }
    }
}
