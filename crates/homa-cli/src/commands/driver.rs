//! `--driver`: what carries Homa's packets, and the rules that go with it.

use std::net::SocketAddr;

use homa::{CallError, Config, Engine, OpenError, inline};

use crate::failure::{Failure, Hint};

/// What carries Homa's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// Inside UDP datagrams: needs no privilege.
    Udp,
    /// Directly over IP, protocol 146, with the rules and timers of the Linux kernel module, to
    /// speak with hosts that run it: needs CAP_NET_RAW.
    RawIp,
}

impl Driver {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::RawIp => "raw-ip",
        }
    }

    /// An engine for many threads at a local address; `hint` is for an address that cannot be had.
    pub fn engine(self, at: SocketAddr, hint: &str) -> Result<Engine, Failure> {
        let opened = match self {
            Self::Udp => Engine::bind(at, self.config()),
            Self::RawIp => Engine::raw_ip(at, self.config()),
        };
        explain(opened, hint)
    }

    /// Who is spoken to decides the profile.
    fn config(self) -> Config {
        match self {
            Self::Udp => Config::default(),
            Self::RawIp => Config::linux(),
        }
    }

    /// An engine for this thread alone.
    pub fn inline(self, at: SocketAddr, hint: &str) -> Result<inline::Engine, Failure> {
        let opened = match self {
            Self::Udp => inline::Engine::bind(at, self.config()),
            Self::RawIp => inline::Engine::raw_ip(at, self.config()),
        };
        explain(opened, hint)
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

    /// What to do when a call failed.
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
            CallError::Indeterminate => "see whether the server restarted, then call again".into(),
            _ => "`--help` of this command lists what can be asked for".into(),
        }
    }

    /// What to do when nobody answers.
    fn start_hint(self, server: SocketAddr, serve: &str) -> String {
        let driver = match self {
            Self::Udp => "",
            Self::RawIp => " --driver raw-ip",
        };
        format!("is a Homa server there? `homa serve --bind {server}{driver} {serve}` starts one")
    }
}

/// The command that lets this program open sockets directly over IP.
pub fn grant_raw() -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "homa".into(), |p| p.display().to_string());
    format!("sudo setcap cap_net_raw+ep '{program}'")
}

fn explain<T>(opened: Result<T, OpenError>, hint: &str) -> Result<T, Failure> {
    match opened {
        Err(error @ OpenError::NeedsNetRaw) => {
            Err(Failure::new(error, format!("{}, or leave --driver raw-ip away", grant_raw())))
        }
        other => other.hint(hint),
    }
}
