//! Certificates for C programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

/// A new folder with an authority, and with certificates of its for 127.0.0.1 with these names.
pub fn folder(names: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("certificate-files");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, what: &str, der: &[u8]| {
        let path = folder.join(name);
        let begin = format!("-----BEGIN {what}-----\n{}\n", STANDARD.encode(der));
        fs::write(&path, format!("{begin}-----END {what}-----\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.crt", "CERTIFICATE", params.self_signed(&key).unwrap().der());
    let issuer = Issuer::new(params, key);
    for name in names {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        let id = format!("spiffe://homa.test/{name}").try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(id));
        let chain = params.signed_by(&key, &issuer).unwrap();
        write(&format!("{name}.crt"), "CERTIFICATE", chain.der());
        write(&format!("{name}.key"), "PRIVATE KEY", key.serialized_der());
    }
    folder
}
