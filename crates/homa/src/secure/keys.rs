//! Credentials of an engine: a cluster secret, certificates, or any rustls configuration.
//!
//! Invariants: a handshake uses the credentials that were current when it began, so that a reload
//! never disturbs one, and sessions keep their keys. Files that have changed are read before the
//! next handshake begins, which costs one look at their metadata. A reload that fails leaves the
//! old credentials in place. Tickets belong to the credentials of cluster keys, and end with them.
//! Certificates have none, because a verifier of the caller's has to see every handshake. Only TLS
//! 1.3 with ALPN `homa/1` is spoken. Early data are off unless the caller allows them; then a
//! server keeps its tickets in memory, and accepts each once. The child of a fork has no tickets of
//! its parent, because both could use or accept the same one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use aws_lc_rs::rand;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::{ClientConfig, ServerConfig};

use super::expiry::Expiry;
use super::files::{CertificateFiles, Files};
use super::key_file::Version;
use super::key_log::{BothLogs, SecretLog};
use super::tickets::{NoTickets, Tickets};
use super::{ALPN, Fragment, Handshake, KeysError, identity, key_file};
use crate::driver::fork::Process;

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
///
/// The child of a fork may use the keys of its parent, but has none of their tickets. If at the
/// moment of the fork another thread of the parent may have been beginning a handshake with them,
/// or reading them again, the child has to make its own: a lock inside may never be released there,
/// and then a call of the child would block for ever.
#[derive(Clone)]
pub struct Keys(Arc<Current>);

struct Current {
    /// The files to read again, if there are any.
    files: Option<Files>,
    current: RwLock<Credentials>,
    /// The version of the files that was read last, or could not be read.
    version: Mutex<Option<[Option<Version>; 3]>>,
    log: Arc<SecretLog>,
}

/// Most tickets that a server keeps which accepts early data; some 400 bytes each.
const ISSUED_MAX: usize = 16_384;
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
    expiry: Arc<Expiry>,
    /// The process that has the tickets.
    process: Process,
}

impl Credentials {
    fn new(
        mut client: ClientConfig,
        mut server: ServerConfig,
        cluster: bool,
        log: &Arc<SecretLog>,
    ) -> Result<Self, KeysError> {
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_early_data = false;
        client.key_log = Arc::new(BothLogs(Arc::clone(log), client.key_log));
        server.alpn_protocols = vec![ALPN.to_vec()];
        // The caller may share its storage with a service that verifies its clients otherwise.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = usize::from(cluster);
        server.ticketer = match cluster {
            true => Ticketer::new().map_err(KeysError::tls)?,
            false => Arc::new(NoTickets { stateful: false }),
        };
        server.max_early_data_size = 0;
        server.key_log = Arc::new(BothLogs(Arc::clone(log), server.key_log));
        let expiry = Expiry::observe(&client, &mut server);
        let (client, server) = (Arc::new(client), Arc::new(server));
        let tickets = cluster.then(|| Tickets::new(TICKETS_MAX));
        let process = Process::this();
        Ok(Self { client, server, cluster, tickets, server_name: None, expiry, process })
    }

    /// Offers and accepts early data from now on; certificates have none.
    fn allow_early_data(&mut self) {
        if !self.cluster {
            return;
        }
        let (mut client, mut server) = ((*self.client).clone(), (*self.server).clone());
        client.enable_early_data = true;
        // rustls accepts early data only for tickets that it takes out of a storage.
        server.ticketer = Arc::new(NoTickets { stateful: true });
        server.session_storage = ServerSessionMemoryCache::new(ISSUED_MAX);
        server.max_early_data_size = u32::MAX;
        (self.client, self.server) = (Arc::new(client), Arc::new(server));
    }

    fn allows_early_data(&self) -> bool {
        self.server.max_early_data_size > 0
    }

    /// Begins without tickets in the child of a fork, which has copies of its parent's.
    fn leave_parent(&mut self) {
        self.process = Process::this();
        self.tickets = self.cluster.then(|| Tickets::new(TICKETS_MAX));
        if self.allows_early_data() {
            self.allow_early_data();
        }
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
        Self::from_files(Files::Key(path.as_ref().to_owned()))
    }

    /// Certificates in PEM files: a certificate and those that lead to its authority, its private
    /// key, and the authorities that vouch for peers. Both ends present a certificate. A client
    /// verifies the address that it calls, unless [`Self::server_name`] is set. Changed files are
    /// read when the next handshake begins; if they are not valid, or do not fit together yet, the
    /// old certificates stay in use and a warning is logged.
    ///
    /// # Errors
    /// A file cannot be read or has nothing of its kind, a user other than its owner or group may
    /// read the private key, or that is not the key of the certificate.
    pub fn from_certificates(
        chain: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        authorities: impl AsRef<Path>,
    ) -> Result<Self, KeysError> {
        Self::from_files(Files::Certificates(CertificateFiles {
            chain: chain.as_ref().to_owned(),
            key: private_key.as_ref().to_owned(),
            authorities: authorities.as_ref().to_owned(),
        }))
    }

    fn from_files(files: Files) -> Result<Self, KeysError> {
        let log = Arc::default();
        // Before they are read: if one changes meanwhile, they are read again.
        let version = files.version();
        let (client, server) = files.read()?;
        let current = Credentials::new(client, server, files.is_cluster(), &log)?;
        Ok(Self::new(Some((files, version)), current, log))
    }

