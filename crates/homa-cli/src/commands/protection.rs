//! `--key` and `--plaintext`: whether packets are encrypted.

use std::net::SocketAddr;
use std::path::PathBuf;

use homa::{CallError, Config, Keys};

use crate::failure::{Failure, Hint};

/// What to do if neither is given.
pub const REMEDY: &str = "give --key FILE (`homa key new FILE` writes one), or --plaintext";

/// How packets are protected.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Protection {
    /// Encrypt every packet, and accept only peers with the same key: a file of `homa key new`.
    #[arg(long, value_name = "FILE", conflicts_with = "plaintext")]
    key: Option<PathBuf>,
    /// Append the secrets of sessions to this file, in the format of SSLKEYLOGFILE, to read
    /// captures. Readers of the file can decrypt everything.
    #[arg(long, value_name = "FILE", requires = "key")]
    keylog: Option<PathBuf>,
    /// Exchange plaintext, by choice: hosts on the path can read and forge every packet.
    #[arg(long)]
    plaintext: bool,
}

impl Protection {
    /// True if an option was given.
    pub fn is_given(&self) -> bool {
        self.key.is_some() || self.plaintext
    }

    /// A configuration with these keys, or with the choice of plaintext.
    pub fn apply(&self, config: Config) -> Result<Config, Failure> {
        if self.plaintext {
            return Ok(config.plaintext());
        }
        let Some(path) = &self.key else { return Ok(config) };
        let keys = Keys::from_file(path).hint("`homa key new` writes a key file")?;
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
