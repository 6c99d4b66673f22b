//! The packets of a message that were sent and are not known to be received.
//!
//! Bytes in flight follow the count of received bytes that acknowledgements carry, as in
//! `uet-htsim` (`uec.cpp`), because it runs ahead of the bitmap: a packet that is named later
//! changes nothing. A packet that is trimmed or times out is no longer in flight. If it did
//! arrive, its bytes were subtracted twice, and are added back once. Invariants: each packet
//! is in one state; packets before `first` are received; if no packet flies, nothing is in flight,
//! so that a receiver that lost its counts does not close the window for ever.

use std::collections::{BTreeSet, VecDeque};

use homa_proto::{Duration, Time};

/// Doublings of the timeout, at most.
const MOST_DOUBLINGS: u8 = 6;

/// See the module's description. Packets are numbered from 0, and callers know their sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct SentPackets {
    /// The first packet that is not known to be received.
    first: u32,
    /// Those from `first` on that were sent at least once.
    sent: VecDeque<SentPacket>,
    /// Packets to be sent again, lowest first.
    again: BTreeSet<u32>,
    /// When packets that were sent once expire, earliest first; entries of packets that do not fly
    /// any more, or were sent again, are stale.
    once: VecDeque<(Time, u32)>,
    /// When flying packets that were sent again expire.
    resent: BTreeSet<(Time, u32)>,
    flying: u32,
    in_flight: i64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    /// When it was sent last.
    pub at: Time,
    /// When it is given up.
    pub expires: Time,
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

/// When a packet that was sent at `at` and has been sent again `resent` times is given up.
fn expires(at: Time, timeout: Duration, resent: u8) -> Time {
    Time(at.0.saturating_add(timeout.0.saturating_mul(1 << resent.min(MOST_DOUBLINGS))))
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

    /// How many packets are to be sent again, and whether `last` is one of them.
    pub fn missing(&self, last: u32) -> (u32, bool) {
        (self.again.len() as u32, self.again.last() == Some(&last))
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

    /// A packet of `bytes` is sent: the next new one, or one that was to be sent again. Returns
    /// when it expires; `timeout`, that of a packet sent once, is the same in every call.
    pub fn sends(
        &mut self,
        (packet, bytes): (u32, u32),
        (at, timeout): (Time, Duration),
        ev: u16,
    ) -> Time {
        if self.flying == 0 {
            self.in_flight = 0;
        }
        let state = PacketState::Flying;
        let mut due = expires(at, timeout, 0);
        if packet == self.next_new() {
            self.sent.push_back(SentPacket { at, expires: due, ev, resent: 0, state });
            self.once.push_back((due, packet));
        } else if let Some(sent) = self.get(packet) {
            let resent = sent.resent.saturating_add(1);
            due = expires(at, timeout, resent);
            *sent = SentPacket { at, expires: due, ev, resent, state };
            self.again.remove(&packet);
            self.resent.insert((due, packet));
        }
        self.flying += 1;
        self.in_flight += i64::from(bytes);
        due
    }

    /// `bytes` more have arrived, whichever packets those were.
    pub fn arrived(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// A packet is received; `bytes` is its size.
    pub fn acknowledged(&mut self, packet: u32, bytes: u32) {
        let Some(sent) = self.get(packet) else { return };
        let expires = sent.expires;
        match std::mem::replace(&mut sent.state, PacketState::Received) {
            PacketState::Flying => {
                self.resent.remove(&(expires, packet));
                self.flying -= 1;
            }
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
        let expires = sent.expires;
        self.resent.remove(&(expires, packet));
        self.again.insert(packet);
        self.flying -= 1;
        self.in_flight -= i64::from(bytes);
    }

    /// The flying packet that expires first.
    pub fn earliest(&mut self) -> Option<(u32, SentPacket)> {
        while let Some(&(_, packet)) = self.once.front() {
            if self.flying(packet).is_some_and(|sent| sent.resent == 0) {
                break;
            }
            self.once.pop_front();
        }
        let first = self.once.front().into_iter().chain(self.resent.first()).min();
        let &(_, packet) = first?;
        self.flying(packet).map(|sent| (packet, sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 1_000;
    const TIMEOUT: Duration = Duration(100);

    fn sent(packets: u32) -> SentPackets {
        let mut flight = SentPackets::default();
        for packet in 0..packets {
            flight.sends((packet, FULL), (Time(packet.into()), TIMEOUT), 0);
        }
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
        assert_eq!(flight.earliest().map(|(packet, _)| packet), Some(3));
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
        flight.sends((1, FULL), (Time(9), TIMEOUT), 5);
        assert_eq!(flight.flying(1).map(|sent| (sent.ev, sent.resent)), Some((5, 1)));
        flight.arrived(1_000);
        flight.acknowledged(1, FULL);
        assert_eq!(flight.bytes(), 1_000);
    }

    #[test]
    fn timeouts_of_resent_packets_do_not_hold_up_others() {
        let mut flight = sent(3);
        let first = |flight: &mut SentPackets| {
            flight.earliest().map(|(packet, sent)| (packet, sent.expires.0))
        };
        assert_eq!(first(&mut flight), Some((0, 100)));
        flight.misses(0, FULL);
        assert_eq!(flight.sends((0, FULL), (Time(7), TIMEOUT), 0), Time(207));
        assert_eq!(first(&mut flight), Some((1, 101)));
        flight.misses(1, FULL);
        flight.sends((1, FULL), (Time(5), TIMEOUT), 0);
        flight.acknowledged(2, FULL);
        assert_eq!(first(&mut flight), Some((1, 205)));
        flight.acknowledged(1, FULL);
        flight.sends((3, FULL), (Time(150), TIMEOUT), 0);
        assert_eq!(first(&mut flight), Some((0, 207)));
        flight.acknowledged(3, FULL);
        flight.misses(0, FULL);
        assert_eq!(first(&mut flight), None);
    }

    #[test]
    fn without_flying_packets_the_window_is_open() {
        let mut flight = sent(2);
        // Its receiver restarted: it names packets, but counts from 0.
        flight.acknowledged(0, FULL);
        flight.acknowledged(1, FULL);
        assert_eq!((flight.bytes(), flight.earliest().is_none()), (0, true));
        flight.sends((2, FULL), (Time(3), TIMEOUT), 0);
        assert_eq!(flight.bytes(), 1_000);
    }
}
