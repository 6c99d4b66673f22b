//! Key files, rotation, certificates, and the log of secrets.

use super::*;

pub(super) fn agree(client: &Keys, server: &Keys) -> bool {
    let mut pair = Pair::new(client, server);
    let mut flight = pair.client.flight(ROOM);
    for _ in 0..3 {
        let Ok(answer) = pair.serve(&flight).and_then(|flight| pair.answer(&flight)) else {
            return false;
        };
        flight = answer;
    }
    pair.client.session().is_some() && pair.server.session().is_some()
}

#[test]
fn a_new_key_file_is_private_and_never_overwritten() {
    let path = folder("new").join("cluster.key");
    Keys::create_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(agree(&Keys::from_file(&path).unwrap(), &Keys::from_file(&path).unwrap()));
    let before = fs::read(&path).unwrap();
    let error = Keys::create_file(&path).unwrap_err().to_string();
    assert!(error.contains("cannot write the key file") && error.contains("exist"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let path = folder("mode").join("cluster.key");
    write(&path, &[line(1)]);
    for mode in [0o644, 0o604, 0o660, 0o602, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Keys::from_file(&path).unwrap_err().to_string();
        let remedy = format!("chmod 600 {}", path.display());
        assert!(error.contains(&format!("mode {mode:04o}")) && error.contains(&remedy), "{error}");
    }
    // A service manager may hand a key to a group.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
    assert!(Keys::from_file(&path).is_ok());
}

#[test]
fn a_bad_key_file_names_the_line_and_the_remedy() {
    let path = folder("lines").join("cluster.key");
    let secret = STANDARD.encode([9; 31]);
    let cases = [
        (format!("homa-key-v1 {secret}"), "32 bytes"),
        (format!("homa-key-v2 {secret}"), "does not begin with `homa-key-v1`"),
        ("homa-key-v1".to_owned(), "the key is missing"),
        (format!("{} x", line(2)), "something follows"),
        ("homa-key-v1 ***".to_owned(), "not base64"),
        (line(0), "all zeroes"),
        (line(1), "twice"),
    ];
    for (wrong, problem) in cases {
        write(&path, &["# Our cluster".to_owned(), line(1), wrong]);
        let error = Keys::from_file(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{}, line 3: ", path.display())), "{error}");
        assert!(error.contains(problem) && error.contains("homa key new"), "{error}");
        assert!(!error.contains(&secret), "an error contains a key");
    }
    // As editors of another system save it.
    write(&path, &[format!("\u{feff}{}\r", line(1))]);
    assert!(agree(&Keys::from_file(&path).unwrap(), &cluster(1)));
    write(&path, &["# nothing".to_owned()]);
    assert!(Keys::from_file(&path).unwrap_err().to_string().contains("has no key"));
    write(&path, &["#".repeat(16_384), line(1)]);
    let error = Keys::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("it is longer than 16384 bytes"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = Keys::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("No such file") && error.contains("homa key new"), "{error}");
}

#[test]
fn hosts_change_keys_one_after_the_other_without_a_gap() {
    let folder = folder("rotation");
    let (here, there) = (folder.join("here"), folder.join("there"));
    let stages = [vec![line(1)], vec![line(1), line(2)], vec![line(2), line(1)], vec![line(2)]];
    write(&here, &stages[0]);
    write(&there, &stages[0]);
    let (a, b) = (Keys::from_file(&here).unwrap(), Keys::from_file(&there).unwrap());
    for stage in &stages[1..] {
        for path in [&here, &there] {
            write(path, stage);
            assert!(agree(&a, &b) && agree(&b, &a), "{stage:?}");
        }
    }
    assert!(!agree(&a, &cluster(1)), "the old key is still accepted");
    assert!(agree(&a, &cluster(2)));
    // A file that is broken while it is edited changes nothing.
    write(&here, &["homa-key-v1 half".to_owned()]);
    assert!(agree(&a, &b));
    assert!(a.reload().is_err());
    fs::remove_file(&here).unwrap();
    assert!(agree(&a, &b));
    // And the next change is seen.
    write(&here, &[line(3)]);
    assert!(!agree(&a, &b) && agree(&a, &cluster(3)));
}

#[test]
fn a_handshake_ends_with_the_keys_it_began_with() {
    let path = folder("reload").join("cluster.key");
    write(&path, &[line(1)]);
    let keys = Keys::from_file(&path).unwrap();
    let pair = Pair::new(&keys, &cluster(1));
    write(&path, &[line(2)]);
    assert!(agree(&keys, &cluster(2)), "the next handshake has the new key");
    let (mut client, mut server) = pair.sessions();
    let sealed = seal(&mut client, b"", b"text");
    assert!(open(&mut server, b"", &sealed).is_ok());
}

/// The server refuses the client's key after the client has accepted the server's.
#[test]
fn a_client_is_told_that_its_new_key_is_not_accepted() {
    let path = folder("early").join("cluster.key");
    write(&path, &[line(2), line(1)]);
    let mut pair = Pair::new(&Keys::from_file(&path).unwrap(), &cluster(1));
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let finished = pair.answer(&flight).unwrap();
    assert!(pair.client.session().is_some(), "the client is satisfied");
    assert_eq!(pair.serve(&finished), Err(HandshakeError::WrongKey));
    let alert = pair.server.flight(ROOM);
    assert_eq!(pair.answer(&alert), Err(HandshakeError::KeyRefused));
    assert!(!pair.client.is_confirmed() && pair.server.session().is_none());
}

#[test]
fn certificates_prove_both_ends_and_name_them() {
    let ca = Authority::new();
    let (client, server) = (ca.keys("10.0.0.1", "reporter"), ca.keys("127.0.0.1", "store"));
    let (client, server) = Pair::new(&client, &server).sessions();
    assert_eq!(server.identity().names(), ["spiffe://homa.test/reporter", "reporter.homa.test"]);
    assert_eq!(server.identity().to_string(), "spiffe://homa.test/reporter");
    assert_eq!(client.identity().names(), ["spiffe://homa.test/store", "store.homa.test"]);
}

#[test]
fn a_certificate_for_another_address_is_refused() {
    let ca = Authority::new();
    let (client, server) = (ca.keys("10.0.0.1", "client"), ca.keys("10.0.0.2", "server"));
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let error = pair.answer(&flight).unwrap_err();
    assert!(matches!(error, HandshakeError::CertificateRefused(_)), "{error}");
    let alert = pair.client.flight(ROOM);
    let told = pair.serve(&alert).unwrap_err();
    assert!(matches!(told, HandshakeError::RefusedByPeer { .. }), "{told}");
    // The same server under names in its certificate.
    assert!(agree(&client.clone().server_name("10.0.0.2").unwrap(), &server));
    let named = client.server_name("server.homa.test").unwrap();
    assert!(agree(&named, &server));
    assert!(named.server_name("no name").is_err());
}

#[test]
fn a_client_of_another_authority_is_refused_and_told() {
    let (ca, other) = (Authority::new(), Authority::new());
    let server = ca.keys("127.0.0.1", "server");
    // It trusts the server's authority and has another certificate.
    let mut pair = Pair::new(&other.keys_that_trust(&ca, "127.0.0.1", "client"), &server);
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    let finished = pair.answer(&flight).unwrap();
    let error = pair.serve(&finished).unwrap_err();
    assert!(matches!(error, HandshakeError::CertificateRefused(_)), "{error}");
    let alert = pair.server.flight(ROOM);
    let told = pair.answer(&alert).unwrap_err();
    assert!(matches!(told, HandshakeError::RefusedByPeer { .. }), "{told}");
    assert!(pair.server.session().is_none());
}

#[test]
fn a_server_that_asks_for_no_certificate_sees_no_identity() {
    let ca = Authority::new();
    let (client, server) = (ca.keys_without_client(), ca.keys_without_client());
    let (client, server) = Pair::new(&client, &server).sessions();
    assert_eq!(*server.identity(), PeerIdentity::Anonymous);
    assert!(matches!(client.identity(), PeerIdentity::Certificate(_)));
}

#[test]
fn the_log_names_sessions_by_the_random_of_the_client() {
    let path = folder("log").join("keys.log");
    let keys = cluster(1).key_log(&path).unwrap();
    let mut pair = Pair::new(&keys, &cluster(1));
    // A ClientHello begins with its type, its length and a version.
    let random: String =
        pair.client.flight(ROOM)[0].2[6..38].iter().map(|byte| format!("{byte:02x}")).collect();
    let hello = pair.client.flight(ROOM);
    let flight = pair.serve(&hello).unwrap();
    pair.answer(&flight).unwrap();
    let log = fs::read_to_string(&path).unwrap();
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"] {
        let found = log.lines().any(|line| line.starts_with(&format!("{label} {random} ")));
        assert!(found, "{label}: {log}");
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = cluster(1).key_log(folder("log2")).unwrap_err().to_string();
    assert!(error.contains("cannot open the key log"), "{error}");
}

#[test]
fn a_configuration_without_a_cipher_for_quic_is_refused_at_once() {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().unwrap();
    let suite = rustls::Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon { ..suite.common },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: None,
    };
    let suite: &'static rustls::Tls13CipherSuite = Box::leak(Box::new(suite));
    provider.cipher_suites = vec![suite.into()];
    let keys = Authority::new().keys_without_client_by(provider);
    let error = keys.unwrap_err().to_string();
    assert!(error.contains("cannot be used") && error.contains("cipher suite for QUIC"), "{error}");
}
