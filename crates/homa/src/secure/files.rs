//! The files that credentials are read from: a key file, or certificates in PEM.
//!
//! Invariant: a version covers every file, so a change of any of them is seen. Left out: key files'
//! lines (`key_file`), and which certificates are valid, which webpki decides in each handshake.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use zeroize::Zeroizing;

use super::key_file::{self, Version};
use super::{KeysError, identity};

/// Longest PEM file, bytes: enough for all authorities that browsers trust.
const LENGTH_MAX: u64 = 1 << 20;

/// Where credentials come from.
#[derive(Debug)]
pub(super) enum Files {
    /// A file of `homa key new`.
    Key(PathBuf),
    /// PEM files.
    Certificates(CertificateFiles),
}

/// PEM files of one end.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    /// Its certificate, followed by those that lead to an authority.
    pub(super) chain: PathBuf,
    /// The private key of the first.
    pub(super) key: PathBuf,
    /// The authorities that vouch for its peers.
    pub(super) authorities: PathBuf,
}

impl Files {
    /// Whether all holders are one identity.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// The key file, or the file of the certificate.
    pub(super) fn first(&self) -> &Path {
        match self {
            Self::Key(path) => path,
            Self::Certificates(of) => &of.chain,
        }
    }

    /// The version of all files; `None` if one is missing, for example while it is replaced.
    pub(super) fn version(&self) -> Option<[Option<Version>; 3]> {
        let of = |path: &Path| key_file::version(path).map(Some);
        match self {
            Self::Key(path) => Some([of(path)?, None, None]),
            Self::Certificates(CertificateFiles { chain, key, authorities }) => {
                Some([of(chain)?, of(key)?, of(authorities)?])
            }
        }
    }

    /// The configurations of both sides.
    pub(super) fn read(&self) -> Result<(ClientConfig, ServerConfig), KeysError> {
        match self {
            Self::Key(path) => identity::cluster(&key_file::read(path)?).map_err(KeysError::tls),
            Self::Certificates(files) => files.read(),
        }
    }
}

/// Words for error messages.
impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(path) => write!(f, "the key file {}", path.display()),
            Self::Certificates(of) => write!(f, "the certificate {}", of.chain.display()),
        }
    }
}

impl CertificateFiles {
    /// Both ends present a certificate, and accept those that the authorities vouch for.
    fn read(&self) -> Result<(ClientConfig, ServerConfig), KeysError> {
        let chain = certificates(&self.chain)?;
        let key = self.private_key()?;
        let roots = Arc::new(self.roots()?);
        let provider = Arc::new(identity::cluster_provider());
        let refused = |error| match error {
            Error::InconsistentKeys(_) => {
                let of = self.chain.display();
                pem(&self.key, format!("it is not the key of the first certificate in {of}"))
            }
            other => KeysError::tls(other),
        };
        let built = |error: VerifierBuilderError| KeysError::Tls { reason: error.to_string() };
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(KeysError::tls)?
            .with_webpki_verifier(servers.build().map_err(built)?)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(refused)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(KeysError::tls)?
            .with_client_cert_verifier(clients.build().map_err(built)?)
            .with_single_cert(chain, key)
            .map_err(refused)?;
        Ok((client, server))
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, KeysError> {
        let file = open(&self.key)?;
        let exposed = key_file::exposure(&file).map_err(|source| unread(&self.key, source))?;
        if let Some(mode) = exposed {
            return Err(KeysError::Exposed { path: self.key.clone(), mode });
        }
        let text = Zeroizing::new(text(&self.key, file)?);
        PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| pem(&self.key, format!("it has no private key in PEM ({error})")))
    }

    fn roots(&self) -> Result<RootCertStore, KeysError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authorities)? {
            roots.add(authority).map_err(|error| pem(&self.authorities, error.to_string()))?;
        }
        Ok(roots)
    }
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    let text = text(path, open(path)?)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match read {
        Ok(read) if read.is_empty() => Err(pem(path, "it has no certificate in PEM".to_owned())),
        Ok(read) => Ok(read),
        Err(error) => Err(pem(path, error.to_string())),
    }
}

fn open(path: &Path) -> Result<File, KeysError> {
    File::open(path).map_err(|source| unread(path, source))
}

fn text(path: &Path, file: File) -> Result<Vec<u8>, KeysError> {
    key_file::read_whole(file, LENGTH_MAX).map_err(|source| unread(path, source))
}

fn pem(path: &Path, problem: String) -> KeysError {
    KeysError::Pem { path: path.to_owned(), problem }
}

fn unread(path: &Path, source: io::Error) -> KeysError {
    KeysError::ReadPem { path: path.to_owned(), source }
}
