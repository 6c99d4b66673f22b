//! A message at its sender: first window, pulls, what NACKs name, timeouts (NDP §3.2).

use std::collections::{BTreeMap, VecDeque};

use homa_proto::Time;

use crate::transport::exchange::{Head, Ref};
use crate::transport::parts::{Due, PacketSet};

use super::{Ndp, NdpBody, NdpConfig, NdpPacket};

/// Leave to send one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// What a NACK named, else the next of the message.
    Any(Ref),
    /// This packet of the message.
    Packet(Ref, u32),
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    acknowledged: PacketSet,
    packets: u32,
    /// Packets before were sent at some time.
    sent: u32,
    /// Named by NACKs, or returned: to be sent again.
    again: VecDeque<u32>,
    /// PULLs, as the receiver counts them.
    pulls: u32,
    /// PULLs that found nothing to send: they overtook the NACKs that they were sent for.
    credit: u32,
    /// Answers to packets (ACKs, NACKs) less PULLs: so many PULLs are still to come.
    expected_pulls: i64,
    /// Packets of the first window of which nothing was heard.
    first_window: u32,
    /// Packets of which nothing was heard since they were sent, with the time.
    unanswered: BTreeMap<u32, Time>,
    /// The same in the order of sending; those that were answered, or sent again, are stale.
    order: VecDeque<(Time, u32)>,
    due: Due,
}

impl Sending {
    pub fn new(config: &NdpConfig, length: u32) -> Self {
        let packets = config.wire.packets(length);
        Self {
            acknowledged: PacketSet::new(packets),
            packets,
            sent: 0,
            again: VecDeque::new(),
            pulls: 0,
            credit: 0,
            expected_pulls: 0,
            first_window: config.initial_window.max(1).min(packets),
            unanswered: BTreeMap::new(),
            order: VecDeque::new(),
            due: Due::default(),
        }
    }

    /// When the packet that waits longest for an answer was sent.
    fn oldest(&mut self) -> Option<Time> {
        while let Some(&(at, packet)) = self.order.front() {
            if self.unanswered.get(&packet) == Some(&at) {
                return Some(at);
            }
            self.order.pop_front();
        }
        None
    }

    /// What to send with leave for any packet.
    fn next(&mut self) -> Option<u32> {
        while let Some(packet) = self.again.pop_front() {
            if !self.acknowledged.contains(packet) {
                return Some(packet);
            }
        }
        (self.sent < self.packets).then_some(self.sent)
    }

    /// Something was heard of a packet.
    fn on_answer(&mut self, packet: u32) {
        self.unanswered.remove(&packet);
        self.first_window = self.first_window.saturating_sub(1);
    }
}

impl Ndp {
    /// A message begins with a window at line rate.
    pub(super) fn push_window(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let window = outgoing.state.first_window;
        self.turns.extend((0..window).map(|_| Turn::Any(message)));
    }

