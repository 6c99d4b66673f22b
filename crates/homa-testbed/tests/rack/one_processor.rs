//! Racks on a single processor.
//!
//! Tests of the program `homa` use this file as well.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Until it is dropped, racks that this thread starts have one processor. Switch and hosts then
/// sleep while they wait; with two processors they spin.
pub struct OneProcessor {
    all: CpuSet,
}

impl OneProcessor {
    pub fn take() -> Result<Self, Errno> {
        let all = sched_getaffinity(THIS_THREAD)?;
        let mut one = CpuSet::new();
        let first = (0..CpuSet::count()).find(|&cpu| all.is_set(cpu) == Ok(true));
        one.set(first.ok_or(Errno::ENODEV)?)?;
        sched_setaffinity(THIS_THREAD, &one)?;
        Ok(Self { all })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _ = sched_setaffinity(THIS_THREAD, &self.all);
    }
}
