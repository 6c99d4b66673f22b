//! A message at its sender: when its packets leave (`qbb-net-device.cc`, `GetNextQindex`;
//! `rdma-hw.cc`, `UpdateNextAvail`, `ChangeRate`, `RecoverQueue`).
//!
//! A packet may leave if fewer bytes than the window are in flight, and if the last one has taken
//! its time at the rate of the pair. Pairs that may send wait in `turns`, others for an answer or
//! for their time in `paces`. A NACK or a timeout sets the next byte back to the first that is not
//! acknowledged.

use homa_proto::{Duration, Time};

use crate::transport::exchange::Ref;
use crate::transport::parts::MessageTimer;

use super::control::{Lost, RateRange, RateSignal};
use super::controls::{Control, ControlConfig};
use super::{Rdma, RdmaAnswer, RdmaBody, RdmaConfig, RdmaPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct QueuePair {
    control: Control,
    /// All bytes before this one are acknowledged.
    acknowledged: u32,
    /// The next byte.
    next: u32,
    /// All bytes before this one were sent.
    sent: u32,
    /// When the next packet may leave, picoseconds.
    free_at: u64,
    /// Wire bytes of the last packet.
    last: u32,
    /// It is in the list of turns.
    listed: bool,
    pace: MessageTimer,
    due: MessageTimer,
    alarm: MessageTimer,
    /// Timeouts in a row.
    late: u32,
    /// It had a timeout.
    was_late: bool,
}

/// A timeout doubles up to this many times.
const DOUBLINGS: u32 = 6;

/// Picoseconds that `bytes` take at a rate.
fn picos(bytes: u32, rate: u64) -> u64 {
    u64::from(bytes) * 8_000_000_000_000 / rate.max(1)
}

/// When the next packet may leave if the last one had left at another rate.
fn moved(free_at: u64, last: u32, (before, after): (u64, u64)) -> u64 {
    (free_at + picos(last, after)).saturating_sub(picos(last, before))
}

impl QueuePair {
    /// A pair at the rate of its link.
    pub fn new(config: &RdmaConfig, control: &ControlConfig) -> Self {
        let range = RateRange { least: config.least, most: config.link };
        Self {
            control: Control::new(control, range),
            acknowledged: 0,
            next: 0,
            sent: 0,
            free_at: 0,
            last: 0,
            listed: false,
            pace: MessageTimer::default(),
            due: MessageTimer::default(),
            alarm: MessageTimer::default(),
            late: 0,
            was_late: false,
        }
    }

    /// Whether a packet may leave as soon as its time has come.
    fn is_open(&self, config: &RdmaConfig, length: u32) -> bool {
        let in_flight = self.next - self.acknowledged;
        let fits = |full| in_flight < self.control.window(full, config.link);
        self.next < length && config.window.is_none_or(fits)
    }

    /// When its time has come; clocks of hosts count nanoseconds.
    fn free(&self) -> Time {
        Time(self.free_at / 1_000)
    }

    /// Everything before `expected` arrived, or is no longer wanted; true if that is news.
    fn acknowledges(&mut self, expected: u32, length: u32) -> bool {
        let news = expected > self.acknowledged && expected <= length;
        if news {
            self.acknowledged = expected;
            (self.next, self.sent) = (self.next.max(expected), self.sent.max(expected));
            self.late = 0;
        }
        news
    }
}

/// The timeout after `late` timeouts in a row.
fn timeout(config: &RdmaConfig, late: u32) -> Duration {
    Duration(config.timeout.0 << late.min(DOUBLINGS))
}

impl Rdma {
    /// Gives a pair a turn, now or when its time has come.
    pub(super) fn list(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (length, pair) = (outgoing.length, &mut outgoing.state);
        if pair.listed || !pair.is_open(&self.config, length) {
            return;
        }
        if pair.free() > now {
            let free = pair.free();
            return self.paces.set(&mut pair.pace, message, free);
        }
        pair.listed = true;
        self.turns.push_back(message);
    }

    /// The packet of the pair whose turn it is.
    pub(super) fn next_data(&mut self, now: Time) -> Option<RdmaPacket> {
        loop {
            let message = self.turns.pop_front()?;
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length, pair) = (outgoing.head, outgoing.length, &mut outgoing.state);
            pair.listed = false;
            if !pair.is_open(&self.config, length) || pair.free() > now {
                self.list(now, message);
                continue;
            }
            let packet = pair.next / self.config.wire.payload;
            let piece = self.config.wire.piece(packet, length);
            let resent = piece.offset < pair.sent;
            pair.next = piece.offset + piece.len;
            pair.sent = pair.sent.max(pair.next);
            pair.last = self.config.wire.data(piece.len);
            // Rounding of the clock is compensated; a wait is not.
            pair.free_at = pair.free_at.max(now.0 * 1_000) + picos(pair.last, pair.control.rate());
            if pair.due.at().is_none() {
                self.timers.set(&mut pair.due, message, now + timeout(&self.config, pair.late));
            }
            let collected = self.control.carried(now, self.config.int_unit);
            self.list(now, message);
            return Some(RdmaPacket { head, body: RdmaBody::Data { piece, resent, collected } });
        }
    }

    /// An ACK or NACK arrived.
    pub(super) fn on_answer(&mut self, now: Time, message: Ref, answer: &RdmaAnswer) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (length, pair) = (outgoing.length, &mut outgoing.state);
        let news = pair.acknowledges(answer.expected, length);
        if pair.acknowledged == length {
            return self.exchange.finish(message);
        }
        if answer.is_nack {
            pair.next = pair.acknowledged;
            pair.control.lost(&self.control, now, Lost::Gap);
        }
        if let Some(collected) = answer.collected {
            let before = pair.control.rate();
            let signal = RateSignal {
                now,
                acknowledged: answer.expected,
                next: pair.next,
                marked: answer.marked,
                collected,
            };
            pair.control.acknowledged(&self.control, &signal);
            if pair.control.moves_next() {
                pair.free_at = moved(pair.free_at, pair.last, (before, pair.control.rate()));
            }
        }
        if pair.acknowledged == pair.next {
            pair.due.clear();
        } else if news {
            self.timers.set(&mut pair.due, message, now + self.config.timeout);
        }
        if let Some(alarm) = pair.control.deadline() {
            self.alarms.set(&mut pair.alarm, message, alarm);
        }
        self.list(now, message);
    }

    pub(super) fn expire_timers(&mut self, now: Time) {
        while let Some(message) = self.alarms.next_fired(now, &mut self.exchange, |messages, at| {
            Some(&mut messages.outgoing(at)?.state.alarm)
        }) {
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let pair = &mut outgoing.state;
            pair.control.expire(&self.control, now);
            if let Some(alarm) = pair.control.deadline() {
                self.alarms.set(&mut pair.alarm, message, alarm);
            }
            self.list(now, message);
        }
        while let Some(message) = self.timers.next_fired(now, &mut self.exchange, |messages, at| {
            Some(&mut messages.outgoing(at)?.state.due)
        }) {
            self.on_timeout(now, message);
        }
        while let Some(message) = self.paces.next_fired(now, &mut self.exchange, |messages, at| {
            Some(&mut messages.outgoing(at)?.state.pace)
        }) {
            self.list(now, message);
        }
    }

    /// Nothing was heard for too long: all that is in flight is sent again.
    fn on_timeout(&mut self, now: Time, message: Ref) {
        if self.exchange.give_up(now, message) {
            return;
        }
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let pair = &mut outgoing.state;
        pair.next = pair.acknowledged;
        pair.late += 1;
        pair.control.lost(&self.control, now, Lost::Silence(pair.late));
        self.timeouts.expired += 1;
        self.timeouts.flows += u64::from(!std::mem::replace(&mut pair.was_late, true));
        self.list(now, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::part;
    use super::*;

    const GBPS: u64 = 1_000_000_000;

    #[test]
    fn a_window_is_a_part_of_that_at_the_links_rate() {
        for (gbps, expected) in [(100, 52_000), (50, 26_000), (1, 520)] {
            assert_eq!(part(52_000, gbps * GBPS, 100 * GBPS), expected);
        }
        assert_eq!(part(52_000, 1, 100 * GBPS), 1);
    }

    #[test]
    fn a_new_rate_moves_the_next_packet() {
        assert_eq!(picos(1_090, 100 * GBPS), 87_200);
        // Half the rate: the packet takes as long again.
        let at = moved(187_200, 1_090, (100 * GBPS, 50 * GBPS));
        assert_eq!(at, 274_400);
        assert_eq!(moved(at, 1_090, (50 * GBPS, 100 * GBPS)), 187_200);
        assert_eq!(moved(10, 1_090, (GBPS, 100 * GBPS)), 0, "long ago");
    }
}
