//! Small parts that the transports with numbered packets share: the division of a message into
//! packets, sets of packets, lists ordered by key, timers, and peers.

mod ordered;
mod peers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::{Rate, Time};

use crate::time::LinkRate;

use super::exchange::{Head, Ref};
use super::{DataContent, message_number};

pub use ordered::Ordered;
pub use peers::Peers;

/// The wire format of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireFormat {
    /// Message bytes in a full packet.
    pub payload: u32,
    /// Bytes around them, including those of the link.
    pub overhead: u32,
    /// Size of a packet without message bytes, including the bytes of the link.
    pub control: u32,
}

impl WireFormat {
    /// Ethernet's header, checksum, preamble and gap.
    const ETHERNET: u32 = 38;
    /// The shortest frame, including preamble and gap.
    const SHORTEST: u32 = 84;
    /// IP and transport headers, as the simulations of pFabric and TCP count them.
    pub const HEADERS: u32 = 40;

    /// Packets of up to `mtu` bytes, including `headers` bytes of headers, in Ethernet frames;
    /// control packets are `control` bytes long. For example, an MTU of 1,500 with 40 bytes of
    /// headers gives 1,460 message bytes in a frame of 1,538.
    pub const fn ethernet(mtu: u32, headers: u32, control: u32) -> Self {
        let control = control + Self::ETHERNET;
        Self {
            payload: if mtu > headers { mtu - headers } else { 1 },
            overhead: headers + Self::ETHERNET,
            control: if control < Self::SHORTEST { Self::SHORTEST } else { control },
        }
    }

    /// Packets as ns-2 and YAPS count them, without a link layer.
    pub const fn bare(mtu: u32, headers: u32, control: u32) -> Self {
        let payload = if mtu > headers { mtu - headers } else { 1 };
        Self { payload, overhead: headers, control }
    }

    /// How many packets a message has.
    pub const fn packets(&self, length: u32) -> u32 {
        length.div_ceil(self.payload)
    }

    /// The message bytes of packet `number`: offset and length.
    pub const fn span(&self, number: u32, length: u32) -> (u32, u32) {
        let offset = number * self.payload;
        let rest = length.saturating_sub(offset);
        (offset, if rest < self.payload { rest } else { self.payload })
    }

    /// The same, in the form that packets carry.
    pub const fn piece(&self, packet: u32, total: u32) -> Piece {
        let (offset, len) = self.span(packet, total);
        Piece { packet, offset, len, total }
    }

    /// Wire size of a packet with `bytes` of a message.
    pub const fn data(&self, bytes: u32) -> u32 {
        let wire = self.overhead + bytes;
        if wire < self.control { self.control } else { wire }
    }

    /// Wire size of a full packet.
    pub const fn full(&self) -> u32 {
        self.overhead + self.payload
    }
}

/// The part of a message that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The packet's number in the message, from 0.
    pub packet: u32,
    /// The first byte.
    pub offset: u32,
    /// Its length.
    pub len: u32,
    /// Length of the whole message.
    pub total: u32,
}

impl Piece {
    /// Its content for measures. `permitted` is the end of the bytes that need no further permit,
    /// `resent` whether it was sent before.
    pub fn content(&self, head: &Head, (permitted, resent): (u32, bool)) -> DataContent {
        let Self { offset, len, total, .. } = *self;
        DataContent { message: message_number(head.id), offset, len, total, permitted, resent }
    }
}

/// A set of a message's packets. Sets of short messages allocate no memory.
#[derive(Clone, Debug, Default)]
pub struct PacketSet {
    first: u64,
    more: Vec<u64>,
    count: u32,
    /// All packets before this one are in the set.
    prefix: u32,
}

impl PacketSet {
    /// The empty set, for a message of `packets` packets.
    pub fn new(packets: u32) -> Self {
        let words = packets.div_ceil(64).saturating_sub(1);
        Self { more: vec![0; words as usize], ..Self::default() }
    }

    #[inline]
    fn word(&self, at: u32) -> u64 {
        match at.checked_sub(1) {
            None => self.first,
            Some(at) => self.more.get(at as usize).copied().unwrap_or(u64::MAX),
        }
    }

    /// Whether a packet is in the set; packets beyond the end of the message count as present.
    #[inline]
    pub fn contains(&self, packet: u32) -> bool {
        packet < self.prefix || self.word(packet >> 6) >> (packet & 63) & 1 == 1
    }

