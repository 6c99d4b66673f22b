//! The test vectors of docs/encryption-vectors.txt: computed again, opened with [`RecordedKeys`],
//! and verified by Python's `cryptography`, which shares no code with ours. The same checks run
//! over a handshake of today. `HOMA_WRITE_VECTORS=1` writes the file anew.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::KeyPair as _;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::quic::Version;

use super::*;
use crate::secure::identity;
use crate::secure::recorded::Cipher;
use crate::secure::session::KeyLimits;

const PAGE: &str = "docs/encryption-vectors.txt";

const HEAD: &str = "\
# Test vectors of docs/encryption.md: a name and hexadecimal digits a line.
# `HOMA_WRITE_VECTORS=1 cargo test -p homa-rpc --lib vectors` writes them anew.
";

/// The connection id of RFC 9001 §A, and the client's secret that follows from it.
const CONNECTION: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
const SECRET: &str = "c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea";

/// The cluster secret 01 02 … 20.
fn secret() -> [u8; 32] {
    std::array::from_fn(|index| index as u8 + 1)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// The header of a sealed datagram: version 1, the phase in bit 1 of the flags, no extensions, key
/// id, number.
fn header(key: u32, number: u64, phase: bool) -> Vec<u8> {
    let mut header = vec![1, u8::from(phase) << 1, 0, 0];
    header.extend(key.to_be_bytes());
    header.extend(number.to_be_bytes());
    header
}

/// The identity of a cluster secret, and datagrams sealed by rustls with a given secret.
fn computed() -> String {
    let pair = identity::key_pair(&secret()).unwrap();
    let seed = pair.seed().unwrap().as_be_bytes().unwrap();
    let mut text = format!(
        "\n[identity]\ncluster_secret {}\nseed {}\npublic_key {}\n",
        hex(&secret()),
        hex(seed.as_ref()),
        hex(pair.public_key().as_ref())
    );
    for (code, suite) in
        [(0x1301, TLS13_AES_128_GCM_SHA256), (0x1303, TLS13_CHACHA20_POLY1305_SHA256)]
    {
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        let keys = suite.keys(&CONNECTION, Side::Client, Version::V1);
        let (number, aad) = (0x1_0000_002a, header(SERVER_KEY, 0x1_0000_002a, false));
        let plaintext = b"Homa packets, as docs/udp-encapsulation.md lays them out.";
        let mut sealed = plaintext.to_vec();
        let tag = keys.local.packet.encrypt_in_place(number, &aad, &mut sealed).unwrap();
        let cipher = Cipher::new(code).unwrap();
        let length = if code == 0x1301 { 16 } else { 32 };
        let expand = |label, length| hex(&cipher.expand(&bytes(SECRET), label, length).unwrap());
        let _ = write!(
            text,
            "\n[packet]\ncipher_suite {code:04x}\nsecret {SECRET}\nkey {}\niv {}\n\
             next_secret {}\nheader {}\nplaintext {}\nsealed {}{}\n",
            expand("quic key", length),
            expand("quic iv", 12),
            hex(&cipher.updated(&bytes(SECRET)).unwrap()),
            hex(&aad),
            hex(plaintext),
            hex(&sealed),
            hex(tag.as_ref()),
        );
    }
    text
}

/// A handshake as it travelled, and some datagrams with two changes of keys, with the log of its
/// secrets.
fn recorded() -> String {
    let name = format!("homa-vectors-{}-{:?}", std::process::id(), std::thread::current().id());
    let log = std::env::temp_dir().join(name);
    let keys = Keys::cluster(secret()).unwrap().key_log(&log).unwrap();
    let mut pair = Pair::new(&keys, &Keys::cluster(secret()).unwrap());
    let mut text = format!("\n[handshake]\ncluster_secret {}\n", hex(&secret()));
    let mut flight = pair.client.flight(ROOM);
    for turn in 0..4 {
        let from = if turn % 2 == 0 { "client" } else { "server" };
        for (level, offset, bytes) in &flight {
            let level = if *level == Level::Initial { "initial" } else { "handshake" };
            let _ = writeln!(text, "{from}_{level} {offset:08x} {}", hex(bytes));
        }
        flight = if turn % 2 == 0 { pair.serve(&flight) } else { pair.answer(&flight) }.unwrap();
    }
    let (mut client, mut server) = pair.sessions();
    client.set_limits(KeyLimits { update: 2, sealed: 100, forged: 100 });
    for round in 0..6_u8 {
        for (from, name) in [(true, "client"), (false, "server")] {
            let (from, to) =
                if from { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let (number, phase) = from.next().unwrap();
            let header =
                header(if name == "client" { SERVER_KEY } else { CLIENT_KEY }, number, phase);
            let mut payload = [&[round; 20][..], &[0; TAG]].concat();
            from.seal(number, &header, &mut payload).unwrap();
            let _ = writeln!(text, "{name}_datagram {}{}", hex(&header), hex(&payload));
            to.open(number, phase, &header, &mut payload).unwrap();
        }
    }
    for line in fs::read_to_string(&log).unwrap().lines() {
        let _ = writeln!(text, "{}", line.to_lowercase());
    }
    let _ = fs::remove_file(&log);
    text
}

/// A request as early data of the next handshake, and the secret of its key.
fn early_data() -> String {
    let name =
        format!("homa-vectors-early-{}-{:?}", std::process::id(), std::thread::current().id());
    let log = std::env::temp_dir().join(name);
    let keys = || Keys::cluster(secret()).unwrap().early_data();
    let (client, server) = (keys().key_log(&log).unwrap(), keys());
    Pair::new(&client, &server).sessions();
    let mut pair = Pair::new(&client, &server);
    let hello: Vec<u8> = pair.client.flight(ROOM).into_iter().flat_map(|(.., part)| part).collect();
    let datagram = [header(0, 1, false), b"a request".to_vec()].concat();
    let (_, _, fragment) = pair.client.seal_early(&datagram).unwrap();
    let read = fs::read_to_string(&log).unwrap();
    let _ = fs::remove_file(&log);
    let line = read.lines().find_map(|line| line.strip_prefix("CLIENT_EARLY_TRAFFIC_SECRET "));
    let (random, secret) = line.unwrap().split_once(' ').unwrap();
    assert_eq!(random, hex(&hello[6..38]));
    let suite = if Keys::preferred_cipher() == "AES-128-GCM" { "1301" } else { "1303" };
    format!(
        "\n[early_data]\ncipher_suite {suite}\nclient_hello {}\nsecret {secret}\nfragment {}\n\
         plaintext {}\n",
        hex(&hello),
        hex(&fragment),
        hex(&datagram)
    )
}

/// The values of a name in a section.
fn all<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

/// Opens all that was sealed in a recorded handshake with our reader of key logs.
fn read(handshake: &str) {
    let mut opened = 0;
    for side in ["client", "server"] {
        let secret = |name: &str| {
            let line = all(handshake, &format!("{side}_{name}"));
            bytes(line[0].split(' ').nth(1).unwrap())
        };
        let hello = all(handshake, "server_initial")[0].split(' ').nth(1).unwrap();
        // Type, length, version and random; QUIC has no session id.
        let suite = u16::from_str_radix(&hello[78..82], 16).unwrap();
        let keys = RecordedKeys::new(suite, &secret("handshake_traffic_secret")).unwrap();
        for line in all(handshake, &format!("{side}_handshake")) {
            let (offset, fragment) = line.split_once(' ').unwrap();
            let offset = u32::from_str_radix(offset, 16).unwrap();
            assert!(keys.open_fragment(offset, &bytes(fragment)).is_some(), "{side} {offset}");
            assert!(keys.open_fragment(offset ^ 1, &bytes(fragment)).is_none());
            opened += 1;
        }
        let mut keys = RecordedKeys::new(suite, &secret("traffic_secret_0")).unwrap();
        for (round, line) in (0_u8..).zip(all(handshake, &format!("{side}_datagram"))) {
            let mut datagram = bytes(line);
            let (aad, payload) = datagram.split_at_mut(16);
            let number = u64::from_be_bytes(aad[8..].try_into().unwrap());
            let length = keys.open(number, aad[1] & 2 != 0, aad, payload).unwrap();
            assert_eq!(payload[..length], [round; 20]);
            opened += 1;
        }
    }
    assert!(opened >= 2 + 12, "{opened} fragments and datagrams");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The file, written anew if asked for.
fn page() -> String {
    let path = repository().join(PAGE);
    if std::env::var_os("HOMA_WRITE_VECTORS").is_some() {
        fs::write(&path, [HEAD, &computed(), &recorded(), &early_data()].concat()).unwrap();
    }
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_vectors_are_what_the_code_computes() {
    let page = page();
    let (fixed, handshake) = page.split_once("\n[handshake]").unwrap();
    assert_eq!(
        fixed.to_owned(),
        [HEAD, &computed()].concat().trim_end_matches('\n').to_owned() + "\n"
    );
    // RFC 9001 §A.1 derives the same key and IV.
    assert!(fixed.contains("\nkey 1f369613dd76d5467730efcbe3b1a22d\n"));
    assert!(fixed.contains("\niv fa044b2f42a3fd3b46fb255c\n"));
    let (handshake, early) = handshake.split_once("\n[early_data]").unwrap();
    read(handshake);
    read(&recorded());
    open_early(early);
    open_early(&early_data());
}

/// Opens early data with our reader of key logs.
fn open_early(text: &str) {
    let value = |name| bytes(all(text, name)[0]);
    let suite = u16::from_be_bytes(value("cipher_suite").try_into().unwrap());
    let keys = RecordedKeys::new(suite, &value("secret")).unwrap();
    assert_eq!(keys.open_fragment(0, &value("fragment")), Some(value("plaintext")));
    assert_eq!(keys.open_fragment(1, &value("fragment")), None);
}

/// Python with `cryptography`, if there is one.
fn python() -> Option<OsString> {
    let python = std::env::var_os("HOMA_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", "import cryptography"]).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(python);
    }
    skip::test("Python with cryptography (pip install cryptography; HOMA_PYTHON names it)");
    None
}

#[test]
fn python_verifies_the_vectors_and_a_handshake_of_today() {
    let Some(python) = python() else { return };
    let today = std::env::temp_dir().join(format!("homa-vectors-today-{}", std::process::id()));
    fs::write(&today, [HEAD, &computed(), &recorded(), &early_data()].concat()).unwrap();
    for path in [&repository().join(PAGE), &today] {
        let mut verify = Command::new(&python);
        verify.args(["-c", include_str!("verify.py")]).arg(path);
        let output = verify.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.starts_with("verified: 2 packets"),
            "{said}{wrong}"
        );
    }
    let _ = fs::remove_file(today);
}
