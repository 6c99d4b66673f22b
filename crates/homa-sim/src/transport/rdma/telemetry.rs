//! In-band network telemetry (INT): what each switch on the way writes into a packet (HPCC,
//! SIGCOMM 2019, §4.1; widths and units of its simulator, `int-header.h`, revision 9f4be2a).
//!
//! A record has 64 bits: time of 24 bits in ns, bytes sent of 20 bits in units of 128 bytes, queue
//! of 17 bits in units of 80 bytes, and a code of 3 bits for the rate. On faster links both units
//! are multiplied by link/25 Gbit/s. Numbers are rounded down and wrap around; differences of
//! times and of bytes are those of counters that wrapped at most once. Five records and a number of
//! them take 42 bytes.
//!
//! Our records keep the rate itself, because links here may have any; its size is that of the code.
//! A sixth switch writes nothing (inferred: there the sender then ignores all).

use homa_proto::Time;

use crate::transport::LeavingHop;

use super::control::Collected;

/// What a data packet carries, and its acknowledgement returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Nothing.
    Nothing,
    /// See [`SentAt`].
    SentAt(SentAt),
    /// See [`SentAcross`].
    SentAcross(SentAcross),
    /// See [`IntStack`].
    Sent(IntStack),
    /// See [`ArrivalStack`].
    Arrived(ArrivalStack),
}

/// The conversions of [`Collected`] to a variant of [`Carried`] and back.
macro_rules! carried_as {
    ($variant:ident) => {
        fn carried(self) -> Carried {
            Carried::$variant(self)
        }

        fn of(carried: Carried) -> Option<Self> {
            match carried {
                Carried::$variant(this) => Some(this),
                _ => None,
            }
        }
    };
}

impl Carried {
    /// The packet leaves a port of a switch.
    pub fn stamp(&mut self, hop: &LeavingHop) {
        match self {
            Self::Nothing | Self::SentAt(_) => (),
            Self::SentAcross(sent) => sent.switches = sent.switches.saturating_add(1),
            Self::Sent(stack) => stack.stamp(hop),
            Self::Arrived(stack) => stack.stamp(hop),
        }
    }
}

/// Bits of a record's time and bytes; the largest number of its queue.
const TIME_BITS: u32 = 24;
const BYTES_BITS: u32 = 20;
const LONGEST_QUEUE: u64 = (1 << 17) - 1;
/// Units at 25 Gbit/s.
const BYTES_UNIT: u64 = 128;
const QUEUE_UNIT: u64 = 80;
/// Records in a packet.
const HOPS: usize = 5;

/// What one switch wrote, in units of `unit` times 128 bytes sent and `unit` times 80 bytes queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntRecord {
    time: u32,
    bytes: u32,
    queue: u32,
    mbps: u32,
}

impl IntRecord {
    /// The record of a switch.
    pub fn new(hop: &LeavingHop, unit: u32) -> Self {
        let unit = u64::from(unit.max(1));
        Self {
            time: (hop.at.0 / 1_000) as u32 & mask(TIME_BITS),
            bytes: (hop.sent_bytes / (BYTES_UNIT * unit)) as u32 & mask(BYTES_BITS),
            queue: (u64::from(hop.queued_bytes) / (QUEUE_UNIT * unit)).min(LONGEST_QUEUE) as u32,
            mbps: hop.mbps,
        }
    }

    /// Nanoseconds since an earlier record of the same port.
    pub fn ns_since(&self, before: &Self) -> u32 {
        self.time.wrapping_sub(before.time) & mask(TIME_BITS)
    }

    /// Wire bytes sent since an earlier record of the same port.
    pub fn bytes_since(&self, before: &Self, unit: u32) -> u64 {
        let units = self.bytes.wrapping_sub(before.bytes) & mask(BYTES_BITS);
        u64::from(units) * BYTES_UNIT * u64::from(unit)
    }

    /// Wire bytes that waited.
    pub fn queue_bytes(&self, unit: u32) -> u64 {
        u64::from(self.queue) * QUEUE_UNIT * u64::from(unit)
    }

    /// The link's rate, bit/s.
    pub fn rate(&self) -> u64 {
        u64::from(self.mbps) * 1_000_000
    }
}

const fn mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

/// The records of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntStack {
    records: [IntRecord; HOPS],
    count: u8,
    /// See [`IntRecord`].
    pub unit: u32,
}

impl IntStack {
    /// The records, in the order of the switches.
    pub fn records(&self) -> &[IntRecord] {
        &self.records[..usize::from(self.count)]
    }

