//! A receiver's matched channels, and the tokens that it sends for them (authors' simulator:
//! `PIM_Vlink::send_token`).
//!
//! Channels that are matched with the same sender send tokens together, at their share of the
//! link's rate, to the message of that sender with the fewest packets missing. A message may have a
//! window of tokens unanswered, in proportion to the channels. A pair that finds nothing to send
//! sleeps until a message or data of its sender comes.

use homa_proto::Time;

use crate::transport::exchange::Ref;

use super::tokens::{MATCHED, PROMPT};
use super::{Channels, Dcpim, DcpimBody};

/// Channels that are matched with one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelPair {
    /// Index of the sender.
    pub source: u32,
    /// Its channels; prompt ones are in use before the data phase.
    pub channels: Channels,
    /// Packets that were missing of the message that it was matched for.
    pub left: u32,
    /// The level of its tokens.
    pub level: u8,
    /// What it does next.
    pub pace: ChannelPace,
}

/// What a pair does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelPace {
    /// Nothing, until it is woken.
    Asleep,
    /// Sends a token at this time, in picoseconds.
    Token(u64),
    /// Sends a token at this time, or earlier if an earlier token is answered.
    Window(Time),
}

impl ChannelPair {
    pub fn new(source: u32, left: u32) -> Self {
        let (channels, pace) = (Channels::default(), ChannelPace::Asleep);
        Self { source, channels, left, level: PROMPT, pace }
    }

    /// When it acts next.
    pub fn due(&self) -> Option<Time> {
        match self.pace {
            ChannelPace::Asleep => None,
            ChannelPace::Token(at) => Some(Time(at.div_ceil(1_000))),
            ChannelPace::Window(at) => Some(at),
        }
    }

    /// Channels that send tokens now.
    fn active(&self) -> u32 {
        if self.channels.prompt > 0 { self.channels.prompt } else { self.channels.count }
    }

    /// The next token is due at once.
    pub fn start(&mut self, now: Time) {
        self.pace = ChannelPace::Token(now.0 * 1_000);
    }

    /// Wakes it, unless its next token is already on time.
    fn wake(&mut self, now: Time) {
        if !matches!(self.pace, ChannelPace::Token(_)) {
            self.start(now);
        }
    }

    /// The pace after a token, or a token's turn, of a link whose packets take `packet` picoseconds
    /// and that has `k` channels. Rounding of the clock is compensated.
    fn after_token(&self, now: Time, packet: u64, k: u32) -> ChannelPace {
        let from = match self.pace {
            ChannelPace::Token(at) if at + 1_000 > now.0 * 1_000 => at,
            _ => now.0 * 1_000,
        };
        ChannelPace::Token(from + packet * u64::from(k) / u64::from(self.active().max(1)))
    }
}

impl Dcpim {
    /// The data phase of the matched channels begins, and that of the former ones ends. Channels
    /// for short messages have better levels.
    pub(super) fn begin_phase(&mut self, now: Time) {
        self.current = std::mem::take(&mut self.matching);
        self.current.sort_by_key(|pair| pair.left);
        let mut level = u32::from(MATCHED);
        for pair in &mut self.current {
            pair.level = level.min(u8::MAX.into()) as u8;
            level += pair.channels.count;
            pair.channels.prompt = 0;
            pair.start(now);
        }
    }

    /// Channels that are matched with a sender, in their data phase or for the next one.
    pub(super) fn held(&self, source: u32) -> u32 {
        let pairs = self.current.iter().chain(&self.matching);
        pairs.filter(|pair| pair.source == source).map(|pair| pair.channels.count).sum()
    }

    /// Wakes the channels of a sender.
    pub(super) fn wake(&mut self, now: Time, source: u32) {
        for pair in self.current.iter_mut().filter(|pair| pair.source == source) {
            pair.wake(now);
        }
        self.run_channels(now);
    }

    /// Sends the tokens that are due.
    pub(super) fn run_channels(&mut self, now: Time) {
        let is_due = |pair: &ChannelPair| pair.due().is_some_and(|at| at <= now);
        for at in 0..self.current.len() {
            while is_due(&self.current[at]) {
                self.current[at].pace = self.run_pair(now, self.current[at]);
            }
        }
        for at in 0..self.matching.len() {
            while is_due(&self.matching[at]) {
                self.matching[at].pace = self.run_pair(now, self.matching[at]);
            }
        }
    }

    /// A pair's turn; returns what it does next.
    fn run_pair(&mut self, now: Time, pair: ChannelPair) -> ChannelPace {
        let (config, active) = (self.config, pair.active());
        if active == 0 {
            return ChannelPace::Asleep;
        }
        let after = pair.after_token(now, config.packet_time(), config.channels);
        if self.hold > 0 {
            self.hold -= 1;
            return after;
        }
        let Some(message) = self.shortest(pair.source) else { return ChannelPace::Asleep };
        let Some(incoming) = self.exchange.incoming(message) else { return ChannelPace::Asleep };
        let limit = u64::from(config.window) * u64::from(active) / u64::from(config.channels);
        if let Err(until) = incoming.state.make_room(now, limit as u32, config.window_timeout) {
            return ChannelPace::Window(until);
        }
        self.issue(now, message, pair.level);
        after
    }

    fn issue(&mut self, now: Time, message: Ref, level: u8) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let (head, length, state) = (incoming.head, incoming.length, &mut incoming.state);
        let left = state.missing();
        let (packet, number, is_last) = state.next_token(now);
        let (offset, len) = self.config.wire.span(packet, length);
        let (end, epoch) = (offset + len, self.clock.epoch(self.round));
        self.say(head, DcpimBody::Token { packet, number, left, end, epoch, level });
        if is_last {
            self.wait(now + self.config.resend, message);
        }
    }
}
