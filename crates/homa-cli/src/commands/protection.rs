//! `--key` and `--plaintext`: whether packets are encrypted.

use std::path::PathBuf;

use homa::{Config, Keys};

use crate::failure::{Failure, Hint};

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

    /// A configuration with these keys.
    pub fn apply(&self, config: Config) -> Result<Config, Failure> {
        let Some(path) = &self.key else { return Ok(config.plaintext()) };
        let keys = Keys::from_file(path).hint("`homa key new` writes a key file")?;
        let keys = match &self.keylog {
            Some(log) => keys.key_log(log).hint("name a file that can be written")?,
            None => keys,
        };
        Ok(config.keys(keys))
    }
}
