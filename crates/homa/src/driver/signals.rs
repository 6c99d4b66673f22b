//! Keeps the program's signals away from our threads.

use std::mem::MaybeUninit;
use std::ptr;

/// Signals that the machine raises in the thread that caused them; blocking them would only hide a
/// bug.
const SYNCHRONOUS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Restores a thread's signal mask.
struct Restore(libc::sigset_t);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the kernel filled in the set; a null pointer requests nothing back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Runs a closure with all signals blocked. A thread that is started in it inherits the mask, so
/// signals are delivered to the program's threads, whose system calls they should interrupt.
pub fn blocked<T>(what: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is filled in before it is changed and read, with signals that exist; `before`
    // may be written to, and is read only if the call succeeded and so wrote it.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in SYNCHRONOUS {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        let changed =
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0;
        changed.then(|| Restore(before.assume_init()))
    };
    let result = what();
    drop(before);
    result
}
