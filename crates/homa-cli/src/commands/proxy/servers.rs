//! The server of a call: the one after `--to`, or with `homa://*` the one that the call names.
//!
//! A call names its server by the CONNECT of its tunnel, or otherwise by `:authority`. For each
//! name there is a channel, and all of them share one engine: so the messages of all calls of a
//! host are ordered together.
//!
//! Left out: a list of the names that are allowed. The peer's keys decide who may be called.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use homa::Client;
use homa::balance::Target;
use homa_tonic::{Channel, Endpoint};
use http::uri::Authority;
use tonic::Status;

use super::run::Setting;
use crate::commands::protection::REMEDY;
use crate::failure::{Failure, Hint};

/// `--to` of a proxy whose clients name the server of each call.
pub const ANY: &str = "homa://*";

/// What to write after `--to`.
const HOW: &str = "give the name or the address of the other host's proxy, homa://HOST:PORT, or \
                   homa://* for the servers that clients name";

/// Names whose channels are kept. Each is looked up again every 30 s.
const MOST: usize = 256;

/// The longest name of a host (RFC 1035 §2.3.4), and a port.
const LONGEST: usize = 253 + ":65535".len();

/// Where calls go.
#[derive(Clone, Debug)]
pub enum Servers {
    /// All to one name.
    One(Channel),
    /// Each to the name that it gives.
    Named(Arc<NamedServers>),
}

/// Channels by name.
#[derive(Debug)]
pub struct NamedServers {
    client: Client,
    /// Where the proxy itself listens.
    own: Vec<SocketAddr>,
    known: Mutex<KnownChannels>,
}

#[derive(Debug, Default)]
struct KnownChannels {
    /// With the number of their last use.
    channels: HashMap<String, (Channel, u64)>,
    uses: u64,
}

impl Servers {
    /// Opens a channel to the name after `--to`, or none yet. `own`: TCP addresses of the proxy.
    pub async fn open(
        setting: &Setting<'_>,
        to: &str,
        client: Client,
        own: Vec<SocketAddr>,
    ) -> Result<Self, Failure> {
        if to == ANY {
            if !setting.args.protection.is_given() {
                eprintln!("warning: calls to other hosts will fail: {REMEDY}");
            }
            let known = Mutex::default();
            return Ok(Self::Named(Arc::new(NamedServers { client, own, known })));
        }
        let endpoint = Endpoint::from_shared(to).hint(HOW)?;
        let channel = endpoint.client(client).connect_lazy().await;
        let channel = channel.hint(HOW)?;
        channel.servers().into_iter().try_for_each(|to| setting.args.protection.check(to))?;
        Ok(Self::One(channel))
    }

    /// The channel for a call.
    pub async fn channel(&self, named: Option<&Authority>) -> Result<Channel, Status> {
        match self {
            Self::One(channel) => Ok(channel.clone()),
            Self::Named(servers) => servers.channel(named).await,
        }
    }
}

impl NamedServers {
    /// Why a name is no server's.
    pub fn check(&self, named: Option<&Authority>) -> Result<(), String> {
        server_name(named, &self.own).map(drop)
    }

