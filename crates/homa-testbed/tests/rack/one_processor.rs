//! Racks on a single processor.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Until it is dropped, racks have one processor. Switch and hosts then sleep while they wait; with
/// two processors they spin, as in the other claims.
pub struct OneProcessor {
    all: CpuSet,
}

impl OneProcessor {
    pub fn take() -> Result<Self, Errno> {
        let all = sched_getaffinity(Pid::this())?;
        let mut one = CpuSet::new();
        let first = (0..CpuSet::count()).find(|&cpu| all.is_set(cpu) == Ok(true));
        one.set(first.ok_or(Errno::ENODEV)?)?;
        sched_setaffinity(Pid::this(), &one)?;
        Ok(Self { all })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _ = sched_setaffinity(Pid::this(), &self.all);
    }
}
