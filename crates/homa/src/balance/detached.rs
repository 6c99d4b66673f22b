//! The runtime of balancers in programs that have none: a thread for lookups and timers, one for
//! the process. Calls are polled by whichever executor awaits them.
//!
//! Invariant: after `fork` the child starts another thread when it needs one, because the parent's
//! does not exist there.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ::tokio::runtime::{Builder, Handle};

use crate::driver::fork::PerProcess;
use crate::driver::signals;

/// The runtime, once it has started.
static RUNTIME: PerProcess<Mutex<Option<Handle>>> = PerProcess::new();

/// [`RUNTIME`], which is kept from others meanwhile.
pub(super) fn locked() -> MutexGuard<'static, Option<Handle>> {
    RUNTIME.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's runtime for balancers.
pub(super) fn runtime() -> io::Result<Handle> {
    let mut runtime = locked();
    if let Some(handle) = &*runtime {
        return Ok(handle.clone());
    }
    let built = Builder::new_current_thread().enable_all().build()?;
    let handle = built.handle().clone();
    let thread = thread::Builder::new().name("homa names".into());
    signals::blocked(|| thread.spawn(move || built.block_on(pending::<()>())))?;
    Ok(runtime.insert(handle).clone())
}

/// Polls a future with the timers of a runtime, if there is one.
pub(super) async fn within<F: Future>(runtime: Option<&Handle>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.map(Handle::enter);
        future.as_mut().poll(context)
    })
    .await
}
