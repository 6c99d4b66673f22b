//! Encrypted calls between two engines, recorded on the path and read with the log of their
//! secrets.

use std::path::{Path, PathBuf};
use std::thread;

use homa::{Config, Engine, Keys};

use super::formats::PLAIN;
use super::frames::{ETHERNET, ipv4, records, udp};
use super::{common, decoded, pcap, wireshark};
use crate::relay::relay;

/// A folder for one test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_log_of_secrets_makes_encrypted_calls_readable() {
    let folder = scratch("pcap-keylog");
    let log = folder.join("keys.log");
    let keys = Keys::cluster([9; 32]).unwrap().key_log(&log).unwrap();
    let at = "127.0.0.1:0".parse().unwrap();
    let engine = Engine::bind(at, Config::default().keys(keys.clone())).unwrap();
    let server = engine.serve().unwrap();
    let (address, recorded) = relay(server.local_addr());
    thread::spawn(move || {
        while let Some(request) = server.accept() {
            let _ = request.reply(vec![7; 20_000]);
        }
    });
    let client = Engine::bind(at, Config::default().keys(keys)).unwrap().client();
    for _ in 0..3 {
        assert_eq!(client.call(address, vec![1; 100]).unwrap().len(), 20_000);
    }
    let recorded = recorded.lock().unwrap().clone();
    let frames = recorded.iter().map(|(from_client, payload)| {
        let (side, ports) = if *from_client { (0, (33_000, 4_000)) } else { (1, (4_000, 33_000)) };
        ETHERNET.frame(&ipv4(side, 17, 5, &udp(ports.0, ports.1, payload)))
    });
    let file = PLAIN.file(1, &records(frames));
    let plain = folder.join("plain.pcap");
    let [log, written] = [&log, &plain].map(|path| path.to_str().unwrap());
    let capture = decoded(&file, &["--keylog", log, "--decrypted", written]);
    let rpcs = capture["rpcs"].as_array().unwrap();
    assert_eq!(rpcs.len(), 3, "{capture}");
    for rpc in rpcs {
        assert_eq!(
            (&rpc["request"]["length"], &rpc["response"]["length"]),
            (&100.into(), &20_000.into())
        );
        assert_eq!(rpc["client"], "10.99.0.11:33000");
    }
    assert_eq!(capture["totals"]["malformed"], serde_json::json!({}), "{}", capture["totals"]);
    // What Wireshark gets says the same, in the same packets.
    let plain = std::fs::read(plain).unwrap();
    let again = decoded(&plain, &[]);
    assert_eq!(again["totals"]["packets"], capture["totals"]["packets"]);
    assert_eq!(again["totals"]["types"], capture["totals"]["types"]);
    assert_eq!(again["rpcs"].as_array().unwrap().len(), 3, "{again}");
    wireshark::agrees("decrypted.pcap", &plain);
    let blind = decoded(&file, &[]);
    assert_eq!(blind["rpcs"].as_array().unwrap().len(), 0, "packets were readable without a log");
}

#[test]
fn a_log_without_secrets_is_an_error_that_says_so() {
    let log = scratch("pcap-no-keylog").join("keys.log");
    std::fs::write(&log, "# nothing\n").unwrap();
    let output = pcap(&PLAIN.file(1, &[]), &["--keylog", log.to_str().unwrap()]);
    assert_eq!(common::code(&output), 2);
    let told = common::stderr(&output);
    assert!(told.contains("no secrets of a session") && told.contains("--keylog"), "{told}");
}
