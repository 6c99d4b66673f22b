//! Threads of ours take none of the program's signals.

use std::mem::MaybeUninit;
use std::ptr;

/// What the machine raises at the thread that caused it; blocking these would only hide a bug.
const SYNCHRONOUS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Restores a thread's signal mask.
struct Restore(libc::sigset_t);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel filled in; a null pointer asks for nothing back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Does something with all signals blocked, such as starting a thread, which inherits that: the
/// program's signals go to its own threads, whose system calls it means to interrupt.
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
