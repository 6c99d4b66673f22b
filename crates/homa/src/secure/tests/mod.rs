//! Handshakes and sessions between two ends in one process.

mod certificates;
mod credentials;
mod early_data;
mod handshake;
mod session;
mod tickets;
mod vectors;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::*;

const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000));

/// Key ids of both ends.
const CLIENT_KEY: u32 = 0x01c1_1e47;
const SERVER_KEY: u32 = 0x5ea1_ed01;

/// A challenge of the server: id, boot id, remembered nanoseconds.
const CHALLENGE: &[u8; 24] = b"\x0c\x4a\x11\x0d\x09\x0e\x00\x01boot id.\0\0\0\0\x77\x35\x94\0";

/// Bytes of a fragment in a datagram of the smallest MTU.
const ROOM: usize = 1_150;

/// A fragment on its way.
type Travelling = (Level, u32, Vec<u8>);

fn cluster(byte: u8) -> Keys {
    Keys::cluster([byte; 32]).unwrap()
}

/// Both ends of a handshake.
struct Pair {
    client: Handshake,
    server: Handshake,
}

impl Pair {
    fn new(client: &Keys, server: &Keys) -> Self {
        let client = Handshake::client(client, SERVER, CLIENT_KEY).unwrap();
        let mut server = Handshake::server(server, SERVER_KEY).unwrap();
        server.set_challenge(CHALLENGE.to_vec());
        Self { client, server }
    }

    /// Passes fragments to the server; returns its flight if it has one.
    fn serve(&mut self, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
        deliver(&mut self.server, flight)
    }

    fn answer(&mut self, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
        deliver(&mut self.client, flight)
    }

    /// Both sessions, after the rest of the handshake.
    fn sessions(mut self) -> (SecureSession, SecureSession) {
        while !self.client.is_confirmed() {
            let flight = self.client.flight(ROOM);
            let flight = self.serve(&flight).unwrap();
            let flight = self.answer(&flight).unwrap();
            let flight = self.serve(&flight).unwrap();
            self.answer(&flight).unwrap();
        }
        (self.client.session().unwrap(), self.server.session().unwrap())
    }
}

/// Passes fragments to one end, which answers at most once. Dropped fragments are dropped.
fn deliver(to: &mut Handshake, flight: &[Travelling]) -> Result<Vec<Travelling>, HandshakeError> {
    let mut answer = false;
    for (level, offset, bytes) in flight {
        match to.receive(Fragment { level: *level, offset: *offset, bytes }) {
            Ok(next) => answer |= next == Next::Send,
            Err(error) if !error.is_final() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(if answer { to.flight(ROOM) } else { Vec::new() })
}

/// Seals `text` behind the header `aad`, with the number and the phase.
fn seal(from: &mut SecureSession, aad: &[u8], text: &[u8]) -> (u64, bool, Vec<u8>) {
    let (number, phase) = from.next().unwrap();
    let mut payload = [text, &[0; TAG]].concat();
    from.seal(number, aad, &mut payload).unwrap();
    (number, phase, payload)
}

/// Opens a copy of a sealed datagram.
fn open(
    to: &mut SecureSession,
    aad: &[u8],
    sealed: &(u64, bool, Vec<u8>),
) -> Result<Vec<u8>, UnsealError> {
    let (number, phase, mut payload) = sealed.clone();
    let length = to.open(number, phase, aad, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("homa-secure-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A key file with these lines.
fn write(path: &PathBuf, lines: &[String]) {
    let _ = fs::remove_file(path);
    fs::write(path, lines.join("\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A line of a key file.
fn line(byte: u8) -> String {
    format!("homa-key-v1 {}", STANDARD.encode([byte; 32]))
}

/// A certificate authority that issues to clients and servers.
struct Authority {
    root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { root, issuer: Issuer::new(params, key) }
    }

    /// A certificate for an address and a name.
    fn issue(
        &self,
        address: &str,
        name: &str,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        self.issue_until(address, name, 4096)
    }

    /// The same, which expires when a year begins.
    fn issue_until(
        &self,
        address: &str,
        name: &str,
        year: i32,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.subject_alt_names.push(SanType::IpAddress(address.parse().unwrap()));
        let id = format!("spiffe://homa.test/{name}").try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(id));
        let dns = format!("{name}.homa.test").try_into().unwrap();
        params.subject_alt_names.push(SanType::DnsName(dns));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (vec![certificate.der().clone()], key.into())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        Arc::new(roots)
    }

    /// Mutual authentication with a certificate of this authority.
    fn keys(&self, address: &str, name: &str) -> Keys {
        self.keys_that_trust(self, address, name)
    }

    fn keys_that_trust(&self, trusted: &Self, address: &str, name: &str) -> Keys {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (chain, key) = self.issue(address, name);
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted.roots())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(trusted.roots(), Arc::clone(&provider));
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        Keys::tls(Arc::new(client), Arc::new(server)).unwrap()
    }

    /// Only the server has a certificate, as on the web.
    fn keys_without_client(&self) -> Keys {
        self.keys_without_client_by(rustls::crypto::aws_lc_rs::default_provider()).unwrap()
    }

    /// The same with other cryptography.
    fn keys_without_client_by(&self, provider: CryptoProvider) -> Result<Keys, KeysError> {
        let provider = Arc::new(provider);
        let (chain, key) = self.issue("127.0.0.1", "server");
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Keys::tls(Arc::new(client), Arc::new(server))
    }
}
