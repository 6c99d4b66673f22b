//! `--driver`: what carries Homa's packets, and the rules that go with it.

use std::net::{SocketAddr, UdpSocket};

use homa::proto::Rate;
use homa::{CallError, Client, Config, Engine, OpenError, PriorityMap, inline};

use super::any_address_for;
use super::protection::{Protection, REMEDY};
use crate::failure::{Failure, Hint};

/// What to do when there is no local address to call from.
const FAMILY_HINT: &str = "check that this machine has an address of the server's family";

/// What carries Homa's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// Inside UDP datagrams: needs no privilege.
    Udp,
    /// The same datagrams, bypassing the kernel's network stack (AF_XDP); peers may use plain UDP.
    /// Needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW. The host's packet filters do not see them.
    Xdp,
    /// `xdp` if it can be used here, otherwise `udp`, with the reason.
    Auto,
    /// Directly over IP, protocol 146, with the rules and timers of the Linux kernel module, to
    /// speak with hosts that run it: needs CAP_NET_RAW.
    RawIp,
}

impl Driver {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Xdp => "xdp",
            Self::Auto => "auto",
            Self::RawIp => "raw-ip",
        }
    }

    /// The driver that `auto` means at a local address, with a note to the user if AF_XDP cannot be
    /// used. Any other driver is returned as it is.
    pub fn settle(self, at: SocketAddr) -> Self {
        if self != Self::Auto {
            return self;
        }
        match <dyn homa::driver::Driver>::xdp(at, self.config().receive_buffer) {
            Ok(_) => Self::Xdp,
            Err(error) => {
                eprintln!("using --driver udp: {error}");
                Self::Udp
            }
        }
    }

    /// The local address to call a server from, at a free port. Over AF_XDP one of the interface
    /// that leads there: no other need be touched.
    pub fn address_for(self, server: SocketAddr) -> SocketAddr {
        let any = any_address_for(server);
        if !matches!(self, Self::Xdp | Self::Auto) {
            return any;
        }
        // Connecting looks the route up and sends nothing.
        let route = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(server)?;
            socket.local_addr()
        });
        route.map_or(any, |own| SocketAddr::new(own.ip(), 0))
    }

    /// An engine for servers at a local address; `hint` is for an address that cannot be had.
    pub fn engine(self, at: SocketAddr, config: Config, hint: &str) -> Result<Engine, Failure> {
        self.open(at, config, hint)
    }

    /// An engine for many threads, to call a server.
    pub fn client(self, server: SocketAddr, protection: &Protection) -> Result<Client, Failure> {
        let (at, config) = self.to_call(server, protection)?;
        Ok(self.open(at, config, FAMILY_HINT)?.client())
    }

    /// The same with all packets in the classes of a map, and paced to a rate if it is given.
    pub fn client_of_class(
        self,
        server: SocketAddr,
        protection: &Protection,
        map: PriorityMap,
        rate: Option<Rate>,
    ) -> Result<Client, Failure> {
        let (at, config) = self.to_call(server, protection)?;
        Ok(self.open(at, config.priority_map(map).link_rate(rate), FAMILY_HINT)?.client())
    }

    fn open(self, at: SocketAddr, config: Config, hint: &str) -> Result<Engine, Failure> {
        let opened = match self.settle(at) {
            Self::Udp | Self::Auto => Engine::bind(at, config),
            Self::Xdp => Engine::xdp(at, config),
            Self::RawIp => Engine::raw_ip(at, config),
        };
        explain(opened, hint)
    }

    /// The address and configuration of an engine that calls a server.
    fn to_call(
        self,
        server: SocketAddr,
        protection: &Protection,
    ) -> Result<(SocketAddr, Config), Failure> {
        if self != Self::RawIp {
            protection.check(server)?;
        }
        let config = protection.apply(self.config())?.calls_only();
        Ok((self.address_for(server), config))
    }

    /// The kind of peer decides the profile.
    pub fn config(self) -> Config {
        match self {
            Self::Udp | Self::Xdp | Self::Auto => Config::default(),
            Self::RawIp => Config::linux(),
        }
    }

    /// An engine for this thread alone, to call a server.
    pub fn inline(
        self,
        server: SocketAddr,
        protection: &Protection,
    ) -> Result<inline::Engine, Failure> {
        let (at, config) = self.to_call(server, protection)?;
        let opened = match self.settle(at) {
            Self::Udp | Self::Auto => inline::Engine::bind(at, config),
            Self::Xdp => inline::Engine::xdp(at, config),
            Self::RawIp => inline::Engine::raw_ip(at, config),
        };
        explain(opened, FAMILY_HINT)
    }

    /// Refuses a request that no engine takes, before there is memory for it.
    pub fn check_size(self, bytes: u32) -> Result<(), Failure> {
        let max = self.config().protocol.max_message;
        if bytes <= max {
            return Ok(());
        }
        let error = anyhow::anyhow!("a message over {} has at most {max} bytes", self.name());
        Err(Failure::new(error, "choose a smaller --size"))
    }

    /// A call that failed, with what to do; `serve` is the option with which `homa serve` is the
    /// server that was meant.
    pub fn failure(self, server: SocketAddr, error: CallError, serve: &str) -> Failure {
        let hint = self.hint(server, &error, serve);
        Failure::new(error, hint)
    }

    /// Advice after a failed call.
    pub fn hint(self, server: SocketAddr, error: &CallError, serve: &str) -> String {
        match error {
            CallError::DeadlineExceeded
            | CallError::Unreachable
            | CallError::HostUnreachable
            | CallError::ProtocolUnreachable
            | CallError::PortUnreachable => self.start_hint(server, serve),
            CallError::Destination { .. } => {
                "give the address and port that `homa serve` says it listens on".into()
            }
            CallError::HandshakeRefused { .. } => {
                "give both ends --key with the same file, or both --plaintext".into()
            }
            CallError::Indeterminate => "see whether the server restarted, then call again, as \
                                         `homa call --idempotent` does"
                .into(),
            CallError::Overloaded => "call again later, or less often".into(),
            CallError::Abandoned => "see what the server logged".into(),
            _ => "`--help` of this command lists what can be asked for".into(),
        }
    }

    /// The hint if the server does not answer.
    fn start_hint(self, server: SocketAddr, serve: &str) -> String {
        let driver = match self {
            Self::Udp | Self::Xdp | Self::Auto => "",
            Self::RawIp => " --driver raw-ip",
        };
        format!("is a Homa server there? `homa serve --bind {server}{driver} {serve}` starts one")
    }
}