    /// The packet whose turn it is.
    pub(super) fn next_data(&mut self, now: Time) -> Option<NdpPacket> {
        loop {
            let turn = self.turns.pop_front()?;
            let (Turn::Any(message) | Turn::Packet(message, _)) = turn;
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length) = (outgoing.head, outgoing.length);
            let sending = &mut outgoing.state;
            let packet = match turn {
                Turn::Any(_) => sending.next(),
                Turn::Packet(_, packet) => {
                    Some(packet).filter(|&packet| !sending.acknowledged.contains(packet))
                }
            };
            let Some(packet) = packet else {
                sending.credit += u32::from(matches!(turn, Turn::Any(_)));
                continue;
            };
            let resent = packet < sending.sent;
            sending.sent = sending.sent.max(packet + 1);
            sending.unanswered.insert(packet, now);
            sending.order.push_back((now, packet));
            if sending.due.at().is_none() {
                self.timers.set(&mut sending.due, message, now + self.config.timeout);
            }
            let path = self.paths.next(head.to);
            let piece = self.config.wire.piece(packet, length);
            let pushed = self.config.permitted(0, length);
            let body = NdpBody::Data { piece, pushed, resent };
            return Some(NdpPacket { head, body, path });
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, message: Ref, (packet, prefix): (u32, u32)) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        if packet >= sending.packets {
            return;
        }
        sending.expected_pulls += 1;
        sending.on_answer(packet);
        sending.acknowledged.insert(packet);
        let before = sending.acknowledged.prefix();
        let prefix = prefix.min(sending.packets);
        if sending.acknowledged.insert_prefix(prefix) {
            // ACKs of these were lost.
            for packet in before..prefix {
                sending.unanswered.remove(&packet);
            }
        }
        if sending.acknowledged.count() == sending.packets {
            return self.exchange.finish(message);
        }
        self.reset_timer(now, message);
    }

    pub(super) fn on_nack(&mut self, now: Time, message: Ref, packet: u32) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        if packet >= sending.packets {
            return;
        }
        sending.expected_pulls += 1;
        // A late copy of a NACK must not bring a packet into the queue twice.
        if sending.unanswered.contains_key(&packet) && !sending.acknowledged.contains(packet) {
            sending.again.push_back(packet);
            if sending.credit > 0 {
                sending.credit -= 1;
                self.turns.push_back(Turn::Any(message));
            }
        }
        sending.on_answer(packet);
        self.reset_timer(now, message);
    }

    pub(super) fn on_pull(&mut self, message: Ref, count: u32) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let new = count.saturating_sub(sending.pulls);
        sending.pulls += new;
        sending.expected_pulls -= i64::from(new);
        self.turns.extend((0..new).map(|_| Turn::Any(message)));
    }

    /// A header came back: switches have no room even for those. Unless no PULL is to come, wait
    /// for one: the receiver's first packet time is spoken for (NDP §3.2.4).
    pub(super) fn on_returned(&mut self, now: Time, head: &Head, (packet, path): (u32, u16)) {
        let to = head.to;
        let Some(message) = self.exchange.own(head) else { return };
        self.paths.refused(to, path, 3);
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        if sending.unanswered.contains_key(&packet) {
            sending.again.push_front(packet);
        }
        sending.on_answer(packet);
        let credit = sending.credit > 0;
        if credit || sending.expected_pulls <= 0 && sending.first_window == 0 {
            sending.credit -= u32::from(credit);
            self.turns.push_back(Turn::Any(message));
        }
        self.reset_timer(now, message);
    }

    /// The timer runs for the packet that waits longest for an answer; with none, for those that
    /// wait for a PULL.
    fn reset_timer(&mut self, now: Time, message: Ref) {
        let timeout = self.config.timeout;
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let since = sending.oldest().unwrap_or(now);
        self.timers.set(&mut sending.due, message, since + timeout);
    }

    pub(super) fn expire_timers(&mut self, now: Time) {
        while let Some((listed, message)) = self.timers.pop(now) {
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let due = &mut outgoing.state.due;
            if self.timers.fired(due, (listed, message), now) {
                self.on_timeout(now, message);
            }
        }
    }

    /// Packets of which nothing was heard are sent again without a PULL; if there is none, the
    /// PULLs were lost, and one packet goes without.
    fn on_timeout(&mut self, now: Time, message: Ref) {
        if self.exchange.give_up(now, message) {
            return;
        }
        let timeout = self.config.timeout;
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let mut late = false;
        while let Some(at) = sending.oldest().filter(|&at| at + timeout <= now) {
            let Some((_, packet)) = sending.order.pop_front() else { break };
            debug_assert!(at <= now);
            sending.unanswered.remove(&packet);
            self.turns.push_back(Turn::Packet(message, packet));
            late = true;
        }
        if !late {
            self.turns.push_back(Turn::Any(message));
        }
        self.reset_timer(now, message);
    }
}
