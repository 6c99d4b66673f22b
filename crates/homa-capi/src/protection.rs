//! The members of `homa_options` about encryption: keys, a key file, certificates, a policy,
//! padding, plaintext.

use std::ffi::{CString, c_char, c_int, c_void};

use homa::{Config, Keys, Padding, PeerIdentity};

use crate::error::Error;
use crate::keys::shared;
use crate::options::{HOMA_PADDING_FULL, HOMA_PLAINTEXT, homa_options, name};

/// A policy of the program.
#[derive(Clone, Copy)]
struct Policy {
    admit: unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int,
    user: *mut c_void,
}

// SAFETY: the documentation of `admit` says that any thread may call it.
unsafe impl Send for Policy {}
// SAFETY: the same.
unsafe impl Sync for Policy {}

impl Policy {
    fn admits(self, peer: &PeerIdentity) -> bool {
        // The names in certificates have no zero bytes.
        let Ok(identity) = CString::new(peer.to_string()) else { return false };
        // SAFETY: the program guarantees its function, for as long as the socket is open.
        unsafe { (self.admit)(identity.as_ptr(), self.user) != 0 }
    }
}

/// The configuration with what the options say about encryption.
///
/// # Safety
///
/// The names in the options are null or end with a zero byte, the keys are null or open, and
/// `admit` is as documented.
pub unsafe fn protected(mut config: Config, given: &homa_options) -> Result<Config, Error> {
    // SAFETY: the caller guarantees the names.
    let [key, cert, cert_key, ca, server] = unsafe {
        [
            name(given.key_file)?,
            name(given.cert_file)?,
            name(given.cert_key_file)?,
            name(given.ca_file)?,
            name(given.server_name)?,
        ]
    };
    let plaintext = given.flags & HOMA_PLAINTEXT != 0;
    let certificates = cert.zip(cert_key).zip(ca);
    if certificates.is_none() && (cert.or(cert_key).or(ca).is_some()) {
        let text = "set `cert_file`, `cert_key_file` and `ca_file` of `options`, or none of them";
        return Err(Error::invalid(text));
    }
    // SAFETY: the caller guarantees the keys.
    let shared = unsafe { shared(given.keys) };
    let choices = [shared.is_some(), key.is_some(), certificates.is_some(), plaintext];
    if choices.into_iter().filter(|&chosen| chosen).count() > 1 {
        let text = "set one of `options->keys`, `options->key_file`, `options->cert_file` and \
                    HOMA_PLAINTEXT";
        return Err(Error::invalid(text));
    }
    if shared.is_some() && server.is_some() {
        let text = "`options->server_name` needs `cert_file`: `keys` are those of a cluster, which \
                    have no names";
        return Err(Error::invalid(text));
    }
    let mut keys = match (key, certificates) {
        (Some(path), _) => Some(Keys::from_file(path).map_err(Error::keys)?),
        (None, Some(((cert, key), ca))) => {
            Some(Keys::from_certificates(cert, key, ca).map_err(Error::keys)?)
        }
        (None, None) => shared,
    };
    if keys.is_none() && given.padding != 0 {
        let text = "`options->padding` needs `keys`, `key_file` or `cert_file`: plaintext is not \
                    padded";
        return Err(Error::invalid(text));
    }
    config.padding = padding(given.padding)?;
    if let (Some(of), Some(server)) = (&keys, server) {
        keys = Some(of.clone().server_name(server).map_err(Error::keys)?);
    }
    if plaintext {
        config = config.plaintext();
    }
    if let Some(admit) = given.admit {
        let policy = Policy { admit, user: given.admit_user };
        config = config.admit(move |peer| policy.admits(peer));
    }
    match keys {
        Some(keys) => Ok(config.keys(keys)),
        None => Ok(config),
    }
}

fn padding(given: u32) -> Result<Padding, Error> {
    match given {
        0 => Ok(Padding::None),
        HOMA_PADDING_FULL => Ok(Padding::Full),
        multiple => u16::try_from(multiple).map(Padding::Multiple).map_err(|_| {
            let most = "at most 65,535, or HOMA_PADDING_FULL";
            Error::invalid(format!("`options->padding` is {multiple}: {most}"))
        }),
    }
}
