//! Credentials of an engine: a cluster secret, or any rustls configuration.
//!
//! Invariants: a handshake uses the credentials that were current when it began, so that a reload
//! never disturbs one, and sessions keep their keys. A key file that has changed is read before the
//! next handshake begins, which costs one look at its metadata. A reload that fails leaves the old
//! credentials in place. Tickets belong to the credentials of cluster keys, and end with them.
//! Certificates have none, because a verifier of the caller's has to see every handshake. Only TLS
//! 1.3 with ALPN `homa/1` is spoken, without early data.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::rand;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};

use super::key_file::Version;
use super::key_log::{BothLogs, SecretLog};
use super::tickets::{NoTickets, Tickets};
use super::{ALPN, Handshake, KeysError, identity, key_file};

/// Credentials of an engine: what it proves to its peers, and what it demands of them. A clone is
/// the same credentials.
///
/// With a cluster key, all holders of the key trust each other:
/// ```
/// use homa::Keys;
///
/// let folder = std::env::temp_dir().join(format!("homa-keys-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let path = folder.join("cluster.key");
/// Keys::create_file(&path)?; // once, as `homa key new` does; copy the file to all hosts
/// let keys = Keys::from_file(&path)?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keys(Arc<Current>);

struct Current {
    /// The file to read again, if there is one.
    file: Option<PathBuf>,
    current: RwLock<Credentials>,
    /// The version of the file that was read last, or could not be read.
    version: Mutex<Option<Version>>,
    log: Arc<SecretLog>,
}

/// Most servers whose tickets a client keeps.
const TICKETS_MAX: usize = 1024;

/// What a handshake needs.
#[derive(Clone)]
pub(super) struct Credentials {
    client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    /// A cluster key; otherwise certificates.
    pub(super) cluster: bool,
    /// With a cluster key: the tickets that servers have issued to us.
    pub(super) tickets: Option<Arc<Tickets>>,
    /// The name that a client verifies; otherwise the server's address.
    server_name: Option<ServerName<'static>>,
}

impl Credentials {
    /// Credentials of cluster secrets, at least one.
    fn cluster(secrets: &[[u8; 32]], log: &Arc<SecretLog>) -> Result<Self, KeysError> {
        let refused = |error: rustls::Error| KeysError::Tls { reason: error.to_string() };
        let (client, server) = identity::cluster(secrets).map_err(refused)?;
        let mut credentials = Self::new(client, server, true, log);
        let server = Arc::make_mut(&mut credentials.server);
        (server.ticketer, server.send_tls13_tickets) = (Ticketer::new().map_err(refused)?, 1);
        credentials.tickets = Some(Tickets::new(TICKETS_MAX));
        Ok(credentials)
    }

    fn new(
        mut client: ClientConfig,
        mut server: ServerConfig,
        cluster: bool,
        log: &Arc<SecretLog>,
    ) -> Self {
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_early_data = false;
        client.key_log = Arc::new(BothLogs(Arc::clone(log), client.key_log));
        server.alpn_protocols = vec![ALPN.to_vec()];
        // The caller may share its storage with a service that verifies its clients otherwise.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.ticketer = Arc::new(NoTickets);
        server.send_tls13_tickets = 0;
        server.max_early_data_size = 0;
        server.key_log = Arc::new(BothLogs(Arc::clone(log), server.key_log));
        let (client, server) = (Arc::new(client), Arc::new(server));
        Self { client, server, cluster, tickets: None, server_name: None }
    }

    /// The configuration of a client, with a ticket of the server if there is one.
    pub(super) fn client_of(&self, server: SocketAddr) -> Arc<ClientConfig> {
        let Some(tickets) = &self.tickets else { return Arc::clone(&self.client) };
        let mut client = (*self.client).clone();
        client.resumption = tickets.of(server);
        Arc::new(client)
    }

    /// The name that the server at an address has to prove.
    pub(super) fn name_of(&self, server: IpAddr) -> ServerName<'static> {
        self.server_name.clone().unwrap_or_else(|| ServerName::IpAddress(server.into()))
    }
}

