//! Network namespaces without root. The process leaves the machine's network for an empty one, and
//! every host of a rack is one more namespace inside it.
//!
//! Invariant: namespaces are held by descriptors and threads, never by a mounted file, so that they
//! end with this process even if it crashes or is interrupted. Left out: mount and process
//! namespaces, because the rack isolates networks only.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use crate::TestbedError;
use crate::sys;

/// Proof that the calling thread, and every thread it starts, is in a separate network.
#[derive(Clone, Copy, Debug)]
pub struct Isolation {
    by_user_namespace: bool,
}

impl Isolation {
    /// True if this needed a user namespace; the switch then gets no better nice value.
    pub fn by_user_namespace(&self) -> bool {
        self.by_user_namespace
    }
}

/// Moves the calling thread, and every thread it starts later, into a separate network in which it
/// may configure links. Root keeps its other rights. An ordinary user becomes root of a private
/// user namespace, which the kernel grants only while the process has a single thread, so call this
/// first in `main`.
pub fn isolate() -> Result<Isolation, TestbedError> {
    let refused = |source: io::Error| TestbedError::NamespacesRefused {
        setting: deciding_setting(&source),
        source,
    };
    match sys::unshare(libc::CLONE_NEWNET) {
        Ok(()) => return Ok(Isolation { by_user_namespace: false }),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {}
        Err(e) => return Err(refused(e)),
    }
    let threads = thread_count();
    if threads > 1 {
        return Err(TestbedError::AlreadyThreaded { threads });
    }
    let (user, group) = sys::user_and_group();
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET).map_err(refused)?;
    // A program with file capabilities (setcap) does not own its files in /proc until then.
    sys::own_proc_files().map_err(refused)?;
    // An ordinary user may map a group only after giving up setgroups.
    fs::write("/proc/self/setgroups", "deny").map_err(refused)?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(refused)?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(refused)?;
    Ok(Isolation { by_user_namespace: true })
}

/// A network namespace that threads can work in.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// A new, empty namespace with its loopback down.
    pub fn new(_inside: &Isolation) -> Result<Self, TestbedError> {
        let made = thread::scope(|scope| {
            scope
                .spawn(|| {
                    sys::unshare(libc::CLONE_NEWNET)?;
                    sys::current_network()
                })
                .join()
        });
        let made = made.map_err(|_| TestbedError::Panicked("namespace"))?;
        let refused = |source: io::Error| TestbedError::NamespacesRefused {
            setting: deciding_setting(&source),
            source,
        };
        Ok(Self { handle: made.map_err(refused)? })
    }

    /// Moves the calling thread into this namespace for the rest of its life: sockets that it opens
    /// from now on belong to it.
    pub fn enter(&self) -> Result<(), TestbedError> {
        sys::enter_network(self.handle.as_fd())
            .map_err(|e| TestbedError::setup("enter a host's network namespace", e))
    }

    /// Runs `job` on a thread inside the namespace and waits for it.
    pub fn run<T: Send>(
        &self,
        job: impl FnOnce() -> Result<T, TestbedError> + Send,
    ) -> Result<T, TestbedError> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                job()
            });
            worker.join().map_err(|_| TestbedError::Panicked("host"))?
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Threads of this process; 1 if /proc cannot be read.
fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Names the setting that most likely refused a namespace, and how to change it.
fn deciding_setting(error: &io::Error) -> String {
    const REMEDIES: [(&str, &str, &str); 4] = [
        ("kernel/unprivileged_userns_clone", "0", "set it to 1, or run as root"),
        ("user/max_user_namespaces", "0", "raise it, or run as root"),
        ("user/max_net_namespaces", "0", "raise it"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "set it to 0, or run as root"),
    ];
    for (setting, refuses, remedy) in REMEDIES {
        let value = fs::read_to_string(format!("/proc/sys/{setting}")).unwrap_or_default();
        if value.trim() == refuses {
            return format!("sysctl {} is {refuses}: {remedy}", setting.replace('/', "."));
        }
    }
    if error.raw_os_error() == Some(libc::ENOSPC) {
        return "sysctl user.max_user_namespaces or user.max_net_namespaces is used up: raise it"
            .into();
    }
    "usually a container's seccomp filter: run outside the container or give it CAP_SYS_ADMIN"
        .into()
}