    /// Adds a packet of the message; true if it is new.
    #[inline]
    pub fn insert(&mut self, packet: u32) -> bool {
        if self.contains(packet) {
            return false;
        }
        let bit = 1 << (packet & 63);
        match (packet >> 6).checked_sub(1) {
            None => self.first |= bit,
            Some(at) => self.more[at as usize] |= bit,
        }
        self.count += 1;
        if packet == self.prefix {
            self.prefix = self.next_missing(packet + 1);
        }
        true
    }

    /// Adds all packets before `end`; true if one of them was new.
    pub fn insert_prefix(&mut self, end: u32) -> bool {
        let before = self.count;
        while self.prefix < end {
            self.insert(self.prefix);
        }
        self.count > before
    }

    /// The first packet at or after `from` that is not in the set; beyond the end of the message if
    /// there is none.
    #[inline]
    pub fn next_missing(&self, from: u32) -> u32 {
        let from = from.max(self.prefix);
        let mut at = from >> 6;
        let mut rest = !self.word(at) >> (from & 63) << (from & 63);
        while rest == 0 && (at as usize) < self.more.len() {
            at += 1;
            rest = !self.word(at);
        }
        (at << 6) + rest.trailing_zeros()
    }

    /// How many packets are in the set.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first packet that is not in the set.
    #[inline]
    pub fn prefix(&self) -> u32 {
        self.prefix
    }
}

/// Timers of messages. A message may postpone its timer without an update here: there is at most
/// one entry per message, which is checked when it comes up.
#[derive(Clone, Debug, Default)]
pub struct MessageTimers(BinaryHeap<Reverse<(Time, Ref)>>);

/// A message's record of its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTimer {
    at: Time,
    listed: Time,
}

impl Default for MessageTimer {
    fn default() -> Self {
        Self { at: Time::MAX, listed: Time::MAX }
    }
}

impl MessageTimer {
    /// When it is due, if it is set.
    pub fn at(&self) -> Option<Time> {
        Some(self.at).filter(|&at| at != Time::MAX)
    }

    /// Clears the timer.
    #[inline]
    pub fn clear(&mut self) {
        self.at = Time::MAX;
    }
}

impl MessageTimers {
    /// Sets a message's timer, whether or not it was set before.
    #[inline]
    pub fn set(&mut self, due: &mut MessageTimer, message: Ref, at: Time) {
        due.at = at;
        if at < due.listed {
            due.listed = at;
            self.0.push(Reverse((at, message)));
        }
    }

    /// The next message whose timer has fired. `timer` finds the timer of a message that still
    /// exists.
    pub fn next_fired<T>(
        &mut self,
        now: Time,
        messages: &mut T,
        timer: impl Fn(&mut T, Ref) -> Option<&mut MessageTimer>,
    ) -> Option<Ref> {
        while let Some((listed, message)) = self.pop(now) {
            let Some(due) = timer(messages, message) else { continue };
            if self.fired(due, (listed, message), now) {
                return Some(message);
            }
        }
        None
    }

    /// A message that may be due; [`MessageTimers::fired`] decides whether it is.
    fn pop(&mut self, now: Time) -> Option<(Time, Ref)> {
        let Reverse(first) = *self.0.peek()?;
        if first.0 > now {
            return None;
        }
        self.0.pop();
        Some(first)
    }

    /// Whether the entry of a message that came up at `listed` is its timer. Reinserts it if the
    /// timer was postponed.
    fn fired(&mut self, due: &mut MessageTimer, (listed, message): (Time, Ref), now: Time) -> bool {
        if due.listed != listed {
            return false;
        }
        due.listed = Time::MAX;
        if due.at > now {
            if due.at != Time::MAX {
                self.set(due, message, due.at);
            }
            return false;
        }
        due.at = Time::MAX;
        true
    }

    /// When the first entry comes up.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }
}

/// Gives one permit per packet time of a link, as receiver-driven transports do: never more, and
/// unused permits are not saved up.
#[derive(Clone, Copy, Debug)]
pub struct PermitPacer {
    link: LinkRate,
    /// Picoseconds per packet.
    every: u64,
    next: u64,
}

impl PermitPacer {
    /// A pacer for packets of `bytes` on the wire.
    pub const fn new(link: Rate, bytes: u32) -> Self {
        let link = LinkRate::new(link);
        Self { link, every: link.serialisation(bytes).0, next: 0 }
    }

    /// When the next permit may be given.
    pub const fn next(&self) -> Time {
        Time(self.next.div_ceil(1_000))
    }

