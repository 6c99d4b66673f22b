//! Resident memory of the process while a load runs, and whether it grows.
//!
//! The numbers are the kernel's (`/proc/self/status`) and cover all hosts, the switch and the load
//! generator, because they share one process. The memory for latencies is allocated before the load
//! begins; later, each pause of the machine takes 16 B. Left out: socket buffers, which the kernel
//! holds.

use std::fs;
use std::time::Duration;

/// Growth of this size never counts, because the kernel's accounting, the allocator's arenas and
/// the load itself vary by as much. Bytes.
pub const UNNOTICED_GROWTH: u64 = 4_000_000;
/// Growth of one part in this many never counts.
const SHARE: u64 = 10;
/// Samples in each quarter of a load.
const SAMPLES: u32 = 16;

/// Resident memory of this process under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// At the first arrival, bytes.
    pub start_bytes: u64,
    /// Maximum since then, bytes.
    pub peak_bytes: u64,
    /// Early and late in the load; `None` if the load ended before there was a sample of both.
    pub trend: Option<Trend>,
}

/// Resident memory early and late in the time in which RPCs arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trend {
    /// Mean over the second quarter, bytes: tables that fill up once are full by then.
    pub early_bytes: u64,
    /// Mean over the last quarter, bytes.
    pub late_bytes: u64,
    /// Time during which RPCs arrived.
    pub lasted: Duration,
}

/// Shorter loads are not judged, because queues at high load grow and shrink for seconds.
const LONG: Duration = Duration::from_secs(50);

impl Trend {
    /// Growth that counts as flat: a tenth of the early mean or 4 MB, if that is more. Bytes.
    pub fn allowed_bytes(&self) -> u64 {
        (self.early_bytes / SHARE).max(UNNOTICED_GROWTH)
    }

    /// True if the load lasted long enough to judge growth: 50 s.
    pub fn is_long(&self) -> bool {
        self.lasted >= LONG
    }

    /// True if memory did not grow by more than that.
    pub fn flat(&self) -> bool {
        self.late_bytes <= self.early_bytes + self.allowed_bytes()
    }
}

impl Memory {
    /// Combines the observations of several threads: the largest, and the trend of the one that has
    /// it.
    pub(crate) fn merged(seen: impl Iterator<Item = Self>) -> Option<Self> {
        seen.reduce(|one, other| {
            let most = if other.peak_bytes > one.peak_bytes { other } else { one };
            Self { trend: one.trend.or(other.trend), ..most }
        })
    }
}

/// Samples memory at times.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    start_bytes: u64,
    /// How long RPCs arrive, since when, and the time between samples, nanoseconds.
    duration: Duration,
    start_ns: u64,
    step_ns: u64,
    next_ns: u64,
    /// Sum and number of the samples, by quarter.
    quarters: [(u64, u64); 4],
}

impl MemoryWatch {
    /// Starts to watch a load in which RPCs arrive for `duration` from `start_ns` on. `None` if the
    /// kernel does not let us reset the peak.
    pub(crate) fn begin(start_ns: u64, duration: Duration) -> Option<Self> {
        fs::write("/proc/self/clear_refs", "5").ok()?;
        let step_ns = ((duration / (4 * SAMPLES)).as_nanos() as u64).max(1);
        let start_bytes = read("VmRSS:")?;
        let quarters = [(0, 0); 4];
        Some(Self { start_bytes, duration, start_ns, step_ns, next_ns: start_ns, quarters })
    }

    /// Takes a sample if one is due.
    pub(crate) fn look(&mut self, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let step = (now_ns - self.start_ns) / self.step_ns;
        self.next_ns = self.start_ns + (step + 1) * self.step_ns;
        let quarter = self.quarters.get_mut((step / u64::from(SAMPLES)) as usize);
        if let Some((sum, count)) = quarter
            && let Some(bytes) = read("VmRSS:")
        {
            *sum += bytes;
            *count += 1;
        }
    }

