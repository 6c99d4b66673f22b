//! Encryption, and what an engine without keys may do: by default it stays on its host, because
//! hosts on the path can read and forge plaintext.

use std::net::SocketAddr;
use std::time::SystemTime;

use super::Core;
use crate::config::{Config, WithoutKeys};
use crate::driver::Driver;
#[cfg(feature = "encryption")]
use crate::driver::sealed::Sealed;
use crate::error::{CallError, OpenError};
use crate::padding::Padding;

/// Which hosts an engine may exchange packets with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All of them: it has keys, plaintext was chosen, or its driver needs neither.
    All,
    /// Its own, by loopback.
    Loopback,
}

impl Reach {
    /// The reach of an engine over `driver`; an error if other hosts reach the driver's addresses
    /// and may not.
    pub fn of(driver: &dyn Driver, config: &Config) -> Result<Self, OpenError> {
        #[cfg(feature = "encryption")]
        let encrypted = config.keys.is_some();
        #[cfg(not(feature = "encryption"))]
        let encrypted = false;
        // Keys, a driver that needs none (for example in memory), or the user's choice.
        if encrypted || !driver.needs_keys() || config.without_keys == WithoutKeys::Plaintext {
            return Ok(Self::All);
        }
        if config.without_keys == WithoutKeys::OnLoopback {
            driver.local().iter().try_for_each(|&at| Self::Loopback.open(at))?;
        }
        Ok(Self::Loopback)
    }

    /// An error if a server may not be opened at an address. Other hosts reach the unspecified one.
    fn open(self, at: SocketAddr) -> Result<(), OpenError> {
        match self == Self::All || is_loopback(at) {
            true => Ok(()),
            false => Err(OpenError::Unprotected { at }),
        }
    }

    /// An error if a server, at its canonical address, may not be called.
    pub fn call(self, to: SocketAddr) -> Result<(), CallError> {
        match self == Self::All || is_loopback(to) {
            true => Ok(()),
            false => Err(CallError::Unprotected { to }),
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    // An IPv4 loopback address may be written as one of IPv6.
    address.ip().to_canonical().is_loopback()
}

impl Core {
    /// Whether requests may be accepted at a local address.
    ///
    /// # Errors
    /// [`OpenError::Unprotected`]
    pub fn may_serve(&self, at: SocketAddr) -> Result<(), OpenError> {
        self.reach.open(at)
    }
}

/// How datagrams are padded: only encrypted ones are.
pub(super) fn padding(config: &Config) -> Padding {
    #[cfg(feature = "encryption")]
    if config.keys.is_some() {
        return config.padding;
    }
    let _ = config;
    Padding::None
}

/// Whether requests may leave as early data.
pub(super) fn allows_early_data(config: &Config) -> bool {
    #[cfg(feature = "encryption")]
    return config.keys.as_ref().is_some_and(crate::Keys::allows_early_data);
    #[cfg(not(feature = "encryption"))]
    {
        let _ = config;
        false
    }
}

/// When the certificate of an engine expires, if it has one.
pub(super) fn certificate_expiry(config: &Config) -> Option<SystemTime> {
    #[cfg(feature = "encryption")]
    return config.keys.as_ref()?.certificate_expiry();
    #[cfg(not(feature = "encryption"))]
    {
        let _ = config;
        None
    }
}

/// The driver that the engine uses: with keys, everything is encrypted.
#[cfg(feature = "encryption")]
pub(super) fn protected(
    driver: Box<dyn Driver>,
    config: &Config,
) -> Result<Box<dyn Driver>, OpenError> {
    let Some(keys) = config.keys.clone() else {
        return match config.admission.0 {
            Some(_) => Err(OpenError::PolicyWithoutKeys),
            None => Ok(driver),
        };
    };
    // Raw IP is for peers with the kernel module, which does not encrypt.
    if driver.encapsulation() == crate::driver::Encapsulation::Ip {
        return Err(OpenError::KeysOverIp);
    }
    let tos = config.priority_map.tos(config.priority_map.levels().saturating_sub(1));
    let admission = config.admission.0.clone();
    Ok(Box::new(Sealed::new(driver, keys, admission, config.max_peers, tos)))
}

#[cfg(not(feature = "encryption"))]
pub(super) fn protected(driver: Box<dyn Driver>, _: &Config) -> Result<Box<dyn Driver>, OpenError> {
    Ok(driver)
}
