//! Processor time of this process.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// User and system time since the process started; zero if the kernel does not report it.
pub fn process_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| {
            let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(micros.unsigned_abs())
        })
        .sum()
}