    /// The observations.
    pub(crate) fn end(self) -> Option<Memory> {
        let mean = |quarter: usize| {
            let (sum, count) = self.quarters[quarter];
            sum.checked_div(count)
        };
        let (trend, lasted) = (mean(1).zip(mean(3)), self.duration);
        Some(Memory {
            start_bytes: self.start_bytes,
            // The kernel's two counters are not taken at the same instant.
            peak_bytes: read("VmHWM:")?.max(self.start_bytes),
            trend: trend.map(|(early_bytes, late_bytes)| Trend { early_bytes, late_bytes, lasted }),
        })
    }
}

fn read(name: &str) -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn parse(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn memory_is_read_in_bytes_under_its_own_name() {
        let status = "Name:\thoma\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse(status, "VmRSS:"), Some(1_048_576));
        assert_eq!(parse(status, "VmHWM:"), Some(2_097_152));
        assert_eq!(parse(status, "VmSwap:"), None);
    }

    #[test]
    fn growth_is_a_tenth_or_four_megabytes() {
        let lasted = Duration::from_secs(60);
        let trend = |early_bytes, late_bytes| Trend { early_bytes, late_bytes, lasted };
        assert!(trend(10_000_000, 14_000_000).flat() && !trend(10_000_000, 14_000_001).flat());
        assert!(trend(90_000_000, 99_000_000).flat() && !trend(90_000_000, 99_000_001).flat());
        assert!(trend(90_000_000, 10_000_000).flat());
    }

    #[test]
    fn the_largest_peak_and_the_one_trend_of_threads_are_kept() {
        let seen = |peak_bytes, trend| Memory { start_bytes: 1, peak_bytes, trend };
        let trend = Some(Trend { early_bytes: 2, late_bytes: 3, lasted: Duration::ZERO });
        let both = Memory::merged([seen(9, None), seen(5, trend)].into_iter());
        assert_eq!(both, Some(seen(9, trend)));
        assert_eq!(Memory::merged([].into_iter()), None);
    }

    /// One test, because the peak is the process's. The buffer held throughout lets concurrent
    /// tests take and free some 25 MB.
    #[test]
    fn only_peaks_under_load_count_and_lasting_memory_is_growth() {
        const BIG: usize = 64 << 20;
        let all_along = std::hint::black_box(vec![1u8; 4 * BIG]);
        drop(std::hint::black_box(vec![1u8; BIG]));
        let hour = Duration::from_secs(3_600);
        let Some(mut watch) = MemoryWatch::begin(0, hour) else { return };
        let before = MemoryWatch::begin(0, hour)
            .and_then(MemoryWatch::end)
            .expect("the kernel told us before");
        assert!(before.peak_bytes < before.start_bytes + BIG as u64 / 2, "{before:?}");
        assert_eq!(before.trend, None, "no sample");
        watch.look(1_000 * SECOND);
        drop(std::hint::black_box(vec![1u8; BIG]));
        watch.look(3_000 * SECOND);
        // Too early for another sample, and after the load.
        let held = std::hint::black_box(vec![1u8; BIG]);
        watch.look(3_001 * SECOND);
        watch.look(3_600 * SECOND);
        let after = watch.end().expect("the kernel told us before");
        assert!(after.peak_bytes > after.start_bytes + BIG as u64 / 2, "{after:?}");
        assert!(after.trend.is_some_and(|trend| trend.flat()), "{after:?}");
        let mut watch = MemoryWatch::begin(0, hour).expect("the kernel told us before");
        watch.look(1_000 * SECOND);
        let more = std::hint::black_box(vec![1u8; BIG]);
        watch.look(2_701 * SECOND);
        let grown = watch.end().and_then(|memory| memory.trend).expect("two samples");
        assert!(!grown.flat(), "{grown:?}");
        drop((all_along, held, more));
    }
}
