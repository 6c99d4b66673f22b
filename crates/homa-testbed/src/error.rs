//! Errors of a rack, each with what to do next.

use std::io;

/// Why a rack could not be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The kernel refuses user or network namespaces.
    #[error("this kernel refuses network namespaces ({source}); {setting}")]
    NamespacesRefused {
        /// The kernel's answer.
        source: io::Error,
        /// Which setting decides, and how to change it.
        setting: String,
    },
    /// A namespace can only be entered before the process has threads.
    #[error(
        "the process already has {threads} threads; call homa_testbed::isolate first thing in main"
    )]
    AlreadyThreaded {
        /// Threads running now.
        threads: usize,
    },
    /// A link, address or queue could not be set up.
    #[error("cannot {what}: {source}; {hint}")]
    Setup {
        /// The step that failed.
        what: String,
        /// The kernel's answer.
        source: io::Error,
        /// Advice for the user.
        hint: &'static str,
    },
    /// A parameter makes no sense.
    #[error("{0}")]
    Config(String),
    /// A host's transport failed while running.
    #[error("host {host}, {what}: {source}; run again, and report it if it stays")]
    Transport {
        /// Index of the host.
        host: usize,
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread of the rack panicked: a bug of ours.
    #[error("a thread of the rack panicked ({0}); this is a bug, please report it")]
    Panicked(&'static str),
}

impl TestbedError {
    /// A failed set-up step with a hint that fits most of them.
    pub(crate) fn setup(what: impl Into<String>, source: io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::ENOENT) => {
                "the kernel lacks this queue discipline or link kind: load sch_tbf and veth \
                 (modprobe sch_tbf veth), or use a kernel that has them"
            }
            Some(libc::EOPNOTSUPP) => "load the module veth (modprobe veth) or use another kernel",
            Some(libc::EPERM) | Some(libc::EACCES) => {
                "the sandbox this runs in forbids it: run outside the container, or give the \
                 container CAP_NET_ADMIN"
            }
            Some(libc::EMFILE) | Some(libc::ENFILE) => "raise the open-file limit (ulimit -n)",
            _ => "`homa doctor` shows what this machine can do",
        };
        Self::Setup { what: what.into(), source, hint }
    }
}