    /// Gives a permit, if it is time.
    pub fn take(&mut self, now: Time) -> bool {
        self.spend(now, self.every)
    }

    /// The same for a packet of `bytes` on the wire.
    pub fn take_for(&mut self, now: Time, bytes: u32) -> bool {
        self.spend(now, self.link.serialisation(bytes).0)
    }

    fn spend(&mut self, now: Time, picos: u64) -> bool {
        let may = self.next() <= now;
        if may {
            // Rounding of the clock is compensated; a pause is not.
            let on_time = self.next + 1_000 > now.0 * 1_000;
            let from = if on_time { self.next } else { now.0 * 1_000 };
            self.next = from + picos;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_workload::rng::Rng;

    const fn name(index: u32) -> Ref {
        Ref { index, generation: 0 }
    }

    #[test]
    fn a_full_packet_is_a_full_frame() {
        let wire = WireFormat::ethernet(1_500, 40, 40);
        assert_eq!((wire.payload, wire.full(), wire.control, wire.data(1)), (1_460, 1_538, 84, 84));
        assert_eq!((wire.packets(1), wire.packets(1_460), wire.packets(1_461)), (1, 1, 2));
        assert_eq!((wire.span(0, 1_461), wire.span(1, 1_461)), ((0, 1_460), (1_460, 1)));
        let bare = WireFormat::bare(1_500, 40, 40);
        assert_eq!((bare.full(), bare.control, bare.data(1)), (1_500, 40, 41));
    }

    #[test]
    fn packet_sets_behave_as_sets_do() {
        let mut rng = Rng::stream(5, "packet sets");
        for packets in [1, 63, 64, 65, 128, 300] {
            let (mut set, mut model) = (PacketSet::new(packets), vec![false; packets as usize]);
            for _ in 0..4 * packets {
                let packet = rng.uniform_below(packets);
                let new = !std::mem::replace(&mut model[packet as usize], true);
                assert_eq!(set.insert(packet), new);
                let from = rng.uniform_below(packets);
                let missing = (from..packets).find(|&at| !model[at as usize]);
                let first = (0..packets).find(|&at| !model[at as usize]);
                assert_eq!(set.next_missing(from).min(packets), missing.unwrap_or(packets));
                assert_eq!(set.prefix().min(packets), first.unwrap_or(packets));
                assert_eq!(set.count() as usize, model.iter().filter(|here| **here).count());
            }
            set.insert_prefix(packets);
            assert_eq!((set.count(), set.prefix().min(packets)), (packets, packets));
        }
    }

    #[test]
    fn a_timer_that_is_put_off_fires_once_and_late() {
        let (mut timers, mut due) = (MessageTimers::default(), MessageTimer::default());
        let fire = |timers: &mut MessageTimers, due: &mut MessageTimer, now| {
            let entry = timers.pop(Time(now));
            entry.is_some_and(|entry| timers.fired(due, entry, Time(now)))
        };
        timers.set(&mut due, name(0), Time(10));
        timers.set(&mut due, name(0), Time(30));
        timers.set(&mut due, name(0), Time(20));
        assert_eq!(timers.next(), Some(Time(10)));
        assert!(!fire(&mut timers, &mut due, 9));
        assert!(!fire(&mut timers, &mut due, 10));
        assert_eq!((timers.next(), due.at()), (Some(Time(20)), Some(Time(20))));
        timers.set(&mut due, name(0), Time(15));
        assert!(fire(&mut timers, &mut due, 15), "brought forward");
        assert!(!fire(&mut timers, &mut due, 20), "the entry that it left behind");
        timers.set(&mut due, name(0), Time(40));
        due.clear();
        assert!(!fire(&mut timers, &mut due, 40));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_pacer_keeps_its_rate_and_saves_nothing_up() {
        // 1230.4 ns each.
        let mut pacer = PermitPacer::new(Rate::gbps(10), 1_538);
        let mut now = Time(0);
        for _ in 0..1_000 {
            assert!(pacer.take(now) && !pacer.take(now));
            now = pacer.next();
        }
        assert_eq!(now, Time(1_230_400));
        assert!(pacer.take(Time(5_000_000)));
        assert!(!pacer.take(Time(5_001_230)) && pacer.take(Time(5_001_231)));
        // A shorter packet takes less time: 67.2 ns.
        assert!(pacer.take_for(Time(9_000_000), 84) && !pacer.take(Time(9_000_067)));
        assert!(pacer.take(Time(9_000_068)));
    }
}
