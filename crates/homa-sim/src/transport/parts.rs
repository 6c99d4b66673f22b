//! Small parts that the packet-numbering transports share: a message cut into packets, sets of
//! those, lists ordered by key, and timers.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use homa_proto::{Rate, Time};

use crate::time::LinkRate;

use super::exchange::{Head, Ref};
use super::{DataContent, message_number};

/// How a transport puts messages on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireFormat {
    /// Message bytes in a full packet.
    pub payload: u32,
    /// Bytes around them, those of the link included.
    pub overhead: u32,
    /// Bytes of a packet without message bytes, those of the link included.
    pub control: u32,
}

impl WireFormat {
    /// Ethernet's header, checksum, preamble and gap.
    const ETHERNET: u32 = 38;
    /// The shortest frame with preamble and gap.
    const SHORTEST: u32 = 84;
    /// IP and transport headers, as the simulations of pFabric, pHost and TCP count them.
    pub const HEADERS: u32 = 40;

    /// Packets of up to `mtu` bytes with `headers` of them before the message's, in Ethernet
    /// frames; control packets are `control` bytes long.
    pub const fn ethernet(mtu: u32, headers: u32, control: u32) -> Self {
        let control = control + Self::ETHERNET;
        Self {
            payload: if mtu > headers { mtu - headers } else { 1 },
            overhead: headers + Self::ETHERNET,
            control: if control < Self::SHORTEST { Self::SHORTEST } else { control },
        }
    }

    /// The same as ns-2 and YAPS count: nothing around the packets.
    pub const fn bare(mtu: u32, headers: u32, control: u32) -> Self {
        let payload = if mtu > headers { mtu - headers } else { 1 };
        Self { payload, overhead: headers, control }
    }

    /// Packets of a message.
    pub const fn packets(&self, length: u32) -> u32 {
        length.div_ceil(self.payload)
    }

    /// Message bytes of packet `number`: from where and how many.
    pub const fn span(&self, number: u32, length: u32) -> (u32, u32) {
        let offset = number * self.payload;
        let rest = length.saturating_sub(offset);
        (offset, if rest < self.payload { rest } else { self.payload })
    }

    /// The same, as packets carry it.
    pub const fn piece(&self, packet: u32, total: u32) -> Piece {
        let (offset, len) = self.span(packet, total);
        Piece { packet, offset, len, total }
    }

    /// A packet with `bytes` of a message on the wire.
    pub const fn data(&self, bytes: u32) -> u32 {
        let wire = self.overhead + bytes;
        if wire < self.control { self.control } else { wire }
    }

    /// A full packet on the wire.
    pub const fn full(&self) -> u32 {
        self.overhead + self.payload
    }
}

/// What a packet carries of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The packet's number in the message, from 0.
    pub packet: u32,
    /// The first byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Bytes of the message.
    pub total: u32,
}

impl Piece {
    /// What measures need to know of it: with the bytes that needed no further permit, and whether
    /// it was sent before.
    pub fn content(&self, head: &Head, (permitted, resent): (u32, bool)) -> DataContent {
        let Self { offset, len, total, .. } = *self;
        DataContent { message: message_number(head.id), offset, len, total, permitted, resent }
    }
}

/// A set of a message's packets. Short messages need no memory of their own.
#[derive(Clone, Debug, Default)]
pub struct PacketSet {
    first: u64,
    more: Vec<u64>,
    count: u32,
    /// All packets before are in the set.
    prefix: u32,
}

impl PacketSet {
    /// No packets, out of `packets`.
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

    /// Whether a packet is in the set; those beyond the message are.
    #[inline]
    pub fn contains(&self, packet: u32) -> bool {
        packet < self.prefix || self.word(packet >> 6) >> (packet & 63) & 1 == 1
    }

    /// Adds a packet of the message; true when it is new.
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

    /// Adds all packets before `end`; true when one was new.
    pub fn insert_prefix(&mut self, end: u32) -> bool {
        let before = self.count;
        while self.prefix < end {
            self.insert(self.prefix);
        }
        self.count > before
    }

    /// The first packet not before `from` that is not in the set; beyond the message when there is
    /// none.
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

    /// How many there are.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Packets before this one are all in the set, and it is not.
    #[inline]
    pub fn prefix(&self) -> u32 {
        self.prefix
    }
}

/// Messages by a key, least first: what is ready to be sent, say. A message is told its key, so
/// that it is found again.
#[derive(Clone, Debug, Default)]
pub struct Ordered(BTreeSet<(u64, Ref)>);

