//! The packets of a message that were sent and are not known to be received.
//!
//! Bytes in flight follow the count of received bytes that acknowledgements carry, as in
//! `uet-htsim` (`uec.cpp`), because it runs ahead of the bitmap: a packet that is named later
//! changes nothing. A packet that is trimmed or times out is no longer in flight. If it did
//! arrive, its bytes were subtracted twice, and are added back once. Invariants: each packet
//! is in one state; packets before `first` are received; if no packet flies, nothing is in flight,
//! so that a receiver that lost its counts does not close the window for ever.

use std::collections::{BTreeSet, VecDeque};

use homa_proto::Time;

/// See the module's description. Packets are numbered from 0, and callers know their sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct SentPackets {
    /// The first packet that is not known to be received.
    first: u32,
    /// Those from `first` on that were sent at least once.
    sent: VecDeque<SentPacket>,
    /// Packets to be sent again, lowest first.
    again: BTreeSet<u32>,
    /// When flying packets were sent, oldest first; entries of packets that do not fly any more are
    /// stale.
    order: VecDeque<(Time, u32)>,
    flying: u32,
    in_flight: i64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    /// When it was sent last.
    pub at: Time,
    /// The path it took then.
    pub ev: u16,
    /// How often it was sent again.
    pub resent: u8,
    state: PacketState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    Flying,
    /// Trimmed, or timed out: in `again`.
    Missing,
    Received,
}

impl SentPackets {
    /// The next packet that has never been sent.
    pub fn next_new(&self) -> u32 {
        self.first + self.sent.len() as u32
    }

    /// The first packet that is to be sent again.
    pub fn next_again(&self) -> Option<u32> {
        self.again.first().copied()
    }

    /// Every packet before this one is received.
    pub fn received(&self) -> u32 {
        self.first
    }

    /// Wire bytes in flight.
    pub fn bytes(&self) -> u64 {
        if self.flying == 0 { 0 } else { u64::try_from(self.in_flight).unwrap_or(0) }
    }

    fn get(&mut self, packet: u32) -> Option<&mut SentPacket> {
        self.sent.get_mut(packet.checked_sub(self.first)? as usize)
    }

    /// A packet of `bytes` is sent: the next new one, or one that was to be sent again.
    pub fn sends(&mut self, (packet, bytes): (u32, u32), at: Time, ev: u16) {
        if self.flying == 0 {
            self.in_flight = 0;
        }
        let state = PacketState::Flying;
        if packet == self.next_new() {
            self.sent.push_back(SentPacket { at, ev, resent: 0, state });
        } else if let Some(sent) = self.get(packet) {
            let resent = sent.resent.saturating_add(1);
            *sent = SentPacket { at, ev, resent, state };
            self.again.remove(&packet);
        }
        self.order.push_back((at, packet));
        self.flying += 1;
        self.in_flight += i64::from(bytes);
    }

    /// `bytes` more have arrived, whichever packets those were.
    pub fn arrived(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// A packet is received; `bytes` is its size.
    pub fn acknowledged(&mut self, packet: u32, bytes: u32) {
        let Some(sent) = self.get(packet) else { return };
        match std::mem::replace(&mut sent.state, PacketState::Received) {
            PacketState::Flying => self.flying -= 1,
            PacketState::Missing => {
                self.again.remove(&packet);
                self.in_flight += i64::from(bytes);
            }
            PacketState::Received => {}
        }
        while self.sent.front().is_some_and(|sent| sent.state == PacketState::Received) {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    /// A packet that flies, if it does.
    pub fn flying(&mut self, packet: u32) -> Option<SentPacket> {
        self.get(packet).copied().filter(|sent| sent.state == PacketState::Flying)
    }

    /// A flying packet of `bytes` did not arrive, and is to be sent again.
    pub fn misses(&mut self, packet: u32, bytes: u32) {
        let Some(sent) = self.get(packet).filter(|sent| sent.state == PacketState::Flying) else {
            return;
        };
        sent.state = PacketState::Missing;
        self.again.insert(packet);
        self.flying -= 1;
        self.in_flight -= i64::from(bytes);
    }

    /// The packet that has flown for longest.
    pub fn oldest(&mut self) -> Option<(u32, SentPacket)> {
        while let Some(&(at, packet)) = self.order.front() {
            if let Some(sent) = self.flying(packet).filter(|sent| sent.at == at) {
                return Some((packet, sent));
            }
            self.order.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 1_000;

    fn sent(packets: u32) -> SentPackets {
        let mut flight = SentPackets::default();
        (0..packets).for_each(|packet| flight.sends((packet, FULL), Time(packet.into()), 0));
        flight
    }

    #[test]
    fn received_bytes_run_ahead_of_the_packets_they_are_of() {
        let mut flight = sent(4);
        flight.arrived(2_000);
        assert_eq!((flight.bytes(), flight.received()), (2_000, 0));
        flight.acknowledged(2, FULL);
        flight.acknowledged(0, FULL);
        assert_eq!((flight.bytes(), flight.received(), flight.next_new()), (2_000, 1, 4));
        flight.acknowledged(1, FULL);
        assert_eq!(flight.received(), 3);
        assert_eq!(flight.oldest().map(|(packet, _)| packet), Some(3));
    }

    #[test]
    fn a_packet_that_arrived_after_all_is_not_subtracted_twice() {
        let mut flight = sent(3);
        flight.misses(0, FULL);
        assert_eq!((flight.bytes(), flight.next_again()), (2_000, Some(0)));
        flight.misses(0, FULL);
        flight.arrived(1_000);
        assert_eq!(flight.bytes(), 1_000);
        flight.acknowledged(0, FULL);
        assert_eq!((flight.bytes(), flight.next_again()), (2_000, None));
        // Sent again before its first copy is acknowledged.
        flight.misses(1, FULL);
        flight.sends((1, FULL), Time(9), 5);
        assert_eq!(flight.flying(1).map(|sent| (sent.ev, sent.resent)), Some((5, 1)));
        flight.arrived(1_000);
        flight.acknowledged(1, FULL);
        assert_eq!(flight.bytes(), 1_000);
    }

    #[test]
    fn the_oldest_is_the_one_sent_first_since() {
        let mut flight = sent(2);
        flight.misses(0, FULL);
        flight.sends((0, FULL), Time(7), 0);
        let (packet, sent) = flight.oldest().unwrap();
        assert_eq!((packet, sent.at), (1, Time(1)));
        flight.misses(1, FULL);
        assert_eq!(flight.oldest().map(|(packet, _)| packet), Some(0));
    }

    #[test]
    fn without_flying_packets_the_window_is_open() {
        let mut flight = sent(2);
        // Its receiver restarted: it names packets, but counts from 0.
        flight.acknowledged(0, FULL);
        flight.acknowledged(1, FULL);
        assert_eq!((flight.bytes(), flight.oldest().is_none()), (0, true));
        flight.sends((2, FULL), Time(3), 0);
        assert_eq!(flight.bytes(), 1_000);
    }
}
