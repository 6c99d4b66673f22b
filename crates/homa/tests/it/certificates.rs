//! Engines with certificates in PEM files: the names that they see, the policy, the metric, and a
//! replacement while calls continue.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use homa::error::HandshakeRefusal;
use homa::{CallError, Config, Engine, Keys};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use crate::common::engine;

/// An authority and a folder with the files of its hosts.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("homa-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.crt"), pem("CERTIFICATE", root.der())).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for 127.0.0.1 that expires when a year begins.
    fn issue(&self, name: &str, year: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        let id = format!("spiffe://homa.test/{name}").try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(id));
        let chain = params.signed_by(&key, &self.issuer).unwrap();
        let path = |kind| self.folder.join(format!("{name}.{kind}"));
        fs::write(path("key"), pem("PRIVATE KEY", key.serialized_der())).unwrap();
        fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(path("crt"), pem("CERTIFICATE", chain.der())).unwrap();
    }

    fn config(&self, name: &str) -> Config {
        self.issue(name, 2040);
        let path = |file: String| self.folder.join(file);
        let (chain, key) = (path(format!("{name}.crt")), path(format!("{name}.key")));
        Config::default().keys(Keys::from_certificates(chain, key, path("ca.crt".into())).unwrap())
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", STANDARD.encode(der))
}

/// Answers each request with the name that its client proved.
fn name_clients(engine: &Engine) {
    let server = engine.serve().unwrap();
    std::thread::spawn(move || {
        while let Some(request) = server.accept() {
            let name = request.peer_identity().map(ToString::to_string);
            request.reply(name.unwrap_or_default()).unwrap();
        }
    });
}

#[test]
fn certificates_in_files_name_clients_and_can_be_replaced() {
    let ca = Authority::new("certificates");
    let server = engine("127.0.0.1", ca.config("store"));
    name_clients(&server);
    let client = engine("127.0.0.1", ca.config("reader"));
    let call = |client: &Engine| client.client().call(server.local_addr(), "who am I?").unwrap();
    assert_eq!(call(&client), *b"spiffe://homa.test/reader");
    let shown = |text: &str| server.metrics().to_openmetrics().contains(text);
    // The beginnings of 2040 and 2041.
    assert!(shown("\nhoma_certificate_expiry_timestamp_seconds 2208988800\n"));
    ca.issue("store", 2041);
    assert!(shown("\nhoma_certificate_expiry_timestamp_seconds 2240611200\n"));
    // The old session continues, and the server presents the new certificate to a new client.
    assert_eq!(call(&client), *b"spiffe://homa.test/reader");
    let writer = engine("127.0.0.1", ca.config("writer"));
    assert_eq!(call(&writer), *b"spiffe://homa.test/writer");
    assert_eq!(server.metrics().driver.handshakes_completed, 2);
    let plain = engine("127.0.0.1", Config::default()).metrics();
    assert!(!plain.to_openmetrics().contains("certificate"), "it has none");
}

#[test]
fn a_policy_refuses_the_name_of_a_certificate() {
    let ca = Authority::new("policy");
    let readers = ca.config("store").admit(|peer| peer.names() == ["spiffe://homa.test/reader"]);
    let server = engine("127.0.0.1", readers);
    name_clients(&server);
    let at = server.local_addr();
    let reader = engine("127.0.0.1", ca.config("reader")).client();
    assert_eq!(reader.call(at, "?").unwrap(), *b"spiffe://homa.test/reader");
    let writer = engine("127.0.0.1", ca.config("writer")).client();
    let error = writer.call(at, "?").unwrap_err();
    let refused = HandshakeRefusal::NotAdmitted;
    assert!(
        matches!(&error, CallError::HandshakeRefused { reason, .. } if *reason == refused),
        "{error}"
    );
}
