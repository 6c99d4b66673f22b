//! Dynamic interrupt throttling: how the driver of Intel's 82574L, the card of HULL's testbed (HULL
//! §5.2), sets the least time between interrupts.
//!
//! The rule and its numbers are those of Linux' `e1000e` at 1 Gbit/s in its default mode, 3
//! (`e1000_update_itr`, `e1000_set_itr`). The driver has three classes. Each direction has a class,
//! which what it carried since the last interrupt may change, and the busier direction decides.
//! *Low latency* allows 20,000 interrupts per second, *bulk* 4,000; *lowest latency* (70,000) is
//! what mode 3 replaces by low latency. Received frames count as they arrive, and a large send
//! counts as a whole when it is complete. So 1 Gbit/s never makes a receiver bulk, because 50 us
//! bring 6,250 bytes at most, but a sender with large sends over 10,000 bytes is. Invariant: the
//! rate is between 4,000 and 20,000. Left out: interrupts that only report sent packets.

use homa_proto::Duration;

/// Frames and their bytes without preamble, gap and check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Frames.
    pub frames: u32,
    /// Bytes.
    pub bytes: u32,
}

impl Work {
    /// Adds more work.
    pub fn add(&mut self, more: Self) {
        self.frames += more.frames;
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// What a direction carries, in the order of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrafficClass {
    LowLatency,
    Bulk,
}

impl TrafficClass {
    /// The class after an interrupt, with the work since the one before.
    fn after(self, Work { frames, bytes }: Work) -> Self {
        if frames == 0 {
            return self;
        }
        let mean = bytes / frames;
        match self {
            Self::LowLatency if bytes > 10_000 && (frames < 10 || mean > 1_200) => Self::Bulk,
            Self::LowLatency if bytes <= 10_000 && mean > 2_000 => Self::Bulk,
            Self::LowLatency => Self::LowLatency,
            Self::Bulk if bytes > 25_000 && frames > 35 => Self::LowLatency,
            Self::Bulk if bytes < 6_000 => Self::LowLatency,
            Self::Bulk => Self::Bulk,
        }
    }

    /// Interrupts per second.
    const fn rate(self) -> u32 {
        match self {
            Self::LowLatency => 20_000,
            Self::Bulk => 4_000,
        }
    }
}

/// The state of a card.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Frames that arrived since the last interrupt.
    pub received: Work,
    /// Large sends that were completed since the last interrupt.
    pub sent: Work,
    classes: [TrafficClass; 2],
    /// Interrupts per second.
    rate: u32,
}

impl Default for Throttle {
    fn default() -> Self {
        let class = TrafficClass::LowLatency;
        let (received, sent) = (Work::default(), Work::default());
        Self { received, sent, classes: [class; 2], rate: class.rate() }
    }
}

impl Throttle {
    /// An interrupt: the driver sets the rate. It falls at once, but rises by a quarter of the new
    /// rate per interrupt.
    pub fn interrupt(&mut self) {
        let work = [std::mem::take(&mut self.received), std::mem::take(&mut self.sent)];
        for (class, work) in self.classes.iter_mut().zip(work) {
            *class = class.after(work);
        }
        let wanted = self.classes[0].max(self.classes[1]).rate();
        self.rate = wanted.min(self.rate + wanted / 4);
    }

    /// The least time from the last interrupt to the next.
    pub fn gap(&self) -> Duration {
        Duration(1_000_000_000 / u64::from(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 1_514;

    fn work(frames: u32) -> Work {
        Work { frames, bytes: frames * FULL }
    }

    #[test]
    fn a_receiver_at_1_gbit_never_becomes_bulk() {
        let mut throttle = Throttle::default();
        for _ in 0..100 {
            // 50 us at 1 Gbit/s.
            throttle.received = work(4);
            throttle.interrupt();
        }
        assert_eq!(throttle.gap(), Duration::micros(50));
    }

    #[test]
    fn large_sends_make_a_card_bulk_until_little_is_sent() {
        let mut throttle = Throttle { sent: work(7), ..Throttle::default() };
        throttle.interrupt();
        assert_eq!(throttle.gap(), Duration::micros(250), "10,598 bytes");
        throttle.sent = work(20);
        throttle.interrupt();
        throttle.interrupt();
        assert_eq!(throttle.gap(), Duration::micros(250), "nothing was sent since");
        throttle.sent = work(3);
        let rates = [9_000, 14_000, 19_000, 20_000].map(|rate| Duration(1_000_000_000 / rate));
        for gap in rates {
            throttle.interrupt();
            assert_eq!(throttle.gap(), gap, "the rate climbs by 5,000 per interrupt");
        }
    }

    #[test]
    fn very_much_work_per_interrupt_is_not_bulk() {
        let mut throttle = Throttle { sent: work(10), ..Throttle::default() };
        throttle.interrupt();
        throttle.sent = work(36);
        throttle.interrupt();
        assert_eq!(throttle.gap(), Duration(1_000_000_000 / 9_000));
    }
}
