//! A message at its receiver: which packets are acknowledged when (UET 1.0; `uet-htsim` 40ccb05,
//! `uec.cpp`).
//!
//! An acknowledgement follows after 16,384 bytes, or at once if its packet is the first of the
//! message, was marked, is a copy, or asks for one; and again when everything before such a packet
//! has arrived. It carries the end of the prefix that is complete, a bitmap of 64 packets, and the
//! bytes received so far. A trimmed packet is answered by a NACK. With credit, every packet moves
//! the message's pull target, and a trimmed one or a request to send gets it a pull in any case.

use homa_proto::{DropReason, Receipt, Time};

use crate::topology::HostId;
use crate::transport::PacketMeta;
use crate::transport::exchange::{Head, MessageLookup, Ref};
use crate::transport::parts::{PacketSet, Piece};

use super::core_rate::DataArrival;
use super::credit::Pulled;
use super::{Uet, UetAck, UetBody, UetConfig, UetPacket};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct UetReceiving {
    here: PacketSet,
    packets: u32,
    /// Wire bytes received, without those of copies.
    received: u64,
    /// Wire bytes since the last acknowledgement.
    unacknowledged: u32,
    /// A packet asked for an acknowledgement, and earlier ones are missing.
    asked: bool,
    pulled: Pulled,
}

/// Packets in a bitmap.
const BITS: u32 = 64;

impl UetReceiving {
    pub fn new(config: &UetConfig, length: u32) -> Self {
        let packets = config.wire.packets(length);
        Self {
            here: PacketSet::new(packets),
            packets,
            received: 0,
            unacknowledged: 0,
            asked: false,
            pulled: Pulled::default(),
        }
    }

    /// The acknowledgement of a packet. `from` is the first packet of its bitmap.
    fn acknowledgement(&self, packet: u32, from: u32, marked: bool) -> UetAck {
        let end = self.packets.min(from.saturating_add(BITS));
        let here = (from..end).filter(|&packet| self.here.contains(packet));
        let bitmap = here.fold(0, |bitmap, packet| bitmap | 1 << (packet - from));
        let prefix = self.here.prefix().min(self.packets);
        UetAck { packet, prefix, from, bitmap, received: self.received, marked }
    }

    /// The first packet of a bitmap that ends with `packet`.
    fn bitmap_to(&self, packet: u32) -> u32 {
        packet.saturating_add(1).saturating_sub(BITS).max(self.here.prefix() + 1)
    }

    /// A packet of `bytes` on the wire arrived. Returns whether it is new, and the acknowledgement
    /// that follows at once.
    fn takes(
        &mut self,
        packet: u32,
        bytes: u32,
        (marked, asks): (bool, bool),
        every: u32,
    ) -> (bool, Option<UetAck>) {
        self.unacknowledged = self.unacknowledged.saturating_add(bytes);
        if packet >= self.packets || self.here.contains(packet) {
            self.unacknowledged = 0;
            let from = if marked { packet } else { self.bitmap_to(packet) };
            return (false, Some(self.acknowledgement(packet, from, marked)));
        }
        let is_first = self.received == 0;
        self.received += u64::from(bytes);
        self.asked |= asks;
        self.here.insert(packet);
        let is_gapless = self.here.count() == self.here.prefix();
        let answers = is_gapless && std::mem::take(&mut self.asked);
        let due = self.unacknowledged >= every || self.here.count() == self.packets;
        if !(marked || asks || answers || is_first || due) {
            return (true, None);
        }
        self.unacknowledged = 0;
        let from = if marked || asks { packet } else { self.bitmap_to(packet) };
        (true, Some(self.acknowledgement(packet, from, marked)))
    }
}

impl Uet {
    fn find(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) -> MessageLookup {
        let config = &self.config;
        self.exchange.arrived(now, from, (head, length), || UetReceiving::new(config, length))
    }

    /// Answers about a message of `length` bytes that is complete.
    fn say_done(
        &mut self,
        head: Head,
        (packet, length): (u32, u32),
        (resent, came_by): (bool, u16),
    ) {
        let prefix = self.config.wire.packets(length);
        let ack = UetAck { packet, prefix, ..UetAck::default() };
        self.say(head, UetBody::Ack { ack, resent, came_by });
    }

    /// A packet of a message said how many quanta its sender wants in all. It gets a pull if that
    /// is more than before, or `anyway`.
    fn want(&mut self, message: Ref, (target, anyway): (u32, bool)) {
        if self.config.control.has_credit()
            && let Some(incoming) = self.exchange.incoming(message)
        {
            self.pulls.wants(&mut incoming.state.pulled, message, (target, anyway));
        }
    }

    /// Sends pulls that are due.
    pub(super) fn pull(&mut self, now: Time) {
        while let Some(message) = self.pulls.take(now) {
            // A message that is complete is pulled no more.
            let Some(incoming) = self.exchange.incoming(message) else { continue };
            let (head, pulled) = (incoming.head, &mut incoming.state.pulled);
            let pull = self.pulls.pull(&self.config.rccc, pulled, (now, message));
            let ev = pull.number & (self.config.evs - 1);
            let body = UetBody::Pull { quanta: pull.quanta };
            self.control.push_back(UetPacket { head, body, ev });
        }
    }

