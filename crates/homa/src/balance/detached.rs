//! The runtime of balancers in programs that have none: a thread for lookups and timers, one for
//! the process. Calls are polled by whichever executor awaits them.
//!
//! Invariant: after `fork` the child starts another thread when it needs one, because the parent's
//! does not exist there.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::thread;

use ::tokio::runtime::{Builder, Handle};

use crate::driver::fork::Process;
use crate::driver::signals;

/// The runtime and the process that started it.
static RUNTIME: Mutex<Option<(Process, Handle)>> = Mutex::new(None);

/// The process's runtime for balancers.
pub(super) fn runtime() -> io::Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((process, handle)) = &*runtime
        && process.is_this()
    {
        return Ok(handle.clone());
    }
    let built = Builder::new_current_thread().enable_all().build()?;
    let handle = built.handle().clone();
    let thread = thread::Builder::new().name("homa names".into());
    signals::blocked(|| thread.spawn(move || built.block_on(pending::<()>())))?;
    // That of a parent is not dropped, because its threads do not exist here.
    std::mem::forget(runtime.replace((Process::this(), handle.clone())));
    Ok(handle)
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
