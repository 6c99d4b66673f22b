//! Certificates in PEM files, their reload, and when they expire.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::credentials::agree;
use super::*;

/// The files of one end.
struct Pem {
    chain: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
}

/// The first seconds of the years, since 1970.
const YEAR_2030: u64 = 1_893_456_000;
const YEAR_2031: u64 = 1_924_992_000;

fn write(path: &Path, what: &str, der: &[u8]) {
    let text = format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", STANDARD.encode(der));
    let _ = fs::remove_file(path);
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Pem {
    /// Files of an authority, and a certificate for 127.0.0.1 that expires with the year before.
    fn new(folder: &Path, ca: &Authority, year: i32) -> Self {
        let [chain, key, authorities] =
            ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name));
        let pem = Self { chain, key, authorities };
        let (certificate, key) = pem.issue(ca, year);
        write(&pem.chain, "CERTIFICATE", &certificate);
        write(&pem.key, "PRIVATE KEY", &key);
        write(&pem.authorities, "CERTIFICATE", &ca.root);
        pem
    }

    fn issue(&self, ca: &Authority, year: i32) -> (Vec<u8>, Vec<u8>) {
        let (chain, key) = ca.issue_until("127.0.0.1", "server", year);
        (chain[0].to_vec(), key.secret_der().to_vec())
    }

    fn read(&self) -> Result<Keys, KeysError> {
        Keys::from_certificates(&self.chain, &self.key, &self.authorities)
    }

    fn error(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

fn expires(keys: &Keys) -> u64 {
    let expiry = keys.certificate_expiry().expect("there is a certificate");
    expiry.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn pem_files_prove_both_ends_and_are_replaced_without_a_gap() {
    let ca = Authority::new();
    let folder = folder("pem");
    let pem = Pem::new(&folder, &ca, 2030);
    let (keys, peer) = (pem.read().unwrap(), ca.keys("127.0.0.1", "peer"));
    let (client, server) = Pair::new(&peer, &keys).sessions();
    assert_eq!(client.identity().to_string(), "spiffe://homa.test/server");
    assert_eq!(server.identity().to_string(), "spiffe://homa.test/peer");
    assert!(agree(&keys, &peer), "as client, too");
    assert!(!agree(&keys, &Authority::new().keys("127.0.0.1", "server")), "another authority");
    assert!(!agree(&Authority::new().keys_that_trust(&ca, "127.0.0.1", "x"), &keys));
    assert_eq!(expires(&keys), YEAR_2030);

    let (certificate, key) = pem.issue(&ca, 2031);
    write(&pem.chain, "CERTIFICATE", &certificate);
    assert!(agree(&peer, &keys), "the new certificate has no key yet, so the old one is used");
    assert_eq!(expires(&keys), YEAR_2030);
    write(&pem.key, "PRIVATE KEY", &key);
    assert_eq!(expires(&keys), YEAR_2031, "without a handshake");
    assert!(agree(&peer, &keys));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_bad_pem_file_is_named_with_the_reason() {
    let ca = Authority::new();
    let folder = folder("bad-pem");
    let pem = Pem::new(&folder, &ca, 2030);
    let (_, other) = pem.issue(&ca, 2030);
    write(&pem.key, "PRIVATE KEY", &other);
    let error = pem.error();
    assert!(error.contains("tls.key: it is not the key of the first certificate"), "{error}");
    write(&pem.key, "CERTIFICATE", &ca.root);
    assert!(pem.error().contains("tls.key: it has no private key"), "{}", pem.error());
    fs::set_permissions(&pem.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(pem.error().contains("mode 0644"), "{}", pem.error());

    let pem = Pem::new(&folder, &ca, 2030);
    write(&pem.authorities, "CERTIFICATE", b"none");
    assert!(pem.error().contains("ca.crt: "), "{}", pem.error());
    fs::write(&pem.authorities, "").unwrap();
    assert!(pem.error().contains("ca.crt: it has no certificate"), "{}", pem.error());
    fs::write(&pem.authorities, vec![b'\n'; 1 + (1 << 20)]).unwrap();
    assert!(pem.error().contains("ca.crt: it is longer than 1048576 bytes"), "{}", pem.error());
    fs::remove_file(&pem.chain).unwrap();
    let error = pem.error();
    assert!(error.contains("tls.crt: No such file") && error.contains("PEM"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_certificate_that_expires_first_counts() {
    assert_eq!(cluster(1).certificate_expiry(), None, "a cluster key does not expire");
    let ca = Authority::new();
    let soon = SystemTime::now() + Duration::from_secs(86_400);
    for keys in [ca.keys("127.0.0.1", "server"), ca.keys_without_client()] {
        // The certificates of `rcgen` are valid for thousands of years.
        assert!(keys.certificate_expiry().is_some_and(|at| at > soon));
    }
}
