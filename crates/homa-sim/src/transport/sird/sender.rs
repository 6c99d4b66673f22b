//! A sender: unsolicited packets, credit of receivers, and the choice of what to send next.

use std::collections::VecDeque;

use homa_proto::{Duration, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Head, Ref};
use crate::transport::parts::{MessageTimer, WireFormat};

use super::credit::{unsolicited, wire_of};
use super::turns::Turn;
use super::{Sird, SirdBody, SirdConfig, SirdPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct SirdSending {
    /// Index of its receiver.
    sink: u32,
    packets: u32,
    /// Packets for which it took credit without asking.
    unsolicited: u32,
    /// All packets before this one were sent at least once.
    sent: u32,
    /// Packets that the receiver asked for again.
    again: VecDeque<u32>,
    /// Its key among the messages to its receiver.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
    /// When to ask for the missing packets.
    due: MessageTimer,
    timeout: Duration,
}

/// The longest time between two requests.
const MAX_TIMEOUT: Duration = Duration::millis(10);

impl SirdSending {
    pub fn new(config: &SirdConfig, length: u32, (sink, held, order): (u32, u64, u32)) -> Self {
        let limits = (config.unsolicited, config.bdp);
        Self {
            sink,
            packets: config.wire.packets(length),
            unsolicited: unsolicited(&config.wire, length, limits, held),
            sent: 0,
            again: VecDeque::new(),
            listed: None,
            order,
            due: MessageTimer::default(),
            timeout: config.resend,
        }
    }

    /// The next packet to send, if there is one.
    fn next(&self) -> Option<u32> {
        self.again.front().copied().or((self.sent < self.packets).then_some(self.sent))
    }

    /// Its key among the messages to its receiver: the bytes that are left to send.
    fn key(&self, wire: &WireFormat, length: u32) -> Option<u64> {
        self.next()?;
        let unsent = u64::from(length.saturating_sub(self.sent.saturating_mul(wire.payload)));
        let again = self.again.len() as u64 * u64::from(wire.payload);
        Some((unsent + again).min(u64::from(u32::MAX)) << 32 | u64::from(self.order))
    }
}

impl Sird {
    /// Starts a message: with the credit that it took, or with a request.
    pub(super) fn start(&mut self, now: Time, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (head, length, sending) = (outgoing.head, outgoing.length, &mut outgoing.state);
        let (index, unsolicited) = (sending.sink, sending.unsolicited);
        self.timers.set(&mut sending.due, message, now + sending.timeout);
        if unsolicited == 0 {
            self.say(head, SirdBody::Request { length, unsolicited, sent: 0 });
        }
        let wire = &self.config.wire;
        let taken = wire_of(wire, length, 0) - wire_of(wire, length, unsolicited);
        self.add_credit(index, taken);
        self.list(message);
        self.refresh_sink(index);
    }

    fn add_credit(&mut self, index: u32, bytes: u64) {
        if let Some(sink) = self.sinks.get(index) {
            sink.credit += bytes;
            self.held += bytes;
        }
    }

    /// Lists a message among those to its receiver if it has something to send, and removes it
    /// otherwise.
    fn list(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (length, sending) = (outgoing.length, &mut outgoing.state);
        let key = sending.key(&self.config.wire, length);
        let Some(sink) = self.sinks.get(sending.sink) else { return };
        match (sending.listed, key) {
            (None, Some(_)) => self.outbound += 1,
            (Some(_), None) => self.outbound -= 1,
            _ => {}
        }
        sink.pending.set(&mut sending.listed, message, key);
    }

    /// Lists a receiver if a packet may be sent to it, and removes it otherwise. Credit that no
    /// message can spend is dropped.
    fn refresh_sink(&mut self, index: u32) {
        let Some(sink) = self.sinks.get(index) else { return };
        let next = loop {
            let (key, first) = (sink.pending.key(), sink.pending.first());
            let (Some(key), Some(message)) = (key, first) else { break None };
            if let Some(outgoing) = self.exchange.outgoing(message)
                && let Some(packet) = outgoing.state.next()
            {
                let len = self.config.wire.span(packet, outgoing.length).1;
                break Some((key, self.config.wire.data(len)));
            }
            sink.pending.drop_first();
            self.outbound -= 1;
        };
        if next.is_none() {
            self.held -= sink.credit;
            sink.credit = 0;
        }
        let key = next.filter(|&(_, wire)| u64::from(wire) <= sink.credit).map(|(key, _)| key);
        self.ready.set(&mut sink.listed, index, key);
        if key.is_some() && !sink.in_round {
            sink.in_round = true;
            self.round.push_back(index);
        }
    }

    /// The receiver whose turn it is.
    fn next_sink(&mut self) -> Option<u32> {
        let shortest = self.ready.first()?;
        if self.turns.next() == Turn::Shortest {
            return Some(shortest);
        }
        while let Some(index) = self.round.pop_front() {
            let Some(sink) = self.sinks.get(index) else { continue };
            sink.in_round = false;
            if sink.listed.is_some() {
                return Some(index);
            }
        }
        Some(shortest)
    }

    /// The next packet: of the shortest message to the receiver whose turn it is.
    pub(super) fn next_data(&mut self, now: Time) -> Option<SirdPacket> {
        loop {
            let index = self.next_sink()?;
            if let Some(packet) = self.data_for(now, index) {
                return Some(packet);
            }
            // Its message was given up meanwhile.
            self.refresh_sink(index);
        }
    }

    fn data_for(&mut self, now: Time, index: u32) -> Option<SirdPacket> {
        let config = &self.config;
        let sink = self.sinks.get(index)?;
        let message = sink.pending.first()?;
        let outgoing = self.exchange.outgoing(message)?;
        let (head, length, sending) = (outgoing.head, outgoing.length, &mut outgoing.state);
        let packet = sending.next()?;
        let piece = config.wire.piece(packet, length);
        let bytes = u64::from(config.wire.data(piece.len));
        if bytes > sink.credit {
            return None;
        }
        let resent = sending.again.pop_front().is_some();
        if !resent {
            sending.sent += 1;
        }
        sink.credit -= bytes;
        self.held -= bytes;
        let unsolicited = sending.unsolicited;
        self.timers.set(&mut sending.due, message, now + sending.timeout);
        let csn = self.held > u64::from(config.csn_threshold) && self.outbound >= 2;
        self.list(message);
        self.refresh_sink(index);
        let body = SirdBody::Data { piece, unsolicited, csn, resent };
        Some(SirdPacket { head, body })
    }

    /// A credit arrived: `bytes` for any message to this receiver. If it names a packet, that one
    /// is missing there.
    pub(super) fn on_credit(
        &mut self,
        now: Time,
        from: HostId,
        (head, bytes, again): (&Head, u32, Option<u32>),
    ) {
        let message = self.exchange.answered(now, from, head);
        let index = self.sinks.index(from, Default::default);
        self.add_credit(index, bytes.into());
        if let Some(message) = message
            && let Some(outgoing) = self.exchange.outgoing(message)
        {
            let sending = &mut outgoing.state;
            sending.timeout = self.config.resend;
            self.timers.set(&mut sending.due, message, now + sending.timeout);
            if let Some(packet) = again
                && packet < sending.sent
                && !sending.again.contains(&packet)
            {
                sending.again.push_back(packet);
                self.list(message);
            }
        }
        self.refresh_sink(index);
    }

    /// The receiver has the whole message.
    pub(super) fn on_ack(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let index = sending.sink;
        // Whatever the receiver asked for again has arrived.
        (sending.sent, sending.again) = (sending.packets, VecDeque::new());
        self.list(message);
        self.exchange.finish(message);
        self.refresh_sink(index);
    }

    /// Reports the progress of each message about which nothing was sent or heard for a while, so
    /// that the receiver gives credit for the missing packets.
    pub(super) fn expire_requests(&mut self, now: Time) {
        while let Some(message) =
            self.timers.next_fired(now, &mut self.exchange, |messages, message| {
                Some(&mut messages.outgoing(message)?.state.due)
            })
        {
            if self.exchange.give_up(now, message) {
                continue;
            }
            let Some(outgoing) = self.exchange.outgoing(message) else { continue };
            let (head, length, sending) = (outgoing.head, outgoing.length, &mut outgoing.state);
            let SirdSending { unsolicited, sent, .. } = *sending;
            let longest = MAX_TIMEOUT.max(self.config.resend);
            sending.timeout = Duration(sending.timeout.0.saturating_mul(2)).min(longest);
            self.timers.set(&mut sending.due, message, now + sending.timeout);
            self.say(head, SirdBody::Request { length, unsolicited, sent });
        }
    }
}
