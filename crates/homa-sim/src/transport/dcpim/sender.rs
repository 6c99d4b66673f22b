//! A sender: notifications, grants, and the data that tokens permit.

use homa_proto::{Duration, Time};

use crate::transport::exchange::{Head, Ref};
use crate::transport::parts::MessageTimer;

use super::matching::{Bid, divide};
use super::tokens::{Tokens, UNMATCHED};
use super::{Channels, Dcpim, DcpimBody, DcpimConfig, DcpimPacket, is_too_late};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct DcpimSending {
    /// Packets that are missing at the receiver, according to its last token.
    left: u32,
    /// All packets before this one were sent at least once.
    sent: u32,
    /// Packets of the receiver about it in a row that came too late.
    late: u32,
    /// When to announce it again.
    due: MessageTimer,
    timeout: Duration,
    /// Of equal messages the older goes first.
    order: u32,
}

/// Channels that a receiver requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelRequest {
    head: Head,
    bid: Bid,
}

/// The longest time between two notifications.
const MAX_TIMEOUT: Duration = Duration::millis(10);

impl DcpimSending {
    pub fn new(config: &DcpimConfig, (length, order): (u32, u32)) -> Self {
        Self {
            left: config.wire.packets(length),
            sent: 0,
            late: 0,
            due: MessageTimer::default(),
            timeout: config.notify,
            order,
        }
    }
}

impl Dcpim {
    /// Announces a message, and sends it if it is short.
    pub(super) fn start(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (head, length, packets) = (outgoing.head, outgoing.length, outgoing.state.left);
        self.say(head, DcpimBody::Notify { length });
        self.restart_timer(now, message);
        if packets <= self.config.short {
            let (level, until) = (UNMATCHED, Time::MAX);
            self.tokens.push(Tokens { message, next: 0, end: packets, number: 0, level, until });
        }
    }

    fn restart_timer(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        self.notices.set(&mut sending.due, message, now + sending.timeout);
    }

    /// The receiver has said something about a message.
    fn hear_about(&mut self, now: Time, message: Ref) {
        if let Some(outgoing) = self.exchange.outgoing(message) {
            outgoing.state.timeout = self.config.notify;
        }
        self.restart_timer(now, message);
    }

    /// Collects a request until the middle of the round.
    pub(super) fn on_request(
        &mut self,
        now: Time,
        message: Ref,
        (round, left, channels): (u64, u32, Channels),
    ) {
        self.hear_about(now, message);
        let half = self.clock.half(self.round);
        let in_time = round == self.round && now < half;
        let patience = self.config.patience();
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        if is_too_late(&mut outgoing.state.late, in_time, patience) {
            return;
        }
        let next = if now < half { half } else { self.clock.half(self.round + 1) };
        self.answers_at.get_or_insert(next);
        let bid = Bid { left, order: outgoing.state.order, wants: channels };
        self.requests.push(ChannelRequest { head: outgoing.head, bid });
    }

    /// Half of the round is over: divides the free channels among the requests.
    pub(super) fn grant(&mut self, now: Time) {
        if self.answers_at.is_none_or(|at| at > now) {
            return;
        }
        self.answers_at = None;
        let requests = std::mem::take(&mut self.requests);
        let bids: Vec<Bid> = requests.iter().map(|request| request.bid).collect();
        let free = self.sending.free(self.config.channels);
        for (at, channels) in divide(&bids, free, self.bid_order()) {
            let ChannelRequest { head, bid } = requests[at];
            let (round, left) = (self.round, bid.left);
            self.say(head, DcpimBody::Grant { round, left, channels });
        }
    }

    /// A receiver accepted channels. If the sender granted them more than once, because an earlier
    /// acceptance was late, it takes the surplus back.
    pub(super) fn on_accept(&mut self, head: Head, (round, channels): (u64, Channels)) {
        let k = self.config.channels;
        let taken = match self.clock.epoch(self.round).checked_sub(self.clock.epoch(round)) {
            Some(0) => &mut self.sending,
            Some(1) => &mut self.sending_before,
            _ => return,
        };
        let count = channels.count.min(taken.free(k).count);
        let kept = Channels { count, prompt: channels.prompt.min(count) };
        taken.take(kept);
        let over =
            Channels { count: channels.count - kept.count, prompt: channels.prompt - kept.prompt };
        if over.count > 0 {
            self.say(head, DcpimBody::Return { round, channels: over });
        }
    }

    pub(super) fn on_token(
        &mut self,
        now: Time,
        message: Ref,
        ((packet, number, left), epoch, level): ((u32, u32, u32), u64, u8),
    ) {
        self.hear_about(now, message);
        let (end, patience) = (self.clock.end(epoch) + self.config.grace, self.config.patience());
        let wire = self.config.wire;
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        if packet >= wire.packets(outgoing.length) {
            return;
        }
        let sending = &mut outgoing.state;
        sending.left = left;
        if is_too_late(&mut sending.late, now <= end, patience) {
            return;
        }
        // A token that counts although it is late does not expire.
        let until = if now <= end { end } else { Time::MAX };
        self.tokens.push(Tokens { message, next: packet, end: packet + 1, number, level, until });
    }

    /// The next packet that a token permits.
    pub(super) fn next_data(&mut self, now: Time) -> Option<DcpimPacket> {
        loop {
            let exchange = &mut self.exchange;
            let left = |message| exchange.outgoing(message).map_or(u32::MAX, |it| it.state.left);
            let spent = self.tokens.pop(left)?;
            if spent.until < now {
                continue;
            }
            let Some(outgoing) = self.exchange.outgoing(spent.message) else { continue };
            let (head, length, sending) = (outgoing.head, outgoing.length, &mut outgoing.state);
            let resent = spent.next < sending.sent;
            sending.sent = sending.sent.max(spent.next + 1);
            let (wire, number) = (&self.config.wire, spent.number);
            let short = wire.packets(length) <= self.config.short;
            let piece = wire.piece(spent.next, length);
            let body = DcpimBody::Data { piece, number, resent, short };
            return Some(DcpimPacket { head, body });
        }
    }

    /// Announces again each message about which nothing was heard for a while, because its
    /// notification or the receiver's last packet may have been lost.
    pub(super) fn expire_notices(&mut self, now: Time) {
        while let Some(message) =
            self.notices.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.outgoing(message)?.state.due)
            })
        {
            if self.exchange.give_up(now, message) {
                continue;
            }
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length, timeout) =
                (outgoing.head, outgoing.length, &mut outgoing.state.timeout);
            let longest = MAX_TIMEOUT.max(self.config.notify);
            *timeout = Duration(timeout.0.saturating_mul(2)).min(longest);
            self.say(head, DcpimBody::Notify { length });
            self.restart_timer(now, message);
        }
    }
}
