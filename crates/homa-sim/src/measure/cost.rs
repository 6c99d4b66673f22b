//! CPU time and memory of a run. They are the only results that are not a function of the scenario.

use nix::sys::resource::{UsageWho, getrusage};

/// User CPU seconds of this thread so far; 0 if the system does not report them.
pub fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0.0, |usage| {
        let time = usage.user_time();
        time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
    })
}

/// Largest resident memory of this process so far, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}
