//! The address of a server by name, and how it is called.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use homa::{CallError, CallOptions, Client, OpenError};
use http::uri::{Authority, InvalidUri, Uri};

use crate::channel::{Channel, Destination};
use crate::wire::{CallNumber, ClientMessage};

/// How long [`Endpoint::connect`] tries the addresses of a name, unless it is set.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server by name, as `tonic::transport::Endpoint` is: `homa://host:port`.
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
    authority: Authority,
    port: u16,
    timeout: Option<Duration>,
    connect_timeout: Duration,
    client: Option<Client>,
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
        source: CallError,
    },
}

impl Endpoint {
    /// An endpoint from a URI `homa://HOST:PORT`.
    pub fn from_shared(uri: impl Into<String>) -> Result<Self, ConnectError> {
        let text = uri.into();
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
                Ok(Self {
                    authority: authority.clone(),
                    port,
                    timeout: None,
                    connect_timeout: CONNECT_TIMEOUT,
                    client: None,
                })
            }
            _ => Err(ConnectError::Authority { uri: text }),
        }
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

    /// Resolves the name, and tries its addresses in turn until a server answers.
    ///
    /// Needs a runtime of tokio with I/O and time.
    pub async fn connect(&self) -> Result<Channel, ConnectError> {
        let (name, addresses) = self.resolve().await?;
        let client = self.open()?;
        let each = self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let options = CallOptions::deadline(each).idempotent();
        let probe = ClientMessage::Reset { number: CallNumber(0) }.encode().unwrap_or_default();
        let mut failed = None;
        for to in addresses {
            match client.call_async_with(to, probe.clone(), &options).await {
                Ok(_) => return self.channel(client, to),
                Err(source) => failed = Some((to, source)),
            }
        }
        let Some((tried, source)) = failed else {
            return Err(ConnectError::Resolve { name, source: io::ErrorKind::NotFound.into() });
        };
        Err(ConnectError::Unreachable { name, tried, source })
    }

    /// A channel to the first address of the name, without a packet sent. Calls fail until a server
    /// is there.
    pub async fn connect_lazy(&self) -> Result<Channel, ConnectError> {
        let (name, addresses) = self.resolve().await?;
        let Some(to) = addresses.first() else {
            return Err(ConnectError::Resolve { name, source: io::ErrorKind::NotFound.into() });
        };
        self.channel(self.open()?, *to)
    }

    async fn resolve(&self) -> Result<(String, Vec<SocketAddr>), ConnectError> {
        let host = self.authority.host().trim_matches(['[', ']']);
        let name = self.authority.to_string();
        match tokio::net::lookup_host((host, self.port)).await {
            Ok(addresses) => Ok((name, addresses.collect())),
            Err(source) => Err(ConnectError::Resolve { name, source }),
        }
    }

    fn open(&self) -> Result<Client, OpenError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new()?;
        client.engine().drive_on_tokio()?;
        Ok(client)
    }

    fn channel(&self, client: Client, to: SocketAddr) -> Result<Channel, ConnectError> {
        let random = getrandom::u64().map_err(ConnectError::Random)?;
        Ok(Channel::new(Destination::new(client, to, self.timeout, random)))
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
        for good in ["homa://a:1", "homa://127.0.0.1:4000/", "homa://[::1]:4000"] {
            assert!(Endpoint::from_shared(good).is_ok(), "{good}");
        }
        let scheme = Endpoint::from_shared("http://a:1").unwrap_err();
        assert!(matches!(&scheme, ConnectError::Scheme { scheme, .. } if scheme == "http"));
        for bad in ["homa://a", "homa://a:0", "homa://a:1/path", "homa://u@a:1", "homa://a:1?x"] {
            let error = Endpoint::from_shared(bad).unwrap_err();
            assert!(matches!(error, ConnectError::Authority { .. }), "{bad}: {error}");
        }
        assert!(matches!(Endpoint::from_shared("homa://a:b:c"), Err(ConnectError::Uri { .. })));
    }
}
