//! Processor time of this process, and how often its threads went to sleep.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// What the process has used since it started; zero if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Voluntary context switches of all threads.
    pub sleeps: u64,
}

impl Usage {
    /// Until now.
    pub fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Self::default() };
        let times = [usage.user_time(), usage.system_time()].map(|time| {
            let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(micros.unsigned_abs())
        });
        let sleeps = usage.voluntary_context_switches().unsigned_abs();
        Self { cpu: times.iter().sum(), sleeps }
    }

    /// The use since `before` was taken.
    pub fn since(self, before: Self) -> Self {
        let cpu = self.cpu.saturating_sub(before.cpu);
        Self { cpu, sleeps: self.sleeps.saturating_sub(before.sleeps) }
    }
}

/// User and system time since the process started; zero if the kernel does not report it.
pub fn process_time() -> Duration {
    Usage::now().cpu
}
