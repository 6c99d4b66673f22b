//! The time since the machine started, by which processes of one machine compare times.

use std::mem::MaybeUninit;
use std::time::Duration;

/// The system's monotonic clock, which all processes of the machine share. It stands still while
/// the machine sleeps.
pub fn uptime() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a live `timespec`, for which zeroes are a value.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
