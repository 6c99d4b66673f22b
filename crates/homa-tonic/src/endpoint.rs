//! The address of a server, or of several, by name, and how they are called.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use homa::balance::{self, BalanceError, Balancer, Target, TargetError};
use homa::{CallError, CallOptions, Client, OpenError};
use http::uri::{Authority, InvalidUri, Uri};

use crate::channel::{Channel, ChannelTarget};
use crate::wire::{CallNumber, ClientMessage};

/// How long [`Endpoint::connect`] tries the addresses of a name, unless it is set.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server by name, as `tonic::transport::Endpoint` is: `homa://host:port`. With three slashes,
/// `homa:///host:port`, the name stands for the servers at all of its addresses, and calls are
/// balanced between them; so do `homa+srv://NAME` and `homa+file://PATH` ([`Target`]).
///
/// ```no_run
/// # async fn example() -> Result<(), homa_tonic::ConnectError> {
/// use std::time::Duration;
///
/// let endpoint = homa_tonic::Endpoint::from_shared("homa://search.internal:4000")?;
/// let channel = endpoint.timeout(Duration::from_millis(200)).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: ServerName,
    balance: balance::Config,
    timeout: Option<Duration>,
    connect_timeout: Duration,
    client: Option<Client>,
}

/// What an endpoint names.
#[derive(Clone, Debug)]
enum ServerName {
    One { authority: Authority, port: u16 },
    Several(Target),
}

