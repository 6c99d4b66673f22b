//! The log of sessions' secrets, in the format of SSLKEYLOGFILE (draft-ietf-tls-keylogfile): a
//! label, the random bytes of the ClientHello, and the secret.
//!
//! Invariant: nothing is written unless a file was named. The file is created for its owner only.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::KeyLog;

/// The log of one set of credentials; without a file it logs nothing.
#[derive(Default)]
pub(super) struct SecretLog(OnceLock<Mutex<File>>);

impl SecretLog {
    /// Appends to a file from now on. A second file is ignored.
    pub(super) fn open(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        self.0.get_or_init(|| Mutex::new(file));
        Ok(())
    }
}

/// The path and the secrets stay out of other logs.
impl fmt::Debug for SecretLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretLog")
    }
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let Some(file) = self.0.get() else { return };
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        // A full disk must not end a handshake; the reader of the log misses this session.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }

    fn will_log(&self, _label: &str) -> bool {
        self.0.get().is_some()
    }
}

/// Our log and that of a caller's configuration.
#[derive(Debug)]
pub(super) struct BothLogs(pub(super) Arc<SecretLog>, pub(super) Arc<dyn KeyLog>);

impl KeyLog for BothLogs {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if self.0.will_log(label) {
            self.0.log(label, client_random, secret);
        }
        if self.1.will_log(label) {
            self.1.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        self.0.will_log(label) || self.1.will_log(label)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
