//! A message at its sender: first window, pulls, NACKs and timeouts (NDP §3.2).

use std::collections::{BTreeMap, VecDeque};

use homa_proto::Time;

use crate::transport::exchange::{Head, Ref};
use crate::transport::parts::{MessageTimer, PacketSet};

use super::{Ndp, NdpBody, NdpConfig, NdpPacket};

/// A permit to send one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A packet that a NACK named, otherwise the next of the message.
    Any(Ref),
    /// This packet of the message.
    Packet(Ref, u32),
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct NdpSending {
    acknowledged: PacketSet,
    packets: u32,
    /// All packets before this one were sent at least once.
    sent: u32,
    /// All packets before this one were given a permit, if packets are chosen with their permits.
    chosen: u32,
    /// Packets that NACKs named or switches returned, to be sent again.
    again: VecDeque<u32>,
    /// PULLs received, by the receiver's count.
    pulls: u32,
    /// PULLs that found no packet to send, because they overtook the NACKs that caused them.
    credit: u32,
    /// Answers to packets (ACKs, NACKs) minus PULLs: how many PULLs should still come.
    expected_pulls: i64,
    /// Packets of the first window without an answer.
    first_window: u32,
    /// Packets without an answer since they were sent, and when that was.
    unanswered: BTreeMap<u32, Time>,
    /// The same in the order of sending; entries of packets that were answered or sent again are
    /// stale.
    order: VecDeque<(Time, u32)>,
    due: MessageTimer,
}

impl NdpSending {
    pub fn new(config: &NdpConfig, length: u32) -> Self {
        let packets = config.wire.packets(length);
        Self {
            acknowledged: PacketSet::new(packets),
            packets,
            sent: 0,
            chosen: 0,
            again: VecDeque::new(),
            pulls: 0,
            credit: 0,
            expected_pulls: 0,
            first_window: config.initial_window.max(1).min(packets),
            unanswered: BTreeMap::new(),
            order: VecDeque::new(),
            due: MessageTimer::default(),
        }
    }

    /// When the packet that has waited longest for an answer was sent.
    fn oldest(&mut self) -> Option<Time> {
        while let Some(&(at, packet)) = self.order.front() {
            if self.unanswered.get(&packet) == Some(&at) {
                return Some(at);
            }
            self.order.pop_front();
        }
        None
    }

    /// The packet to send again first, if there is one.
    fn next_again(&mut self) -> Option<u32> {
        while let Some(packet) = self.again.pop_front() {
            if !self.acknowledged.contains(packet) {
                return Some(packet);
            }
        }
        None
    }

    /// The packet to send if any may be sent.
    fn next(&mut self) -> Option<u32> {
        self.next_again().or_else(|| (self.sent < self.packets).then_some(self.sent))
    }

    /// An answer for a packet arrived.
    fn on_answer(&mut self, packet: u32) {
        self.unanswered.remove(&packet);
        self.first_window = self.first_window.saturating_sub(1);
    }
}

impl Ndp {
    /// Starts a message with a window at line rate.
    pub(super) fn push_window(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let window = outgoing.state.first_window;
        self.permit(message, window);
    }

    /// The next permitted packet.
    pub(super) fn next_data(&mut self, now: Time) -> Option<NdpPacket> {
        loop {
            let turn = self.again.pop_front().or_else(|| self.turns.pop_front())?;
            let (Turn::Any(message) | Turn::Packet(message, _)) = turn;
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length) = (outgoing.head, outgoing.length);
            let sending = &mut outgoing.state;
            let any = matches!(turn, Turn::Any(_));
            let packet = match turn {
                Turn::Any(_) => sending.next(),
                Turn::Packet(_, packet) => {
                    Some(packet).filter(|&packet| !sending.acknowledged.contains(packet))
                }
            };
            let Some(packet) = packet else {
                sending.credit += u32::from(any);
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
            // The ACKs of these packets were lost.
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
        // A late copy of a NACK must not queue a packet twice.
        if sending.unanswered.contains_key(&packet) && !sending.acknowledged.contains(packet) {
            sending.again.push_back(packet);
            if sending.credit > 0 {
                sending.credit -= 1;
                self.permit(message, 1);
            }
        }
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        outgoing.state.on_answer(packet);
        self.reset_timer(now, message);
    }

    pub(super) fn on_pull(&mut self, message: Ref, count: u32) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let new = count.saturating_sub(sending.pulls);
        sending.pulls += new;
        sending.expected_pulls -= i64::from(new);
        self.permit(message, new);
    }

    /// Permits a message `count` packets, which are chosen when they leave, or now, if packets that
    /// are sent again go first. Chosen now, a NACK that arrives while the first window is leaving
    /// does not put its packet in the place of a new one, which would then have to wait for a PULL.
    fn permit(&mut self, message: Ref, count: u32) {
        if !self.config.again_first {
            self.turns.extend((0..count).map(|_| Turn::Any(message)));
            return;
        }
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        for _ in 0..count {
            if let Some(packet) = sending.next_again() {
                self.again.push_back(Turn::Packet(message, packet));
            } else if sending.chosen < sending.packets {
                self.turns.push_back(Turn::Packet(message, sending.chosen));
                sending.chosen += 1;
            } else {
                sending.credit += 1;
            }
        }
    }

    /// A header was returned because switches have no space even for headers. It waits for a PULL
    /// unless none is expected, because the receiver's next packet times are already assigned (NDP
    /// §3.2.4).
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
        let permitted = credit || sending.expected_pulls <= 0 && sending.first_window == 0;
        sending.credit -= u32::from(credit);
        if permitted {
            self.permit(message, 1);
        }
        self.reset_timer(now, message);
    }

    /// Restarts the timer for the packet that has waited longest for an answer. If there is none,
    /// the timer is for packets that wait for a PULL.
    fn reset_timer(&mut self, now: Time, message: Ref) {
        let timeout = self.config.timeout;
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let since = sending.oldest().unwrap_or(now);
        self.timers.set(&mut sending.due, message, since + timeout);
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

    /// Sends packets without an answer again, without a PULL. If there are none, the PULLs were
    /// lost, and one packet is sent without.
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
            let turns = if self.config.again_first { &mut self.again } else { &mut self.turns };
            turns.push_back(Turn::Packet(message, packet));
            late = true;
        }
        if !late {
            self.permit(message, 1);
        }
        self.reset_timer(now, message);
    }
}
