//! A flow at its sender: window, timeout, probes (pFabric §4.3).

use homa_proto::Time;

use crate::transport::exchange::Ref;
use crate::transport::parts::{MessageTimer, PacketSet};

use super::{DATA, PFabric, PFabricBody, PFabricConfig, PFabricPacket};

/// A message that is being sent.
#[derive(Clone, Debug)]
pub(super) struct PFabricSending {
    acknowledged: PacketSet,
    packets: u32,
    /// Bytes without acknowledgement.
    left: u32,
    /// All packets before this one were sent since the last timeout, or are acknowledged.
    next: u32,
    /// All packets before this one were sent at least once.
    sent: u32,
    /// How many packets, from the first without acknowledgement on, may be in flight.
    window: u32,
    slow_start_up_to: u32,
    /// Acknowledgements since the window last grew, in the phase in which it grows by one per
    /// window.
    credit: u32,
    /// Timeouts in a row.
    timeouts: u32,
    probing: bool,
    due: MessageTimer,
    /// Its key among the ready messages.
    listed: Option<u64>,
    /// Of equal messages the older goes first.
    order: u32,
}

impl PFabricSending {
    pub fn new(config: &PFabricConfig, length: u32, order: u32) -> Self {
        let packets = config.wire.packets(length);
        Self {
            acknowledged: PacketSet::new(packets),
            packets,
            left: length,
            next: 0,
            sent: 0,
            window: config.initial_window,
            slow_start_up_to: u32::MAX,
            credit: 0,
            timeouts: 0,
            probing: false,
            due: MessageTimer::default(),
            listed: None,
            order,
        }
    }

    /// The packet to send next, if the window allows one.
    fn sendable(&self) -> Option<u32> {
        let next = self.acknowledged.next_missing(self.next);
        let end = self.packets.min(self.acknowledged.prefix().saturating_add(self.window));
        (next < end && !self.probing).then_some(next)
    }

    fn grow(&mut self, config: &PFabricConfig) {
        if self.window < self.slow_start_up_to {
            self.window += 1;
        } else {
            self.credit += 1;
            if self.credit >= self.window {
                self.credit = 0;
                self.window += 1;
            }
        }
        self.window = self.window.min(config.max_window);
    }
}

impl PFabric {
    /// Lists a message if it is ready to send, and removes it otherwise.
    pub(super) fn refresh(&mut self, message: Ref) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let sending = &mut outgoing.state;
        let key = u64::from(sending.left) << 32 | u64::from(sending.order);
        let key = sending.sendable().map(|_| key);
        self.ready.set(&mut sending.listed, message, key);
    }

    /// The next packet of the flow with the fewest bytes left.
    pub(super) fn next_data(&mut self, now: Time) -> Option<PFabricPacket> {
        loop {
            let message = self.ready.first()?;
            let Some(outgoing) = self.exchange.outgoing(message) else {
                self.ready.drop_first();
                continue;
            };
            let (head, length) = (outgoing.head, outgoing.length);
            let sending = &mut outgoing.state;
            let Some(packet) = sending.sendable() else {
                self.ready.set(&mut sending.listed, message, None);
                continue;
            };
            let piece = self.config.wire.piece(packet, length);
            let (left, resent) = (sending.left, packet < sending.sent);
            sending.next = packet + 1;
            sending.sent = sending.sent.max(packet + 1);
            if sending.due.at().is_none() {
                self.timers.set(&mut sending.due, message, now + self.config.timeout);
            }
            if sending.sendable().is_none() {
                self.ready.set(&mut sending.listed, message, None);
            }
            let body = PFabricBody::Data { piece, left, resent };
            return Some(PFabricPacket { head, body });
        }
    }

    /// Packets before `prefix` arrived, and so did `packet`.
    pub(super) fn on_ack(&mut self, now: Time, message: Ref, (prefix, packet): (u32, Option<u32>)) {
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (length, sending) = (outgoing.length, &mut outgoing.state);
        sending.probing = false;
        sending.timeouts = 0;
        let (before, count) = (sending.acknowledged.prefix(), sending.acknowledged.count());
        let prefix = prefix.min(sending.packets);
        sending.acknowledged.insert_prefix(prefix);
        if let Some(packet) = packet.filter(|&packet| packet < sending.packets) {
            sending.acknowledged.insert(packet);
        }
        let fresh = sending.acknowledged.count() - count;
        if fresh > 0 {
            let last = sending.packets - 1;
            let whole =
                sending.acknowledged.count() - u32::from(sending.acknowledged.contains(last));
            let tail = if sending.acknowledged.contains(last) {
                self.config.wire.span(last, length).1
            } else {
                0
            };
            sending.left = length - whole * self.config.wire.payload - tail;
            sending.grow(&self.config);
        }
        if sending.acknowledged.count() == sending.packets {
            self.ready.set(&mut sending.listed, message, None);
            return self.exchange.finish(message);
        }
        if sending.acknowledged.prefix() >= sending.sent {
            sending.due.clear();
        } else if sending.acknowledged.prefix() > before {
            self.timers.set(&mut sending.due, message, now + self.config.timeout);
        }
        self.refresh(message);
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

    /// Takes the packets in flight for lost and sends again from the first without acknowledgement,
    /// one at a time.
    fn on_timeout(&mut self, now: Time, message: Ref) {
        if self.exchange.give_up(now, message) {
            return;
        }
        let Some(outgoing) = self.exchange.outgoing(message) else { return };
        let (head, length, sending) = (outgoing.head, outgoing.length, &mut outgoing.state);
        sending.timeouts += 1;
        sending.slow_start_up_to = (sending.window / 2).max(2);
        (sending.window, sending.credit) = (1, 0);
        sending.next = 0;
        if sending.timeouts >= self.config.probe_after {
            sending.probing = true;
            self.timers.set(&mut sending.due, message, now + self.config.timeout);
            let body = PFabricBody::Probe { length, left: sending.left };
            // If data is paused, further probes would only pile up.
            if self.may_leave(DATA) {
                self.control.push_back(PFabricPacket { head, body });
            }
        }
        self.refresh(message);
    }
}
