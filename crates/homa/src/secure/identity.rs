//! Identities: the Ed25519 key that all holders of a cluster secret have, pinned by both ends as a
//! raw public key (RFC 7250).
//!
//! Invariants: the private key is a function of the secret (HKDF-SHA256, RFC 5869), so a key file
//! is all that a host needs. Both ends prove possession in every handshake, and accept no other
//! keys than those of their file. Left out: X.509, whose rules are in the caller's configuration.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hkdf;
use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerMisbehaved, ServerConfig, SignatureScheme,
};
use zeroize::Zeroizing;

/// Salt and label of the derivation from a cluster secret to the seed of its Ed25519 key. A change
/// of the derivation gets another label.
const SALT: &[u8] = b"homa-key-v1";
const LABEL: &[u8] = b"ed25519 identity";

/// The identity that a peer proved in the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// The peer holds the cluster key. All holders are the same identity.
    Cluster,
    /// The peer holds the private key of this X.509 certificate (DER), which our configuration
    /// accepted.
    Certificate(Arc<[u8]>),
    /// The peer is a client without a certificate, because our server configuration does not ask
    /// for one.
    Anonymous,
}

impl PeerIdentity {
    /// The names that the certificate authority vouched for: URIs, such as SPIFFE ids, then DNS
    /// names. Empty for other identities, and for a certificate without such names.
    pub fn names(&self) -> Vec<String> {
        let Self::Certificate(der) = self else { return Vec::new() };
        let der = CertificateDer::from(der.as_ref());
        let Ok(parsed) = webpki::EndEntityCert::try_from(&der) else { return Vec::new() };
        parsed.valid_uri_names().chain(parsed.valid_dns_names()).map(str::to_owned).collect()
    }
}

/// `cluster`, the first name of a certificate, `certificate` if it has none, or `anonymous`.
impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Certificate(_) => {
                f.write_str(self.names().first().map_or("certificate", String::as_str))
            }
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}

/// The cryptography of clusters: TLS 1.3 with a post-quantum key exchange, and the AEAD that the
/// processor has instructions for.
pub(super) fn cluster_provider() -> CryptoProvider {
    use provider::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};
    let mut provider = provider::default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256];
    if !has_aes() {
        provider.cipher_suites.reverse();
    }
    provider.kx_groups = vec![provider::kx_group::X25519MLKEM768, provider::kx_group::X25519];
    provider
}

/// The cipher that is asked for first.
pub(super) fn preferred_cipher() -> &'static str {
    if has_aes() { "AES-128-GCM" } else { "ChaCha20-Poly1305" }
}

/// Whether the processor has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// The Ed25519 key pair of a cluster secret.
pub(super) fn key_pair(secret: &[u8; 32]) -> Result<Ed25519KeyPair, Error> {
    let mut seed = Zeroizing::new([0; 32]);
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT)
        .extract(secret)
        .expand(&[LABEL], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut *seed));
    derived.map_err(|_| Error::General("HKDF failed".to_owned()))?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&*seed);
    pair.map_err(|_| Error::General("the seed is no Ed25519 key".to_owned()))
}

/// A cluster secret as TLS presents it: the raw public key and the key that signs.
fn certified(secret: &[u8; 32]) -> Result<CertifiedKey, Error> {
    let pkcs8 = key_pair(secret)?.to_pkcs8v1();
    let pkcs8 = pkcs8.map_err(|_| Error::General("the key cannot be encoded".to_owned()))?;
    let signing = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()))?;
    let public = signing.public_key();
    let public = public.ok_or_else(|| Error::General("the key has no public half".to_owned()))?;
    // TLS carries a raw public key in the place of the certificate.
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(CertifiedKey::new(vec![public], signing))
}

/// The configurations of both sides for cluster secrets: the first is presented, all are accepted.
pub(super) fn cluster(secrets: &[[u8; 32]]) -> Result<(ClientConfig, ServerConfig), Error> {
    let keys: Vec<CertifiedKey> = secrets.iter().map(certified).collect::<Result<_, _>>()?;
    let provider = Arc::new(cluster_provider());
    let accepted = keys.iter().flat_map(|key| key.cert.iter().cloned()).collect();
    let pins = Arc::new(Pins { accepted, provider: Arc::clone(&provider) });
    let first = keys.into_iter().next();
    let own = Arc::new(first.ok_or_else(|| Error::General("there is no key".to_owned()))?);
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&pins) as _)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &own,
        ))));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(pins)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    Ok((client, server))
}

/// Accepts the raw public keys of a key file, and nothing else.
#[derive(Debug)]
struct Pins {
    /// Public keys as SubjectPublicKeyInfo (DER).
    accepted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Pins {
    fn accept(&self, key: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<(), Error> {
        if rest.is_empty() && self.accepted.iter().any(|accepted| accepted == key) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }
}

/// TLS 1.2 is never negotiated.
fn no_tls12() -> Error {
    Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)
}

impl ServerCertVerifier for Pins {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.accept(key, rest).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pins {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.accept(key, rest).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