/// A channel could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not a URI.
    #[error("{uri:?} is not a URI ({source}): write homa://HOST:PORT")]
    Uri {
        /// The text.
        uri: String,
        /// The parser's reason.
        source: InvalidUri,
    },
    /// The URI has another scheme.
    #[error(
        "{uri:?} has the scheme {scheme:?}: write homa://HOST:PORT, or use tonic's own channel"
    )]
    Scheme {
        /// The text.
        uri: String,
        /// Its scheme, empty if there is none.
        scheme: String,
    },
    /// The URI has no port, or more than a host and a port.
    #[error("{uri:?} does not name a host and a port: write homa://HOST:PORT")]
    Authority {
        /// The text.
        uri: String,
    },
    /// The text does not name a set of servers.
    #[error("{0}, or homa://HOST:PORT for a single server")]
    Target(#[from] TargetError),
    /// No server of the name answered, or it has none.
    #[error("{target}: {source}")]
    NoServer {
        /// The name.
        target: Target,
        /// Why the last attempt failed.
        source: Box<BalanceError>,
    },
    /// An endpoint of a list stands for several servers itself.
    #[error("{target} in a list stands for several servers: give it a channel, or list addresses")]
    Several {
        /// Its name.
        target: Target,
    },
    /// The name has no address.
    #[error("{name} cannot be resolved: {source}")]
    Resolve {
        /// Host and port.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no random numbers, so calls would have numbers that other hosts can guess.
    #[error("the system gives no random numbers: {0}")]
    Random(#[source] getrandom::Error),
    /// No engine could be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No address of the name answered.
    #[error("{name} ({tried}) did not answer: {source}")]
    Unreachable {
        /// Host and port.
        name: String,
        /// The address that was tried last.
        tried: SocketAddr,
        /// Why its call failed.
        source: Box<CallError>,
    },
}

impl Endpoint {
    /// An endpoint from a URI `homa://HOST:PORT`, or from the text of a [`Target`].
    pub fn from_shared(uri: impl Into<String>) -> Result<Self, ConnectError> {
        let text = uri.into();
        if text.starts_with("homa:///") || text.starts_with("homa+") {
            return Ok(Self::of(ServerName::Several(text.parse()?)));
        }
        let uri: Uri = match text.parse() {
            Ok(uri) => uri,
            Err(source) => return Err(ConnectError::Uri { uri: text, source }),
        };
        if uri.scheme_str() != Some("homa") {
            let scheme = uri.scheme_str().unwrap_or_default().to_owned();
            return Err(ConnectError::Scheme { uri: text, scheme });
        }
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        match uri.authority() {
            Some(authority) if bare && !authority.as_str().contains('@') => {
                let port = authority.port_u16().filter(|port| *port != 0);
                let port = port.ok_or(ConnectError::Authority { uri: text })?;
                Ok(Self::of(ServerName::One { authority: authority.clone(), port }))
            }
            _ => Err(ConnectError::Authority { uri: text }),
        }
    }

    fn of(address: ServerName) -> Self {
        Self {
            address,
            balance: balance::Config::default(),
            timeout: None,
            connect_timeout: CONNECT_TIMEOUT,
            client: None,
        }
    }

    /// Budgets of retries and hedges, and more, if the name stands for several servers. Calls that
    /// are [`Idempotent`](crate::Idempotent) are hedged.
    pub fn balance(self, config: balance::Config) -> Self {
        Self { balance: config, ..self }
    }

    /// Limits every call, as if each had this `grpc-timeout`. A shorter one of a call holds.
    /// Default: none.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// How long [`connect`](Self::connect) tries all addresses of the name together. Default: 5 s.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// Calls with this client, which several channels can share. Default: a new one on any port,
    /// whose engine the runtime drives ([`homa::Engine::drive_on_tokio`]).
    pub fn client(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    /// Resolves the name, and tries its addresses until a server answers.
    ///
    /// Needs a runtime of tokio with I/O and time.
    pub async fn connect(&self) -> Result<Channel, ConnectError> {
        let probe = ClientMessage::Reset { number: CallNumber(0) }.encode().unwrap_or_default();
        let (authority, port) = match &self.address {
            ServerName::One { authority, port } => (authority, *port),
            ServerName::Several(target) => {
                let (client, balancer) = (self.open()?, self.balancer(target)?);
                let options = CallOptions::deadline(self.connect_timeout).idempotent();
                let answered = balancer.call(&client, probe, &options).await;
                answered.map_err(|source| ConnectError::NoServer {
                    target: target.clone(),
                    source: Box::new(source),
                })?;
                return self.channel(client, ChannelTarget::Several(balancer));
            }
        };
        let (name, addresses) = resolve(authority, port).await?;
        let client = self.open()?;
        let each = self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let options = CallOptions::deadline(each).idempotent();
        let mut failed = None;
        for to in addresses {
            match client.call_async_with(to, probe.clone(), &options).await {
                Ok(_) => return self.channel(client, ChannelTarget::One(to)),
                Err(source) => failed = Some((to, Box::new(source))),
            }
        }
        let Some((tried, source)) = failed else {
            return Err(ConnectError::Resolve { name, source: io::ErrorKind::NotFound.into() });
        };
        Err(ConnectError::Unreachable { name, tried, source })
    }

    /// A channel without a packet sent: to the first address of the name, or to all servers that it
    /// stands for, which are looked up with the first call. Calls fail until a server is there.
    pub async fn connect_lazy(&self) -> Result<Channel, ConnectError> {
        match &self.address {
            ServerName::One { authority, port } => {
                let (name, addresses) = resolve(authority, *port).await?;
                let Some(to) = addresses.first() else {
                    let source = io::ErrorKind::NotFound.into();
                    return Err(ConnectError::Resolve { name, source });
                };
                self.channel(self.open()?, ChannelTarget::One(*to))
            }
            ServerName::Several(target) => self.to_servers(target),
        }
    }

    /// A channel to the servers of a target.
    fn to_servers(&self, target: &Target) -> Result<Channel, ConnectError> {
        self.channel(self.open()?, ChannelTarget::Several(self.balancer(target)?))
    }

    fn balancer(&self, target: &Target) -> Result<Balancer, OpenError> {
        Balancer::new(target.clone(), self.balance.clone())
    }

    fn open(&self) -> Result<Client, OpenError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new()?;
        client.engine().drive_on_tokio()?;
        Ok(client)
    }

    fn channel(&self, client: Client, to: ChannelTarget) -> Result<Channel, ConnectError> {
        let random = getrandom::u64().map_err(ConnectError::Random)?;
        Ok(Channel::new(client, to, self.timeout, random))
    }
}

/// See [`Channel::balance_list`].
pub(crate) fn balance_list(list: Vec<Endpoint>) -> Result<Channel, ConnectError> {
    let names = list.iter().map(|endpoint| match &endpoint.address {
        ServerName::One { authority, .. } => Ok(authority.as_str()),
        ServerName::Several(target) => Err(ConnectError::Several { target: target.clone() }),
    });
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    let target = Target::names(names)?;
    let empty = Endpoint::of(ServerName::Several(target.clone()));
    list.first().unwrap_or(&empty).to_servers(&target)
}

async fn resolve(
    authority: &Authority,
    port: u16,
) -> Result<(String, Vec<SocketAddr>), ConnectError> {
    let host = authority.host().trim_matches(['[', ']']);
    let name = authority.to_string();
    match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => Ok((name, addresses.collect())),
        Err(source) => Err(ConnectError::Resolve { name, source }),
    }
}

impl TryFrom<&str> for Endpoint {
    type Error = ConnectError;

    fn try_from(uri: &str) -> Result<Self, ConnectError> {
        Self::from_shared(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_and_a_port_of_this_scheme_are_accepted() {
        let one = ["homa://a:1", "homa://127.0.0.1:4000/", "homa://[::1]:4000"];
        for good in one.into_iter().chain(["homa:///a:1", "homa+file://servers"]) {
            assert!(Endpoint::from_shared(good).is_ok(), "{good}");
        }
        let scheme = Endpoint::from_shared("http://a:1").unwrap_err();
        assert!(matches!(&scheme, ConnectError::Scheme { scheme, .. } if scheme == "http"));
        for bad in ["homa://a", "homa://a:0", "homa://a:1/path", "homa://u@a:1", "homa://a:1?x"] {
            let error = Endpoint::from_shared(bad).unwrap_err();
            assert!(matches!(error, ConnectError::Authority { .. }), "{bad}: {error}");
        }
        for bad in ["homa:///a", "homa+unix://a"] {
            let error = Endpoint::from_shared(bad).unwrap_err();
            assert!(matches!(error, ConnectError::Target(_)), "{bad}: {error}");
            assert!(error.to_string().contains("homa://HOST:PORT for a single"), "{error}");
        }
        assert!(matches!(Endpoint::from_shared("homa://a:b:c"), Err(ConnectError::Uri { .. })));
    }
}