    /// The greatest of the measures of all ports, each of a record and the one before, and the
    /// nanoseconds between them. Of equal ones the first counts.
    pub(super) fn greatest(
        &self,
        before: &Self,
        measure: impl Fn((&IntRecord, &IntRecord)) -> Option<(f64, u64)>,
    ) -> Option<(f64, u64)> {
        let pairs = self.records().iter().zip(before.records());
        pairs.filter_map(measure).reduce(|most, one| if one.0 > most.0 { one } else { most })
    }

    /// The packet leaves a port.
    pub fn stamp(&mut self, hop: &LeavingHop) {
        let unit = self.unit;
        if let Some(place) = self.records.get_mut(usize::from(self.count)) {
            *place = IntRecord::new(hop, unit);
            self.count += 1;
        }
    }
}

impl Collected for IntStack {
    const BYTES: u32 = 42;

    fn new(_: Time, unit: u32) -> Self {
        Self { unit, ..Self::default() }
    }

    carried_as!(Sent);
}

/// The same records, with the bytes that arrived at a port, sent ones and those that wait, in place
/// of the bytes sent (PowerTCP's simulator, `switch-node.cc`, revision 6ddb4a4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalStack(pub IntStack);

impl ArrivalStack {
    /// The packet leaves a port.
    pub fn stamp(&mut self, hop: &LeavingHop) {
        let sent_bytes = hop.sent_bytes + u64::from(hop.queued_bytes);
        self.0.stamp(&LeavingHop { sent_bytes, ..*hop });
    }
}

impl Collected for ArrivalStack {
    const BYTES: u32 = IntStack::BYTES;

    fn new(now: Time, unit: u32) -> Self {
        Self(IntStack::new(now, unit))
    }

    carried_as!(Arrived);
}

/// When the packet left its host, and how many switches it passed (a counter such as the time to
/// live).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAcross {
    /// When it left.
    pub at: Time,
    /// Switches on its way.
    pub switches: u8,
}

impl Collected for SentAcross {
    const BYTES: u32 = SentAt::BYTES;

    fn new(now: Time, _: u32) -> Self {
        Self { at: now, switches: 0 }
    }

    carried_as!(SentAcross);
}

/// When the packet left its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAt(pub Time);

impl Collected for SentAt {
    const BYTES: u32 = 8;

    fn new(now: Time, _: u32) -> Self {
        Self(now)
    }

    carried_as!(SentAt);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimTime;

    fn hop(ns: u64, sent_bytes: u64, queued_bytes: u32) -> LeavingHop {
        LeavingHop { at: SimTime(ns * 1_000 + 999), sent_bytes, queued_bytes, mbps: 100_000 }
    }

    #[test]
    fn records_are_rounded_down_to_their_units() {
        let record = IntRecord::new(&hop(7, 1_023, 319), 1);
        assert_eq!((record.time, record.bytes_since(&IntRecord::default(), 1)), (7, 896));
        assert_eq!((record.queue_bytes(1), record.rate()), (240, 100_000_000_000));
        // At 100 Gbit/s in units of 512 and 320 bytes.
        let record = IntRecord::new(&hop(7, 1_023, 319), 4);
        assert_eq!(record.bytes_since(&IntRecord::default(), 4), 512);
        assert_eq!(record.queue_bytes(4), 0);
    }

    #[test]
    fn differences_survive_one_wrap() {
        let (wrap_ns, wrap_bytes) = (1 << 24, (1 << 20) * 128);
        for (from, to) in [(5, 1_000), (wrap_ns - 1, wrap_ns + 86), (3 * wrap_ns + 7, 4 * wrap_ns)]
        {
            let (a, b) = (IntRecord::new(&hop(from, 0, 0), 1), IntRecord::new(&hop(to, 0, 0), 1));
            assert_eq!(u64::from(b.ns_since(&a)), to - from);
        }
        for (from, to) in [(0, 1_280), (wrap_bytes - 128, wrap_bytes + 1_152)] {
            let (a, b) = (IntRecord::new(&hop(0, from, 0), 1), IntRecord::new(&hop(0, to, 0), 1));
            assert_eq!(b.bytes_since(&a, 1), to - from);
        }
    }

    #[test]
    fn the_longest_queue_is_the_largest_number() {
        let record = IntRecord::new(&hop(0, 0, u32::MAX), 1);
        assert_eq!(record.queue_bytes(1), LONGEST_QUEUE * 80);
    }

    #[test]
    fn a_sixth_switch_writes_nothing() {
        let mut stack = <IntStack as Collected>::new(Time::ZERO, 1);
        (0..6).for_each(|at| stack.stamp(&hop(at, 0, 0)));
        let times: Vec<u32> = stack.records().iter().map(|record| record.time).collect();
        assert_eq!(times, [0, 1, 2, 3, 4]);
    }
}