    async fn channel(&self, named: Option<&Authority>) -> Result<Channel, Status> {
        let name = server_name(named, &self.own).map_err(Status::invalid_argument)?;
        if let Some(channel) = self.known().get(&name) {
            return Ok(channel);
        }
        let opened = async {
            let endpoint = Endpoint::from_shared(format!("homa:///{name}"))?;
            endpoint.client(self.client.clone()).connect_lazy().await
        };
        let channel = opened.await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(self.known().add(name, channel))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownChannels> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownChannels {
    fn get(&mut self, name: &str) -> Option<Channel> {
        self.uses += 1;
        let (channel, used) = self.channels.get_mut(name)?;
        *used = self.uses;
        Some(channel.clone())
    }

    /// Adds a channel unless another call has added one of the name meanwhile; returns the one that
    /// stays. One whose name has no server makes room, otherwise the one that was not used for the
    /// longest time.
    fn add(&mut self, name: String, channel: Channel) -> Channel {
        if let Some(channel) = self.get(&name) {
            return channel;
        }
        if self.channels.len() >= MOST {
            let oldest = self
                .channels
                .iter()
                .min_by_key(|(_, (channel, used))| (!channel.servers().is_empty(), *used));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.channels.remove(&oldest);
            }
        }
        self.channels.insert(name, (channel.clone(), self.uses));
        channel
    }
}

/// Host and port of a server that a call names, or why they are none.
fn server_name(named: Option<&Authority>, own: &[SocketAddr]) -> Result<String, String> {
    let how = "this proxy calls the server that a call names: set grpc_proxy (or HTTPS_PROXY, for \
               Go; http_proxy for HTTP) to the proxy's address and call HOST:PORT, or give \
               HOST:PORT as the authority";
    let Some(named) = named else { return Err(format!("the call names no server; {how}")) };
    if named.as_str().len() > LONGEST {
        return Err(format!("the name of the server has more than {LONGEST} bytes; {how}"));
    }
    let name = named.as_str().to_ascii_lowercase();
    match named.port_u16() {
        Some(port @ 1..) if is_own(named.host(), port, own) => {
            Err(format!("the call names the proxy itself, {named}; {how}"))
        }
        Some(1..) if format!("homa:///{name}").parse::<Target>().is_ok() => Ok(name),
        Some(1..) => Err(format!("{named} is no host and port; {how}")),
        None | Some(0) => Err(format!("{named} has no port; {how}")),
    }
}

/// Whether a host and port are those of the proxy.
fn is_own(host: &str, port: u16, own: &[SocketAddr]) -> bool {
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let local = ip.map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
    own.iter().any(|at| at.port() == port && (local || ip == Some(at.ip().to_canonical())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_a_host_and_a_port_other_than_the_proxys() {
        let own = ["127.0.0.1:7000".parse().unwrap(), "192.0.2.7:7001".parse().unwrap()];
        let name = |text: &str| server_name(Some(&text.parse().unwrap()), &own);
        for good in ["search.example:4000", "192.0.2.7:7000", "[2001:db8::1]:7000", "other:7001"] {
            assert_eq!(name(good), Ok(good.to_owned()));
        }
        assert_eq!(name("Search.Example:4000"), name("search.example:4000"));
        for own in ["127.0.0.1:7000", "localhost:7000", "[::1]:7000", "192.0.2.7:7001"] {
            assert!(name(own).unwrap_err().contains("the proxy itself"), "{own}");
        }
        let bad = ["search.example", "search.example:0", "u@search.example:1", "a,b:1", "*:1"];
        for bad in bad.into_iter().chain(["[]:1", "[::g]:1", "a!b:1"]) {
            // Some of them are no authority at all.
            let Ok(named) = bad.parse() else { continue };
            let why = server_name(Some(&named), &own).unwrap_err();
            assert!(why.contains("grpc_proxy"), "{bad}: {why}");
        }
        let long = format!("{}:4000", "x".repeat(300));
        assert!(name(&long).unwrap_err().len() < 300, "it is not repeated");
        assert!(server_name(None, &own).unwrap_err().contains("names no server"));
    }

    #[tokio::test]
    async fn the_longest_unused_channel_makes_room() {
        let client = Client::new().unwrap();
        let channel = |name: String| {
            let client = client.clone();
            async move {
                let endpoint = Endpoint::from_shared(format!("homa://{name}")).unwrap();
                endpoint.client(client).connect_lazy().await.unwrap()
            }
        };
        let mut known = KnownChannels::default();
        for port in 1..=MOST {
            let name = format!("127.0.0.1:{port}");
            known.add(name.clone(), channel(name).await);
        }
        assert!(known.get("127.0.0.1:1").is_some());
        known.add("127.0.0.1:9999".into(), channel("127.0.0.1:9999".into()).await);
        assert_eq!(known.channels.len(), MOST);
        assert!(known.get("127.0.0.1:1").is_some() && known.get("127.0.0.1:2").is_none());
    }
}
