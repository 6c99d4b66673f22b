//! What the process holds in memory while a load runs: does it grow?
//!
//! The kernel's own books (`/proc/self/status`): all hosts, the switch and what the load generator
//! notes down, since they share one process. Left out: socket buffers, which are the kernel's.

use std::fs;

/// Resident memory of this process under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// When the first RPC was due, bytes.
    pub start_bytes: u64,
    /// The most since then, bytes.
    pub peak_bytes: u64,
}

impl Memory {
    /// Starts to watch. `None` where the kernel does not let us forget earlier peaks.
    pub(crate) fn watch() -> Option<Self> {
        fs::write("/proc/self/clear_refs", "5").ok()?;
        let start_bytes = read("VmRSS:")?;
        Some(Self { start_bytes, peak_bytes: start_bytes })
    }

    /// With the peak until now.
    pub(crate) fn until_now(self) -> Option<Self> {
        // The kernel's two counters are not taken at the same instant.
        Some(Self { peak_bytes: read("VmHWM:")?.max(self.start_bytes), ..self })
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

    #[test]
    fn memory_is_read_in_bytes_under_its_own_name() {
        let status = "Name:\thoma\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse(status, "VmRSS:"), Some(1_048_576));
        assert_eq!(parse(status, "VmHWM:"), Some(2_097_152));
        assert_eq!(parse(status, "VmSwap:"), None);
    }

    #[test]
    fn a_peak_that_is_over_still_counts_and_an_earlier_one_does_not() {
        const BIG: usize = 64 << 20;
        drop(std::hint::black_box(vec![1u8; BIG]));
        let Some(memory) = Memory::watch() else { return };
        let before = memory.until_now().expect("the kernel told us before");
        assert!(before.peak_bytes < before.start_bytes + BIG as u64 / 2, "{before:?}");
        drop(std::hint::black_box(vec![1u8; BIG]));
        let after = memory.until_now().expect("the kernel told us before");
        assert!(after.peak_bytes > after.start_bytes + BIG as u64 / 2, "{after:?}");
    }
}
