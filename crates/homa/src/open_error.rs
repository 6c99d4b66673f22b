//! Why an engine could not be opened.

use std::io;
use std::net::SocketAddr;

use homa_proto::ConfigError;

use crate::driver::udp::SocketFault;
use crate::handover::HandoverError;

/// An engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The local address is not available.
    #[error("cannot bind {at}: {source}; choose another address, or port 0 for any free port")]
    Bind {
        /// The requested address.
        at: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Another socket has the local address, perhaps that of another engine. Engines share a port
    /// only as shards that were opened together ([`Engine::sharded`](crate::Engine::sharded)); one
    /// engine serves it with any number of threads.
    #[error(
        "{at} is in use: choose another port (0: any), or end the program that uses it; to serve \
         one port with several engines, open them together with `Engine::sharded`, or accept from \
         more threads with clones of one `Server`"
    )]
    InUse {
        /// The requested address.
        at: SocketAddr,
    },
    /// The descriptor that was given for the engine's socket cannot be used.
    #[error("the descriptor cannot be the engine's socket: {0}")]
    Socket(#[from] SocketFault),
    /// The number of shards is zero, or more than the limits can be divided by.
    #[error(
        "{shards} engines cannot share an address with these limits: choose 1 to {most}, or raise \
         `max_rpcs`, `max_peers`, `send_memory`, `memory_budget` and the window's `max_incoming`, \
         which are split across the engines (at most {} engines)",
        crate::sharded::SHARDS_MAX
    )]
    Shards {
        /// The requested number.
        shards: usize,
        /// The largest possible number.
        most: usize,
    },
    /// One of several engines that share an address already has a server.
    #[error(
        "shard {shard} at {at} already has a server: drop the servers of all shards before \
         `Sharded::serve`, or call `Engine::serve` on the shards that have none \
         (`Sharded::engines`)"
    )]
    Served {
        /// The shared address.
        at: SocketAddr,
        /// The first shard that has a server.
        shard: usize,
    },
    /// The system does not steer datagrams between the sockets of one address.
    #[error(
        "the system does not steer datagrams between sockets of one address \
         (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5): {0}; use one engine, `Engine::bind`, with any \
         number of threads"
    )]
    Steering(#[source] io::Error),
    /// A parameter of the protocol is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The MTU is too small to carry the headers.
    #[error("an MTU of {mtu} bytes leaves no room for payload: set at least 576")]
    Mtu {
        /// The requested size, bytes.
        mtu: u16,
    },
    /// The process lacks the capability CAP_NET_RAW, which raw IP sockets need.
    #[error(
        "Homa directly over IP needs the capability CAP_NET_RAW: grant it with `sudo setcap \
         cap_net_raw+ep PROGRAM`, or try it inside `unshare -Urn`; Homa over UDP needs no privilege"
    )]
    NeedsNetRaw,
    /// The process lacks capabilities that AF_XDP needs.
    #[error(
        "AF_XDP needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW, and this process lacks {missing}: \
         run it as root, or grant them with `sudo setcap cap_net_admin,cap_bpf,cap_net_raw+ep \
         PROGRAM`; Homa over UDP needs no privilege"
    )]
    NeedsXdp {
        /// The missing capabilities, separated by commas.
        missing: String,
    },
    /// AF_XDP cannot be used on an interface.
    #[error(
        "AF_XDP cannot be used at the interface {interface}: cannot {step}: {source}{}; Homa over \
         UDP reaches the same peers",
        xdp_advice(.source)
    )]
    Xdp {
        /// Its name.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No interface that AF_XDP can use has the address.
    #[error(
        "no Ethernet interface that is up has the address of {at}, so AF_XDP cannot be used: bind \
         the address of such an interface, or use Homa over UDP"
    )]
    NoInterface {
        /// The requested address.
        at: SocketAddr,
    },
    /// The engine cannot take the place that was handed over.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// Other hosts reach the address, there are no keys, and plaintext was not chosen.
    #[error("an engine at {at} would exchange plaintext with other hosts: {REMEDIES}")]
    Unprotected {
        /// The address.
        at: SocketAddr,
    },
    /// There is a policy about verified peers, and there are no keys.
    #[error(
        "the policy of `Config::admit` (`admit` in C and Python) would never be asked, because \
         without keys no peer is verified: set keys, or leave the policy out"
    )]
    PolicyWithoutKeys,
    /// Keys were given to an engine over raw IP.
    #[error(
        "Homa directly over IP cannot be encrypted, because the kernel module speaks plaintext \
         only: use UDP (`Engine::bind`), or no keys (`Config::plaintext`)"
    )]
    KeysOverIp,
    /// The engine is draining or has drained.
    #[error("the engine is shutting down: open another engine for new servers")]
    ShuttingDown,
    /// An event loop drives the engine already.
    #[error("an event loop already drives this engine: one is enough for all of its tasks")]
    Driven,
    /// The calling thread is in no tokio runtime.
    #[cfg(feature = "tokio")]
    #[error("there is no tokio runtime here: call this from a task, or after `Runtime::enter`")]
    NoRuntime,
    /// The engine was opened before the process was forked.
    #[error("the engine was created before fork(): open a new one in the child")]
    Forked,
    /// The system refused a thread or a descriptor.
    #[error("the system refused resources for the engine: {0}; check its limits (ulimit -n, -u)")]
    Resources(#[source] io::Error),
}

/// What to do if there are no keys and plaintext was not chosen.
pub(crate) const REMEDIES: &str = "encrypt with keys (`homa key new FILE`, then `Config::keys`, \
    `--key FILE`, `keys=FILE` in Python, `key_file` in C), or choose plaintext \
    (`Config::plaintext()`, `--plaintext`, `plaintext=True`, HOMA_PLAINTEXT)";

/// What to do if the system's reason does not say it.
fn xdp_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EBUSY) => {
            " (another process uses XDP there, and only one can: `ip link show` names its program)"
        }
        Some(libc::ENOBUFS) => {
            " (raise the limit of locked memory, ulimit -l, or grant CAP_IPC_LOCK)"
        }
        Some(libc::EPERM) => {
            " (not permitted in user namespaces and containers: run it on the host)"
        }
        _ => "",
    }
}

impl OpenError {
    /// The error for an address that the system refused to bind: [`Self::InUse`] if another socket
    /// has it, [`Self::Resources`] if another address would be refused as well, otherwise
    /// [`Self::Bind`].
    pub fn bind(at: SocketAddr, source: io::Error) -> Self {
        let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { at },
            _ if source.raw_os_error().is_some_and(|errno| short.contains(&errno)) => {
                Self::Resources(source)
            }
            _ => Self::Bind { at, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_address_is_advised_that_would_help() {
        let at = SocketAddr::from(([127, 0, 0, 1], 4000));
        let said = |errno| OpenError::bind(at, io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert!(said(errno).ends_with("check its limits (ulimit -n, -u)"), "{}", said(errno));
        }
        assert!(said(libc::EADDRNOTAVAIL).contains("choose another address"));
        assert!(said(libc::EADDRINUSE).contains("127.0.0.1:4000 is in use"));
    }
}