impl Keys {
    /// The cipher that this host prefers with cluster keys: AES-128-GCM if the processor has
    /// instructions for AES, otherwise ChaCha20-Poly1305.
    pub fn preferred_cipher() -> &'static str {
        identity::preferred_cipher()
    }

    /// The cluster keys in a file that `homa key new` wrote. It has one key a line. The first is
    /// presented to peers, and all are accepted, so keys can be replaced without an interruption:
    /// add the new key as second line everywhere, then make it the first line everywhere, then
    /// remove the old one. A changed file is read when the next handshake begins; if it is not
    /// valid, the old keys stay in use and a warning is logged.
    ///
    /// # Errors
    /// The file cannot be read, a user other than its owner or group may read it, or a line is not
    /// a key.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeysError> {
        let path = path.as_ref();
        let log = Arc::default();
        // Before the file is read: if it changes meanwhile, it is read again.
        let version = key_file::version(path);
        let current = Credentials::cluster(&key_file::read(path)?, &log)?;
        Ok(Self::new(Some((path.to_owned(), version)), current, log))
    }

    /// A cluster key: 32 random bytes that all holders share.
    ///
    /// # Errors
    /// The TLS library refuses to work.
    pub fn cluster(secret: [u8; 32]) -> Result<Self, KeysError> {
        let log = Arc::default();
        let current = Credentials::cluster(&[secret], &log)?;
        Ok(Self::new(None, current, log))
    }

    /// Certificates, by any configurations of rustls: X.509, usually in both directions, SPIFFE, or
    /// verifiers and resolvers of the caller, which may also replace certificates while they run.
    /// The protocol name (ALPN), tickets and early data are set here. A client verifies the address
    /// that it calls, unless [`Self::server_name`] is set.
    ///
    /// # Errors
    /// A configuration does not allow TLS 1.3 with a cipher suite for QUIC.
    pub fn tls(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<Self, KeysError> {
        let log = Arc::default();
        let (client, server) = ((*client).clone(), (*server).clone());
        let keys = Self::new(None, Credentials::new(client, server, false, &log), log);
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let tried = Handshake::client(&keys, anywhere, 1);
        let tried = tried.and_then(|_| Handshake::server(&keys, 1));
        tried.map_err(|error| KeysError::Tls { reason: error.to_string() })?;
        Ok(keys)
    }

    fn new(
        file: Option<(PathBuf, Option<Version>)>,
        current: Credentials,
        log: Arc<SecretLog>,
    ) -> Self {
        let (file, version) = file.unzip();
        let version = Mutex::new(version.flatten());
        Self(Arc::new(Current { file, current: RwLock::new(current), version, log }))
    }

    /// The name that every server has to prove with its certificate, instead of the address that is
    /// called. It has no meaning for cluster keys.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an IP address.
    pub fn server_name(self, name: &str) -> Result<Self, KeysError> {
        let parsed = ServerName::try_from(name.to_owned());
        let parsed = parsed.map_err(|_| KeysError::ServerName { name: name.to_owned() })?;
        self.0.current.write().unwrap_or_else(PoisonError::into_inner).server_name = Some(parsed);
        Ok(self)
    }

    /// Appends the secrets of new sessions to a file, in the format of SSLKEYLOGFILE. A reader of
    /// the file can decrypt recorded packets, so this is for debugging only. The first file counts.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn key_log(self, path: impl AsRef<Path>) -> Result<Self, KeysError> {
        let path = path.as_ref();
        let opened = self.0.log.open(path);
        opened.map_err(|source| KeysError::KeyLog { path: path.to_owned(), source })?;
        Ok(self)
    }

    /// Reads the key file again, for example to see whether it is valid. New handshakes use its
    /// keys, and sessions continue. Without a file nothing changes.
    ///
    /// # Errors
    /// As [`Self::from_file`]; the old keys then stay in use.
    pub fn reload(&self) -> Result<(), KeysError> {
        let Some(path) = &self.0.file else { return Ok(()) };
        *self.0.version.lock().unwrap_or_else(PoisonError::into_inner) = key_file::version(path);
        let mut read = Credentials::cluster(&key_file::read(path)?, &self.0.log)?;
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        read.server_name = current.server_name.take();
        *current = read;
        Ok(())
    }

    /// The file that [`Self::reload`] reads.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// Writes a new random key to a file that does not exist yet, for its owner only.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the system has no randomness.
    pub fn create_file(path: impl AsRef<Path>) -> Result<(), KeysError> {
        key_file::create(path.as_ref(), &random()?)
    }

    /// What a new handshake uses, from the file if that has changed.
    pub(super) fn credentials(&self) -> Credentials {
        if self.has_changed()
            && let Err(error) = self.reload()
        {
            tracing::warn!(%error, "the old keys stay in use");
        }
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keys {
    /// Whether the file is another one than that which was read last. A file that is missing, for
    /// example while it is replaced, is none.
    fn has_changed(&self) -> bool {
        let found = self.0.file.as_deref().and_then(key_file::version);
        let seen = *self.0.version.lock().unwrap_or_else(PoisonError::into_inner);
        found.is_some() && found != seen
    }
}

/// 32 bytes of the system's randomness.
fn random() -> Result<[u8; 32], KeysError> {
    let mut secret = [0; 32];
    let filled = rand::fill(&mut secret);
    let refused = |_| KeysError::Tls { reason: "the system has no randomness".to_owned() };
    filled.map(|()| secret).map_err(refused)
}

/// Words for error messages: `the key file …`, `a cluster key`, or `a TLS configuration`.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.file {
            Some(path) => write!(f, "the key file {}", path.display()),
            None if self.credentials().cluster => f.write_str("a cluster key"),
            None => f.write_str("a TLS configuration"),
        }
    }
}

/// Whether there is a file, and nothing secret.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("file", &self.0.file).finish_non_exhaustive()
    }
}
