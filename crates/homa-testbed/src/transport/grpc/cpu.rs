//! Processor time of other threads and processes, from /proc.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Ticks a second of the times in /proc on Linux, whatever the kernel's own rate.
const TICKS: u64 = 100;

/// A thread or process.
#[derive(Clone, Debug)]
pub(super) struct Cpu(PathBuf);

impl Cpu {
    /// A process with all its threads.
    pub(super) fn of_process(id: u32) -> Self {
        Self(format!("/proc/{id}/stat").into())
    }

    /// The calling thread.
    pub(super) fn of_this_thread() -> Option<Self> {
        // For example `1234/task/1235`.
        let own = fs::read_link("/proc/thread-self").ok()?;
        Some(Self(PathBuf::from("/proc").join(own).join("stat")))
    }

    /// User and system time so far; zero if it has ended.
    pub(super) fn time(&self) -> Duration {
        fs::read_to_string(&self.0).ok().and_then(|stat| parsed(&stat)).unwrap_or_default()
    }
}

/// Fields 14 and 15 of proc_pid_stat(5). The second one is a name in parentheses, which may contain
/// spaces.
fn parsed(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1_000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_a_name_with_spaces() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0";
        assert_eq!(parsed(stat), Some(Duration::from_secs(3)));
        assert_eq!(parsed("7 (a) S"), None);
        assert!(Cpu::of_this_thread().is_some_and(|cpu| cpu.0.ends_with("stat")));
    }
}
