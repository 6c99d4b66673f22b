//! Which cores a measurement uses, and moving a thread to one.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The first two cores this process may use, server first; with fewer than two, no thread is
/// pinned.
pub fn two() -> [Option<usize>; 2] {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return [None; 2] };
    let mut cores = (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false));
    match (cores.next(), cores.next()) {
        (Some(server), Some(client)) => [Some(server), Some(client)],
        _ => [None; 2],
    }
}

/// Keeps the calling thread on a core from now on.
pub fn stay_on(core: Option<usize>) -> io::Result<()> {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &set)?;
    }
    Ok(())
}
