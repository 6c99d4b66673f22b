//! A message at its sender: which packet is sent when, and what answers change (UET 1.0;
//! `uet-htsim` 40ccb05, `uec.cpp`).
//!
//! Packets that are to be sent again go first, lowest number first. A packet asks for an
//! acknowledgement if it is sent again or if nothing may follow it: it is the last new one, or
//! fills the window, or uses up the credit. Messages of a host take turns. A timeout finds packets
//! without any answer; it doubles each time that a packet is sent again (the simulator's does not).
//! As there, a NACK does not say which copy of its packet it is about, so one of an earlier copy
//! measures a round trip that is too short.
//!
//! A sender that lacks credit after a timeout sends a request (RTS), at most one in a round trip.

use homa_proto::Time;
use homa_workload::rng::Rng;

use crate::transport::exchange::Ref;
use crate::transport::parts::MessageTimer;

use super::credit::Credit;
use super::entropy::{Entropy, PathReport};
use super::sent::{SentPacket, SentPackets};
use super::window::{Nscc, WindowSignal};
use super::{Uet, UetAck, UetBody, UetConfig, UetPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct UetSending {
    packets: u32,
    flight: SentPackets,
    entropy: Entropy,
    nscc: Nscc,
    credit: Credit,
    /// Bytes that the receiver has counted.
    counted: u64,
    /// It waits for its turn.
    listed: bool,
    /// It had a timeout.
    late: bool,
    due: MessageTimer,
}

impl UetSending {
    /// A message of `length` bytes that starts now.
    pub fn new(config: &UetConfig, rng: &mut Rng, (now, length): (Time, u32)) -> Self {
        Self {
            packets: config.wire.packets(length),
            flight: SentPackets::default(),
            entropy: Entropy::new(config.paths, config.evs, rng),
            nscc: Nscc::new(&config.nscc, now),
            credit: Credit::new(&config.rccc),
            counted: 0,
            listed: false,
            late: false,
            due: MessageTimer::default(),
        }
    }

    /// The packet that is next, if there is one, and its wire bytes.
    fn next(&self, config: &UetConfig, length: u32) -> Option<(u32, u32)> {
        let new = Some(self.flight.next_new()).filter(|&packet| packet < self.packets);
        let packet = self.flight.next_again().or(new)?;
        Some((packet, size(config, packet, length)))
    }

    /// Whether a packet of `bytes` may be sent: it fits the window, and there is credit.
    fn may_send(&self, config: &UetConfig, bytes: u32) -> bool {
        let fits = self.flight.bytes() + u64::from(bytes) <= self.nscc.window();
        let control = config.control;
        (fits || !control.has_windows()) && (self.credit.is_there() || !control.has_credit())
    }

    /// Whether nothing may follow a packet of `bytes` that was sent just now: the window or the
    /// credit is used up.
    fn is_stopped(&self, config: &UetConfig, bytes: u32) -> bool {
        let fills = self.flight.bytes() + u64::from(bytes) >= self.nscc.window();
        let control = config.control;
        fills && control.has_windows() || !self.credit.is_there() && control.has_credit()
    }

    /// Wire bytes that are still to be sent, and whether new ones are among them.
    fn backlog(&self, config: &UetConfig, length: u32) -> (u64, bool) {
        let new = self.packets - self.flight.next_new();
        let (missing, last) = self.flight.missing(self.packets - 1);
        let full = u64::from(config.wire.full());
        let short = full - u64::from(size(config, self.packets - 1, length));
        let with_last = new > 0 || last;
        (u64::from(new + missing) * full - if with_last { short } else { 0 }, new > 0)
    }

    /// The pull target of a packet that leaves, with `sources` messages that share the link; 0
    /// without credit.
    fn announce(&mut self, config: &UetConfig, length: u32, sources: usize) -> u32 {
        if !config.control.has_credit() {
            return 0;
        }
        let window = config.control.has_windows().then_some(self.nscc.window());
        let backlog = self.backlog(config, length);
        let target = self.credit.target(&config.rccc, backlog, window, sources);
        self.credit.announces(target);
        target
    }

    /// Whether it has something to send, and no credit for it.
    fn lacks_credit(&self, config: &UetConfig) -> bool {
        let waits = self.flight.next_new() < self.packets || self.flight.next_again().is_some();
        config.control.has_credit() && waits && !self.credit.is_there()
    }

    /// The round trip of a packet, if its answer tells which copy it is about.
    fn rtt(&mut self, now: Time, packet: u32, resent: bool) -> Option<u64> {
        let sent = self.flight.flying(packet)?;
        (sent.resent == u8::from(resent)).then(|| now.since(sent.at).0)
    }
}

/// Wire bytes of a packet.
fn size(config: &UetConfig, packet: u32, length: u32) -> u32 {
    config.wire.data(config.wire.span(packet, length).1)
}

impl Uet {
    /// Gives a message a turn, if it may send.
    pub(super) fn list(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let next = sending.next(&self.config, outgoing.length);
        if !sending.listed && next.is_some_and(|(_, bytes)| sending.may_send(&self.config, bytes)) {
            sending.listed = true;
            self.turns.push_back(message);
        }
    }

    /// The packet of the message whose turn it is.
    pub(super) fn next_data(&mut self, now: Time) -> Option<UetPacket> {
        loop {
            let sources = self.turns.len();
            let message = self.turns.pop_front()?;
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length) = (outgoing.head, outgoing.length);
            let sending = &mut outgoing.state;
            sending.listed = false;
            let (config, next) = (&self.config, sending.next(&self.config, length));
            let next = next.filter(|&(_, bytes)| sending.may_send(config, bytes));
            let Some((packet, bytes)) = next else { continue };
            let resent = packet < sending.flight.next_new();
            let ev = sending.entropy.next(now, &mut self.rng);
            let expires = sending.flight.sends((packet, bytes), (now, config.timeout), ev);
            sending.credit.spend(bytes);
            let is_last = sending.flight.next_new() == sending.packets;
            let body = UetBody::Data {
                piece: config.wire.piece(packet, length),
                asks: resent || is_last || sending.is_stopped(config, bytes),
                resent,
                target: sending.announce(config, length, sources),
            };
            if sending.due.at().is_none_or(|due| expires < due) {
                self.timers.set(&mut sending.due, message, expires);
            }
            self.list(message);
            return Some(UetPacket { head, body, ev });
        }
    }

    pub(super) fn on_ack(
        &mut self,
        now: Time,
        message: Ref,
        (ack, resent, came_by): (UetAck, bool, u16),
    ) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let length = outgoing.length;
        let sending = &mut outgoing.state;
        let bytes = ack.received.saturating_sub(sending.counted);
        sending.counted += bytes;
        sending.flight.arrived(bytes);
        let rtt = sending.rtt(now, ack.packet, resent);
        let config = &self.config;
        let (prefix, packets) = (ack.prefix.min(sending.packets), sending.packets);
        let named = (0..64).filter(|bit| ack.bitmap >> bit & 1 == 1);
        let named = named.filter_map(|bit| ack.from.checked_add(bit));
        let named = named.filter(|&packet| packet < packets);
        for packet in (sending.flight.received()..prefix).chain(named) {
            sending.flight.acknowledged(packet, size(config, packet, length));
        }
        let report = if ack.marked { PathReport::Marked } else { PathReport::Good };
        sending.entropy.report(now, came_by, report);
        let in_flight = sending.flight.bytes();
        let signal = WindowSignal { now, bytes, rtt, marked: ack.marked, in_flight };
        sending.nscc.acknowledged(&config.nscc, signal);
        sending.credit.heard();
        // A receiver that wants no more, because the call has ended there, claims to have all.
        if sending.flight.received() == packets || ack.prefix == packets {
            return self.exchange.finish(message);
        }
        self.reset_timer(now, message);
        self.list(message);
    }

    /// A pull arrived.
    pub(super) fn on_pull(&mut self, now: Time, message: Ref, quanta: u32) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        outgoing.state.credit.pulled(&self.config.rccc, quanta);
        self.reset_timer(now, message);
        self.list(message);
    }

    pub(super) fn on_nack(
        &mut self,
        now: Time,
        message: Ref,
        (packet, came_by): (u32, u16),
        (last_hop, marked): (bool, bool),
    ) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let length = outgoing.length;
        let sending = &mut outgoing.state;
        let Some(sent) = sending.flight.flying(packet) else { return };
        let config = &self.config;
        let bytes = size(config, packet, length);
        let in_flight = sending.flight.bytes();
        let rtt = Some(now.since(sent.at).0);
        let signal = WindowSignal { now, bytes: bytes.into(), rtt, marked, in_flight };
        sending.nscc.trimmed(&config.nscc, signal, last_hop && config.control.has_credit());
        sending.flight.misses(packet, bytes);
        sending.credit.heard();
        let report = match (last_hop, marked) {
            (false, _) => PathReport::Trimmed,
            (true, true) => PathReport::Marked,
            (true, false) => PathReport::Good,
        };
        sending.entropy.report(now, came_by, report);
        self.reset_timer(now, message);
        self.list(message);
    }

    /// Sets the timer for the packet that expires first. If none is in flight, a sender that lacks
    /// credit waits for a pull, which may have been lost.
    fn reset_timer(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (config, sending) = (&self.config, &mut outgoing.state);
        let expires = sending.flight.earliest().map(|(_, sent)| sent.expires);
        let asks = || {
            let patience = sending.credit.patience(config.timeout);
            sending.lacks_credit(config).then(|| Time(now.0.saturating_add(patience.0)))
        };
        match expires.or_else(asks) {
            Some(at) => self.timers.set(&mut sending.due, message, at),
            None => sending.due.clear(),
        }
    }

    pub(super) fn expire_timers(&mut self, now: Time) {
        while let Some(message) =
            self.timers.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.outgoing(message)?.state.due)
            })
        {
            self.on_timeout(now, message);
        }
    }

    /// Nothing was heard of packets for too long: they are to be sent again.
    fn on_timeout(&mut self, now: Time, message: Ref) {
        if self.exchange.give_up(now, message) {
            return;
        }
        let config = &self.config;
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let length = outgoing.length;
        let sending = &mut outgoing.state;
        let late = |(_, sent): &(u32, SentPacket)| sent.expires <= now;
        let mut any_late = false;
        while let Some((packet, sent)) = sending.flight.earliest().filter(late) {
            any_late = true;
            let bytes = size(config, packet, length);
            sending.flight.misses(packet, bytes);
            sending.nscc.lost(&config.nscc, bytes.into());
            sending.entropy.report(now, sent.ev, PathReport::Lost);
            self.timeouts.expired += 1;
            self.timeouts.flows += u64::from(!std::mem::replace(&mut sending.late, true));
        }
        let waited = any_late || sending.flight.earliest().is_none();
        if waited && sending.lacks_credit(config) && sending.credit.asks(&config.rccc, now) {
            // The wait for credit has expired, and not that for a packet.
            if !any_late {
                self.timeouts.expired += 1;
                self.timeouts.flows += u64::from(!std::mem::replace(&mut sending.late, true));
            }
            let (head, target) = (outgoing.head, sending.announce(config, length, 1));
            let ev = sending.entropy.next(now, &mut self.rng);
            let body = UetBody::Rts { length, target };
            self.control.push_back(UetPacket { head, body, ev });
        }
        self.reset_timer(now, message);
        self.list(message);
    }
}
