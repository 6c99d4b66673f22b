//! `homa serve` and `call` with certificates.

use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

use crate::common::{code, homa, stderr};
use crate::folder::Folder;
use crate::server::Server;

/// Writes an authority, and a certificate of its for 127.0.0.1 that expires when a year begins.
/// Returns the options that name the files.
pub fn options(folder: &Folder, authority: &str, year: i32) -> [String; 6] {
    let path = |kind: &str| folder.path(&format!("{authority}.{kind}"));
    let root_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&root_key).expect("a certificate");
    let issuer = Issuer::new(params, root_key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().expect("an address")));
    let chain = params.signed_by(&key, &issuer).expect("a certificate");
    let of = |what: &str, der: &[u8]| {
        format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", STANDARD.encode(der))
    };
    for (kind, text) in [
        ("ca", of("CERTIFICATE", root.der())),
        ("key", of("PRIVATE KEY", key.serialized_der())),
        ("crt", of("CERTIFICATE", chain.der())),
    ] {
        std::fs::write(path(kind), text).expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path(kind), private).expect("its mode");
    }
    let named = [("--cert", "crt"), ("--cert-key", "key"), ("--ca", "ca")];
    named.map(|(option, kind)| [option.to_owned(), path(kind)]).concat().try_into().expect("six")
}

fn with(command: &[&str], options: &[String]) -> std::process::Output {
    let options = options.iter().map(String::as_str);
    homa(&command.iter().copied().chain(options).collect::<Vec<_>>())
}

#[test]
fn peers_with_certificates_of_one_authority_call_each_other() {
    let folder = Folder::new("certificates");
    let (ours, other) = (options(&folder, "ours", 2999), options(&folder, "other", 2999));
    let mut serve = vec!["--echo"];
    serve.extend(ours.iter().map(String::as_str));
    let server = Server::start(&serve);
    let call = ["call", &server.address, "--data", "secret"];
    let answered = with(&call, &ours);
    assert_eq!((code(&answered), &answered.stdout[..]), (0, &b"secret"[..]), "{answered:?}");
    let named = with(&[&call[..], &["--server-name", "store.test"]].concat(), &ours);
    assert!(code(&named) == 2 && stderr(&named).contains("certificate was refused"), "{named:?}");
    let refused = with(&call, &other);
    assert_eq!(code(&refused), 2, "another authority: {refused:?}");
    assert!(stderr(&refused).contains("certificate"), "{refused:?}");
    let part = with(&call, &ours[..2]);
    assert!(code(&part) == 2 && stderr(&part).contains("--cert-key"), "{part:?}");
    server.terminate();
}
