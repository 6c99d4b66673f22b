//! Bursts as a trace of packets shows them (HULL §4.1, Figure 3): packets of one kind with less
//! than [`PAUSE`] between neighbours form one train.

use homa_proto::{Duration, Time};

/// The gap that separates two trains.
pub const PAUSE: Duration = Duration::micros(50);

/// Counts of trains; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trains {
    /// Trains that have ended.
    pub count: u64,
    /// Packets of these trains.
    pub packets: u64,
    /// Bytes of these trains.
    pub bytes: u64,
    /// Sum of the times from each train's first packet to its last.
    pub length: u64,
    /// Sum of the times from each train's first packet to that of the next.
    pub period: u64,
    /// The present train: start, end, packets and bytes.
    present: Option<(Time, Time, u64, u64)>,
}

impl Trains {
    /// Counts a packet that passes.
    pub fn pass(&mut self, now: Time, bytes: u32) {
        match &mut self.present {
            Some((_, last, packets, total)) if now < *last + PAUSE => {
                *last = now;
                *packets += 1;
                *total += u64::from(bytes);
            }
            present => {
                if let Some((first, last, packets, total)) = *present {
                    self.count += 1;
                    self.packets += packets;
                    self.bytes += total;
                    self.length += last.since(first).0;
                    self.period += now.since(first).0;
                }
                *present = Some((now, now, 1, u64::from(bytes)));
            }
        }
    }

    /// The sum of two counts.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            length: self.length + other.length,
            period: self.period + other.period,
            present: None,
        }
    }

    /// The counts since an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            length: self.length.saturating_sub(earlier.length),
            period: self.period.saturating_sub(earlier.period),
            present: self.present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_separates_two_trains() {
        let mut trains = Trains::default();
        for start in [0, 500_000, 1_000_000] {
            (0..3).for_each(|n| trains.pass(Time(start + n * 10_000), 1_000));
        }
        assert_eq!((trains.count, trains.packets, trains.bytes), (2, 6, 6_000));
        assert_eq!((trains.length, trains.period), (40_000, 1_000_000));
        let first = trains;
        trains.pass(Time(2_000_000), 500);
        let second = trains.since(&first);
        assert_eq!((second.count, second.packets, second.period), (1, 3, 1_000_000));
    }
}
