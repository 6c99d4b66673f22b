//! When the certificate that an engine presents expires.
//!
//! The certificate of a client follows from its configuration. Which one a server presents depends
//! on the ClientHello, so it is noted whenever a server presents one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

/// No certificate has been presented yet, or there is none.
const UNKNOWN: u64 = u64::MAX;

/// Seconds since 1970 at which the certificates of both sides expire.
#[derive(Debug)]
pub(super) struct Expiry {
    client: u64,
    server: AtomicU64,
}

/// Notes which certificate a server presents.
#[derive(Debug)]
struct Noting {
    resolver: Arc<dyn ResolvesServerCert>,
    expiry: Arc<Expiry>,
}

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = self.resolver.resolve(hello)?;
        self.expiry.server.store(expiry_of(&key), Ordering::Relaxed);
        Some(key)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.resolver.only_raw_public_keys()
    }
}

impl Expiry {
    /// Observes the certificates that both sides present; raw public keys do not expire.
    pub(super) fn observe(client: &ClientConfig, server: &mut ServerConfig) -> Arc<Self> {
        let resolver = &client.client_auth_cert_resolver;
        let schemes =
            client.crypto_provider().signature_verification_algorithms.supported_schemes();
        let presented = match resolver.only_raw_public_keys() {
            true => None,
            false => resolver.resolve(&[], &schemes),
        };
        let client = presented.map_or(UNKNOWN, |key| expiry_of(&key));
        let expiry = Arc::new(Self { client, server: AtomicU64::new(UNKNOWN) });
        if !server.cert_resolver.only_raw_public_keys() {
            let resolver = Arc::clone(&server.cert_resolver);
            server.cert_resolver = Arc::new(Noting { resolver, expiry: Arc::clone(&expiry) });
        }
        expiry
    }

    /// The time at which the first of them expires.
    pub(super) fn first(&self) -> Option<SystemTime> {
        let seconds = self.client.min(self.server.load(Ordering::Relaxed));
        match seconds {
            UNKNOWN => None,
            seconds => SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
        }
    }
}

fn expiry_of(key: &CertifiedKey) -> u64 {
    key.cert.first().and_then(not_after).unwrap_or(UNKNOWN)
}

/// The end of a certificate's validity, seconds since 1970. webpki names it only in its error about
/// an expired certificate, so the certificate is verified as of the last possible time.
fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let end = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let usage = webpki::KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], end, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => None,
    }
}