impl Ordered {
    /// Lists a message under `key`, or no more (`None`); `place` is the message's record of it.
    #[inline]
    pub fn set(&mut self, place: &mut Option<u64>, message: Ref, key: Option<u64>) {
        if *place == key {
            return;
        }
        if let Some(old) = place.take() {
            self.0.remove(&(old, message));
        }
        if let Some(new) = key {
            self.0.insert((new, message));
        }
        *place = key;
    }

    /// The first message.
    #[inline]
    pub fn first(&self) -> Option<Ref> {
        self.0.first().map(|(_, message)| *message)
    }

    /// Strikes the first message, which is no more.
    pub fn drop_first(&mut self) {
        self.0.pop_first();
    }

    /// True without messages.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// When something is due for a message, which may put it off without telling: at most one entry
/// per message is kept, and asked again when it comes up.
#[derive(Clone, Debug, Default)]
pub struct Timers(BinaryHeap<Reverse<(Time, Ref)>>);

/// A message's record of its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    at: Time,
    listed: Time,
}

impl Default for Due {
    fn default() -> Self {
        Self { at: Time::MAX, listed: Time::MAX }
    }
}

impl Due {
    /// When, if at all.
    pub fn at(&self) -> Option<Time> {
        Some(self.at).filter(|&at| at != Time::MAX)
    }

    /// Nothing is due.
    #[inline]
    pub fn clear(&mut self) {
        self.at = Time::MAX;
    }
}

impl Timers {
    /// Sets a message's timer, whatever it was.
    #[inline]
    pub fn set(&mut self, due: &mut Due, message: Ref, at: Time) {
        due.at = at;
        if at < due.listed {
            due.listed = at;
            self.0.push(Reverse((at, message)));
        }
    }

    /// A message that may be due, whose [`Timers::fired`] decides.
    pub fn pop(&mut self, now: Time) -> Option<(Time, Ref)> {
        let Reverse(first) = *self.0.peek()?;
        if first.0 > now {
            return None;
        }
        self.0.pop();
        Some(first)
    }

    /// Whether an entry of a message that came up at `listed` is its timer; puts it back when the
    /// timer was put off.
    pub fn fired(&mut self, due: &mut Due, (listed, message): (Time, Ref), now: Time) -> bool {
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

/// One permission per packet time of a link, as receiver-driven transports give them: never more
/// than that, and none is saved up.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// Picoseconds.
    every: u64,
    next: u64,
}

impl Pacer {
    /// For packets of `bytes` on the wire.
    pub const fn new(link: Rate, bytes: u32) -> Self {
        Self { every: LinkRate::new(link).serialisation(bytes).0, next: 0 }
    }

    /// When the next permission may be given.
    pub const fn next(&self) -> Time {
        Time(self.next.div_ceil(1_000))
    }

    /// Gives one, if it may be given now.
    pub fn take(&mut self, now: Time) -> bool {
        let may = self.next() <= now;
        if may {
            // Rounding of the clock is made up for; a pause is not.
            let on_time = self.next + 1_000 > now.0 * 1_000;
            let from = if on_time { self.next } else { now.0 * 1_000 };
            self.next = from + self.every;
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
    fn ordered_lists_follow_their_keys() {
        let (mut list, mut a, mut b) = (Ordered::default(), None, None);
        list.set(&mut a, name(1), Some(5));
        list.set(&mut b, name(2), Some(7));
        assert_eq!(list.first(), Some(name(1)));
        list.set(&mut a, name(1), Some(9));
        assert_eq!(list.first(), Some(name(2)));
        list.set(&mut b, name(2), None);
        list.set(&mut b, name(2), None);
        assert_eq!((list.first(), a, b), (Some(name(1)), Some(9), None));
        list.drop_first();
        assert!(list.is_empty());
    }

    #[test]
    fn a_timer_that_is_put_off_fires_once_and_late() {
        let (mut timers, mut due) = (Timers::default(), Due::default());
        let fire = |timers: &mut Timers, due: &mut Due, now| {
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
        let mut pacer = Pacer::new(Rate::gbps(10), 1_538);
        let mut now = Time(0);
        for _ in 0..1_000 {
            assert!(pacer.take(now) && !pacer.take(now));
            now = pacer.next();
        }
        assert_eq!(now, Time(1_230_400));
        assert!(pacer.take(Time(5_000_000)));
        assert!(!pacer.take(Time(5_001_230)) && pacer.take(Time(5_001_231)));
    }
}
