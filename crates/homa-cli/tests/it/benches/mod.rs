//! Commands that keep both processors busy or measure in real time. `cargo xtask test` runs these
//! tests in a process apart from the program's other tests, with nothing beside it.

mod bench;
mod doctor;
mod keys;
mod racks;
mod runs;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CORES: RwLock<()> = RwLock::new(());

/// Hold it during a run that spins on both processors: it is the only one then.
fn alone() -> RwLockWriteGuard<'static, ()> {
    CORES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Hold it during a rack on one processor, which mostly sleeps. Only other such racks run
/// beside it.
fn beside_racks() -> RwLockReadGuard<'static, ()> {
    CORES.read().unwrap_or_else(PoisonError::into_inner)
}
