//! `--key`, `--cert` and `--plaintext`: whether packets are encrypted, and who the peers are.

use std::net::SocketAddr;
use std::path::PathBuf;

use homa::{CallError, Config, Keys, KeysError};

use crate::failure::{Failure, Hint};

/// What to do if none is given.
pub const REMEDY: &str = "give --key FILE (`homa key new FILE` writes one), certificates \
                          (--cert, --cert-key, --ca), or --plaintext";

/// What to do if a key file cannot be used.
pub const KEY_REMEDY: &str = "copy the cluster's key file to this host, readable by this user; \
                              `homa key new` only writes the first";

/// How packets are protected.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Protection {
    /// Encrypt every packet, and accept only peers with the same key: a file of `homa key new`.
    #[arg(long, value_name = "FILE", group = "credentials")]
    key: Option<PathBuf>,
    #[command(flatten)]
    certificates: Certificates,
    /// The name that servers must prove with their certificates, instead of the address that is
    /// called: a DNS name or an IP address.
    #[arg(long, value_name = "NAME", requires = "cert")]
    server_name: Option<String>,
    /// Append the secrets of sessions to this file, in the format of SSLKEYLOGFILE, to read
    /// captures. Readers of the file can decrypt everything.
    #[arg(long, value_name = "FILE", requires = "credentials")]
    keylog: Option<PathBuf>,
    /// Exchange plaintext, by choice: hosts on the path can read and forge every packet.
    #[arg(long, conflicts_with = "credentials")]
    plaintext: bool,
}

/// Early data, for commands that serve: only a program that marks calls as idempotent sends any.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct EarlyDataOption {
    /// Accept calls beside the handshakes of clients (0-RTT), which have to allow it, too. It saves
    /// them a round trip, but an attacker on the path can have such a call executed twice, so
    /// clients send only those that they mark as idempotent. Needs --key: certificates have no
    /// tickets.
    #[arg(long, requires = "key", conflicts_with_all = ["cert", "plaintext"])]
    early_data: bool,
}

impl EarlyDataOption {
    /// True if the option was given, which a proxy beside clients refuses.
    #[cfg(feature = "grpc")]
    pub fn is_given(self) -> bool {
        self.early_data
    }

    /// A configuration whose keys allow early data, if the option was given.
    pub fn apply(self, config: Config) -> Config {
        if !self.early_data {
            return config;
        }
        let keys = config.keys.clone().map(Keys::early_data);
        config.keys(keys)
    }
}

/// PEM files of certificates.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Certificates {
    /// Encrypt every packet, and verify peers by certificates: this one is presented, in PEM,
    /// followed by those that lead to its authority. Changed files are read by themselves.
    #[arg(long, value_name = "FILE", group = "credentials", requires_all = ["cert_key", "ca"])]
    cert: Option<PathBuf>,
    /// The private key of --cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
    /// The authorities that vouch for peers, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
}

impl Certificates {
    /// Reads the files; `None` if no certificate is given.
    pub fn read(&self) -> Option<Result<Keys, KeysError>> {
        let (cert, key) = self.cert.as_ref().zip(self.cert_key.as_ref())?;
        Some(Keys::from_certificates(cert, key, self.ca.as_ref()?))
    }
}

impl Protection {
    /// True if an option was given.
    pub fn is_given(&self) -> bool {
        self.key.is_some() || self.certificates.cert.is_some() || self.plaintext
    }

    /// A configuration with these keys, or with the choice of plaintext.
    pub fn apply(&self, config: Config) -> Result<Config, Failure> {
        if self.plaintext {
            return Ok(config.plaintext());
        }
        let keys = match (&self.key, self.certificates.read()) {
            (Some(path), _) => Keys::from_file(path).hint(KEY_REMEDY)?,
            (None, Some(read)) => read.hint("`homa doctor` with the same files checks them")?,
            (None, None) => return Ok(config),
        };
        let keys = match &self.server_name {
            Some(name) => keys.server_name(name).hint("give a name from the certificates")?,
            None => keys,
        };
        let keys = match &self.keylog {
            Some(log) => keys.key_log(log).hint("name a file that can be written")?,
            None => keys,
        };
        Ok(config.keys(keys))
    }

    /// An error if calls to a server would travel in plaintext to another host without that choice.
    pub fn check(&self, to: SocketAddr) -> Result<(), Failure> {
        let ip = to.ip().to_canonical();
        // The unspecified address means this host.
        match self.is_given() || ip.is_loopback() || ip.is_unspecified() {
            true => Ok(()),
            false => Err(Failure::new(CallError::Unprotected { to }, REMEDY)),
        }
    }
}