    /// A request to send arrived: a sender had a timeout and lacks credit.
    pub(super) fn on_rts(
        &mut self,
        now: Time,
        from: HostId,
        (head, length): (&Head, u32),
        (came_by, target): (u16, u32),
    ) {
        self.pulls.saw(now, DataArrival::Whole { marked: false });
        match self.find(now, from, (head, length)) {
            MessageLookup::Open(message) => self.want(message, (target, true)),
            MessageLookup::Done => self.say_done(head.to(from), (0, length), (true, came_by)),
            MessageLookup::Stale => {}
        }
    }

    /// A packet arrived whole. `asks` and `resent` are its flags.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        (head, piece): (&Head, Piece),
        ((asks, resent, came_by), target): ((bool, bool, u16), u32),
        arrival: PacketMeta,
    ) -> Receipt {
        let reply = head.to(arrival.from);
        self.pulls.saw(now, DataArrival::Whole { marked: arrival.ce });
        let message = match self.find(now, arrival.from, (head, piece.total)) {
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                self.say_done(reply, (piece.packet, piece.total), (resent, came_by));
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        self.want(message, (target, false));
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let receiving = &mut incoming.state;
        let bytes = self.config.wire.data(piece.len);
        let flags = (arrival.ce, asks);
        let (fresh, ack) = receiving.takes(piece.packet, bytes, flags, self.config.ack_every);
        let whole = receiving.here.count() == receiving.packets;
        if let Some(ack) = ack {
            self.say(reply, UetBody::Ack { ack, resent, came_by });
        }
        if !fresh {
            return self.refuse(DropReason::Duplicate);
        }
        self.exchange.place(message, (piece.offset, piece.len), whole)
    }

    /// A packet arrived whose payload a switch trimmed.
    pub(super) fn on_header(
        &mut self,
        now: Time,
        (head, piece): (&Head, Piece),
        (resent, came_by, target): (bool, u16, u32),
        arrival: PacketMeta,
    ) {
        let reply = head.to(arrival.from);
        let packet = piece.packet;
        self.pulls.saw(now, DataArrival::Trimmed { last_hop: arrival.last_hop });
        match self.find(now, arrival.from, (head, piece.total)) {
            MessageLookup::Open(message) => {
                let Some(incoming) = self.exchange.incoming(message) else { return };
                let receiving = &incoming.state;
                if packet >= receiving.packets || receiving.here.contains(packet) {
                    let from = receiving.bitmap_to(packet);
                    let ack = receiving.acknowledgement(packet, from, false);
                    return self.say(reply, UetBody::Ack { ack, resent, came_by });
                }
                let (last_hop, marked) = (arrival.last_hop, arrival.ce);
                self.say(reply, UetBody::Nack { packet, came_by, last_hop, marked });
                self.want(message, (target, true));
            }
            MessageLookup::Done => {
                self.say_done(reply, (packet, piece.total), (resent, came_by));
            }
            MessageLookup::Stale => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 4_150;
    const EVERY: u32 = 16_384;

    fn receiving(packets: u32) -> UetReceiving {
        UetReceiving {
            here: PacketSet::new(packets),
            packets,
            received: 0,
            unacknowledged: 0,
            asked: false,
            pulled: Pulled::default(),
        }
    }

    /// Packets that are acknowledged at once when full packets arrive in this order.
    fn acknowledged(receiving: &mut UetReceiving, order: &[u32], asks: &[u32]) -> Vec<u32> {
        let ack = |packet: &u32| {
            let flags = (false, asks.contains(packet));
            receiving.takes(*packet, FULL, flags, EVERY).1.map(|ack| ack.packet)
        };
        order.iter().filter_map(ack).collect()
    }

    #[test]
    fn the_first_and_every_fourth_packet_are_acknowledged() {
        let order: Vec<u32> = (0..490).collect();
        let acked = acknowledged(&mut receiving(490), &order, &[489]);
        assert_eq!(acked[..3], [0, 4, 8]);
        // As many as `uet-htsim` sends for 2 MB.
        assert_eq!((acked.len(), acked.last()), (124, Some(&489)));
    }

    #[test]
    fn what_asks_is_acknowledged_at_once_and_when_the_gap_is_closed() {
        let acked = acknowledged(&mut receiving(9), &[0, 3, 1, 2, 4], &[3]);
        assert_eq!(acked, [0, 3, 2]);
    }

    #[test]
    fn marked_packets_and_copies_are_acknowledged_at_once() {
        let mut receiving = receiving(200);
        receiving.takes(0, FULL, (false, false), EVERY);
        let (fresh, ack) = receiving.takes(70, FULL, (true, false), EVERY);
        let ack = ack.unwrap();
        assert_eq!((fresh, ack.from, ack.bitmap, ack.marked), (true, 70, 1, true));
        let (fresh, ack) = receiving.takes(70, FULL, (false, false), EVERY);
        let ack = ack.unwrap();
        // Packets 7 to 70.
        assert_eq!((fresh, ack.from, ack.bitmap), (false, 7, 1 << 63));
        assert_eq!((ack.prefix, ack.received), (1, 8_300));
    }

    #[test]
    fn a_bitmap_ends_with_the_message() {
        let mut receiving = receiving(3);
        let (_, ack) = receiving.takes(2, 100, (false, true), EVERY);
        let ack = ack.unwrap();
        assert_eq!((ack.from, ack.bitmap, ack.prefix), (2, 1, 0));
    }
}