/// The command that lets this program open sockets directly over IP.
pub fn grant_raw() -> String {
    grant("cap_net_raw")
}

/// The command that lets this program use AF_XDP.
pub fn grant_xdp() -> String {
    grant("cap_net_admin,cap_bpf,cap_net_raw")
}

fn grant(capabilities: &str) -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "homa".into(), |p| p.display().to_string());
    format!("sudo setcap {capabilities}+ep '{program}'")
}

/// An engine that was opened, or why not; `hint` is for an address that cannot be had.
pub fn explain<T>(opened: Result<T, OpenError>, hint: &str) -> Result<T, Failure> {
    match opened {
        Err(error @ OpenError::NeedsNetRaw) => {
            Err(Failure::new(error, format!("{}, or leave --driver raw-ip away", grant_raw())))
        }
        Err(error @ OpenError::NeedsXdp { .. }) => {
            Err(Failure::new(error, format!("{}, or choose --driver auto", grant_xdp())))
        }
        Err(error @ OpenError::Unprotected { .. }) => Err(Failure::new(error, REMEDY)),
        Err(error @ OpenError::KeysOverIp) => {
            Err(Failure::new(error, "leave --key away, or --driver raw-ip"))
        }
        Err(error @ (OpenError::Xdp { .. } | OpenError::NoInterface { .. })) => Err(Failure::new(
            error,
            "`homa doctor` shows what is missing; --driver auto falls back to UDP",
        )),
        other => other.hint(hint),
    }
}
