//! `homa proxy`: gRPC over HTTP/2, and any other HTTP, between local programs and other hosts over
//! Homa (feature `grpc`).
//!
//! | file | what |
//! |---|---|
//! | `run` | the life of a proxy |
//! | `front` | calls of local clients, made over Homa |
//! | `tunnel` | CONNECT, by which a client names the server of the calls that follow |
//! | `servers` | the server of a call: one for all, or the one that the call names |
//! | `back` | calls from Homa, made at a local server |
//! | `socket` | TCP and Unix sockets of both |
//! | `connections` | the connections to the local server |
//! | `requests` | the connections for HTTP/1.1 |
//! | `plain` | requests that are not calls of gRPC: their heads and errors |
//! | `gather` | how much of a body is read before it is forwarded |
//! | `counts` | what is counted |
//!
//! Invariants: the proxy needs no definition of a service, and neither decodes nor changes
//! messages. It reads a body only as fast as the other side takes it, after at most its first
//! 4 MiB, and at most 256 MiB of long bodies at once. No input of either side ends the process or
//! another call, unless the local server ends a connection because of it.
//!
//! Left out: TLS at the local end, upgrades such as WebSocket, and retries, which clients make
//! themselves.

#[cfg(feature = "grpc")]
mod back;
#[cfg(feature = "grpc")]
mod connections;
#[cfg(feature = "grpc")]
mod counts;
#[cfg(feature = "grpc")]
mod front;
#[cfg(feature = "grpc")]
mod gather;
#[cfg(feature = "grpc")]
mod plain;
#[cfg(feature = "grpc")]
mod requests;
#[cfg(feature = "grpc")]
mod run;
#[cfg(feature = "grpc")]
mod servers;
#[cfg(feature = "grpc")]
mod socket;
#[cfg(feature = "grpc")]
mod tunnel;

use std::net::SocketAddr;
use std::path::PathBuf;

use super::pacing::Pacing;
use super::protection::{EarlyDataOption, Protection};
use crate::failure::Failure;
#[cfg(not(feature = "grpc"))]
use crate::failure::Outcome;
use crate::values;
#[cfg(feature = "grpc")]
pub use run::run;

/// What an end may be.
const ENDS: &str = "write http://127.0.0.1:7000 or unix:/run/homa/search.sock for the end at local \
                    programs, and homa://search.example:4000 for the end at other hosts";

/// Arguments of `homa proxy`. One of the two ends is Homa, and the other is HTTP.
#[derive(Debug, clap::Args)]
#[cfg_attr(not(feature = "grpc"), allow(dead_code))]
pub struct Args {
    /// Where to accept calls: http://ADDR or unix:PATH from local clients (gRPC or any other HTTP,
    /// without TLS), or homa://ADDR from other hosts. Port 0 picks a free port and prints it.
    #[arg(long, value_name = "END", value_parser = end)]
    listen: ProxyEnd,
    /// Where to make them: homa://HOST:PORT or homa:///HOST:PORT (all addresses of the name) at
    /// another host, homa://* at the host and port that the client names (as with
    /// grpc_proxy=http://127.0.0.1:7000 or http_proxy=http://127.0.0.1:7000 in its environment, or
    /// by its authority), or http://HOST:PORT or unix:PATH at a local server.
    #[arg(long, value_name = "END", value_parser = end)]
    to: ProxyEnd,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    early_data: EarlyDataOption,
    #[command(flatten)]
    pacing: Pacing,
    /// Allow an http:// end at an address off loopback. Calls travel in plaintext there, and every
    /// host that reaches a proxy beside clients can make calls with its key.
    #[arg(long)]
    plain_http: bool,
    /// Maximum number of calls in progress. Further ones are refused (UNAVAILABLE, or 503), except
    /// calls from Homa whose client does not stream: those wait, and are refused if they would be
    /// late.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    concurrency: u32,
    /// Serve metrics as OpenMetrics text over HTTP (GET /metrics) at this TCP address; port 0 picks
    /// a free one, which is then printed. There is no access control: choose loopback or a private
    /// network.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    metrics: Option<SocketAddr>,
}

/// One end of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "grpc"), allow(dead_code))]
pub enum ProxyEnd {
    /// Local programs.
    Local(LocalEnd),
    /// Homa: the whole text, because its scheme says what the name stands for.
    Homa(String),
}

/// An end at local programs, which speak HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "grpc"), allow(dead_code))]
pub enum LocalEnd {
    /// Over TCP: host and port.
    Tcp(String),
    /// Over a Unix socket.
    Unix(PathBuf),
}

/// What to do if an `http://` end is off loopback.
#[cfg(feature = "grpc")]
const PLAIN_HTTP: &str = "use 127.0.0.1, [::1] or unix:PATH for the end at local programs, or \
                          choose plaintext and unknown callers there with --plain-http";

impl Args {
    /// An error if an address at the end of local programs is off loopback without that choice.
    #[cfg(feature = "grpc")]
    fn check_local(&self, addresses: &[SocketAddr]) -> Result<(), Failure> {
        match addresses.iter().find(|at| !self.plain_http && !is_loopback(at)) {
            None => Ok(()),
            Some(at) => {
                let error = anyhow::anyhow!("http://{at} is off loopback, and has no TLS");
                Err(Failure::new(error, PLAIN_HTTP))
            }
        }
    }
}

#[cfg(feature = "grpc")]
fn is_loopback(at: &SocketAddr) -> bool {
    at.ip().to_canonical().is_loopback()
}

/// An end as the command line has it.
fn end(text: &str) -> Result<ProxyEnd, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(ProxyEnd::Local(LocalEnd::Unix(path.into())));
    }
    if let Some(at) = text.strip_prefix("http://") {
        let at = at.strip_suffix('/').unwrap_or(at);
        let authority = !at.is_empty() && !at.contains(['/', '?', '#', '@']);
        return match at.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(_)) if authority => Ok(ProxyEnd::Local(LocalEnd::Tcp(at.into()))),
            _ => Err(format!("a host and a port are missing: {ENDS}")),
        };
    }
    if text.starts_with("homa://") || text.starts_with("homa+") {
        return Ok(ProxyEnd::Homa(text.into()));
    }
    match text.starts_with("https:") {
        true => Err(format!("there is no TLS at the local end: {ENDS}")),
        false => Err(ENDS.into()),
    }
}

/// Says how to get the command.
#[cfg(not(feature = "grpc"))]
pub fn run(_: &Args) -> Outcome {
    Err(Failure::without_grpc("`homa proxy`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_named_by_its_scheme() {
        let tcp = |at: &str| Ok(ProxyEnd::Local(LocalEnd::Tcp(at.into())));
        assert_eq!(end("http://127.0.0.1:7000/"), tcp("127.0.0.1:7000"));
        assert_eq!(end("http://[::1]:0"), tcp("[::1]:0"));
        let unix = Ok(ProxyEnd::Local(LocalEnd::Unix("/run/a.sock".into())));
        assert_eq!(end("unix:/run/a.sock"), unix);
        for homa in ["homa://a:1", "homa:///a:1", "homa+file:///etc/servers"] {
            assert_eq!(end(homa), Ok(ProxyEnd::Homa(homa.into())));
        }
        for bad in ["127.0.0.1:7000", "http://a", "http://a:b", "http://a:1/b", "http://:", "unix:"]
        {
            assert!(end(bad).unwrap_err().contains("homa://search.example:4000"), "{bad}");
        }
        assert!(end("https://a:1").unwrap_err().contains("no TLS"));
    }
}