    /// A cluster key: 32 random bytes that all holders share.
    ///
    /// # Errors
    /// The TLS library refuses to work.
    pub fn cluster(secret: [u8; 32]) -> Result<Self, KeysError> {
        let log = Arc::default();
        let (client, server) = identity::cluster(&[secret]).map_err(KeysError::tls)?;
        let current = Credentials::new(client, server, true, &log)?;
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
        let keys = Self::new(None, Credentials::new(client, server, false, &log)?, log);
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let tried = Handshake::client(&keys, anywhere, 1);
        let tried = tried.and_then(|client| Ok((client, Handshake::server(&keys, 1)?)));
        let (mut client, mut server) =
            tried.map_err(|error| KeysError::Tls { reason: error.to_string() })?;
        // The server chooses its certificate, whose expiry is then known.
        for (level, offset, bytes) in client.flight(usize::MAX) {
            let _ = server.receive(Fragment { level, offset, bytes: &bytes });
        }
        Ok(keys)
    }

    fn new(
        files: Option<(Files, Option<[Option<Version>; 3]>)>,
        current: Credentials,
        log: Arc<SecretLog>,
    ) -> Self {
        let (files, version) = files.unzip();
        let version = Mutex::new(version.flatten());
        Self(Arc::new(Current { files, current: RwLock::new(current), version, log }))
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

    /// Allows early data (0-RTT, RFC 8446 §2.3) with cluster keys: a client that connects again
    /// sends requests beside the handshake, so that a call takes one round trip instead of two.
    /// Only calls that are marked [idempotent](crate::CallOptions::idempotent) and whose request
    /// has at most about 1,000 bytes are sent so, because an attacker on the path can have such a
    /// request executed twice. It can also be read in a recording if the secret of its ticket
    /// becomes known. Both ends have to allow it, before their engines open. With certificates it
    /// has no effect. See `docs/encryption.md`, "Early data".
    #[must_use]
    pub fn early_data(self) -> Self {
        self.0.current.write().unwrap_or_else(PoisonError::into_inner).allow_early_data();
        self
    }

    /// Whether early data are allowed; never with certificates.
    pub(crate) fn allows_early_data(&self) -> bool {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).allows_early_data()
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

    /// Reads the files again, for example to see whether they are valid. New handshakes use what
    /// is in them, and sessions continue. Without files nothing changes.
    ///
    /// # Errors
    /// As [`Self::from_file`] or [`Self::from_certificates`]; the old credentials then stay in use.
    pub fn reload(&self) -> Result<(), KeysError> {
        let Some(files) = &self.0.files else { return Ok(()) };
        let seen = || self.0.version.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let version = files.version();
            *seen() = version;
            let (client, server) = files.read()?;
            let mut read = Credentials::new(client, server, files.is_cluster(), &self.0.log)?;
            let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
            // If another thread has seen another version since, these may be older than its own.
            if *seen() != version {
                continue;
            }
            if current.allows_early_data() {
                read.allow_early_data();
            }
            read.server_name = current.server_name.take();
            *current = read;
            return Ok(());
        }
    }

    /// The key file that [`Self::reload`] reads, or the file of the certificate.
    pub fn file(&self) -> Option<&Path> {
        self.0.files.as_ref().map(Files::first)
    }

    /// When the certificate that this end presents expires; `None` for cluster keys. If its clients
    /// and its servers present different ones, it is the one that expires first. Changed files are
    /// read first. A certificate that a resolver of [`Self::tls`] chooses for a server counts once
    /// it was presented.
    pub fn certificate_expiry(&self) -> Option<SystemTime> {
        self.credentials().expiry.first()
    }

    /// Writes a new random key to a file that does not exist yet, for its owner only.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the system has no randomness.
    pub fn create_file(path: impl AsRef<Path>) -> Result<(), KeysError> {
        key_file::create(path.as_ref(), &random()?)
    }

    /// The credentials of a new handshake, read again if their files have changed.
    pub(super) fn credentials(&self) -> Credentials {
        if self.has_changed()
            && let Err(error) = self.reload()
        {
            tracing::warn!(%error, "the old keys stay in use");
        }
        let mut found = self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !found.process.is_this() {
            // A thread of the parent may have been reading at the fork, and never releases its lock
            // here, so this does not wait. If the lock is not free, this handshake uses no tickets.
            let mut shared = self.0.current.try_write();
            let current = shared.as_deref_mut().unwrap_or(&mut found);
            // Another thread of this process may have been first.
            if !current.process.is_this() {
                current.leave_parent();
            }
            return current.clone();
        }
        found
    }
}

impl Keys {
    /// Whether the files are others than those that were read last. If one is missing, for example
    /// while it is replaced, they are not.
    fn has_changed(&self) -> bool {
        let found = self.0.files.as_ref().and_then(Files::version);
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

/// Words for error messages: `the key file …`, `the certificate …`, `a cluster key`, or `a TLS
/// configuration`.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.files {
            Some(files) => files.fmt(f),
            None if self.credentials().cluster => f.write_str("a cluster key"),
            None => f.write_str("a TLS configuration"),
        }
    }
}

/// Which files there are, and nothing secret.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("files", &self.0.files).finish_non_exhaustive()
    }
}
