//! `--early-data`: clients that allow it, too, send calls beside the handshake.

use homa::{CallOptions, Client, Config, Keys};

use crate::common::{code, homa, stderr};
use crate::folder::Folder;
use crate::server::Server;

/// A new key file in a folder of this name.
fn key(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    let path = folder.path("cluster.key");
    let made = homa(&["key", "new", &path]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    (folder, path)
}

/// Two clients with the same tickets. Both are open, so that they have different ports: a server
/// takes nothing early from the address of a session.
fn clients(keys: &Keys) -> [Client; 2] {
    [(); 2].map(|()| Client::with(Config::default().keys(keys.clone())).unwrap())
}

/// Two clients, one after another, make two calls each.
fn call(server: &str, keys: &Keys) {
    let options = CallOptions::default().idempotent();
    let to = server.parse().unwrap();
    for client in clients(keys) {
        for _ in 0..2 {
            assert_eq!(client.call_with(to, "early", &options).unwrap(), *b"early");
        }
    }
}

#[test]
fn a_server_takes_calls_with_the_handshake_if_it_is_told() {
    let (_folder, path) = key("early-serve");
    let keys = Keys::from_file(&path).unwrap().early_data();
    for (options, early) in [(&["--early-data"][..], 1), (&[], 0)] {
        let server = Server::start(&[&["--echo", "--metrics", "--key", &path], options].concat());
        call(&server.address, &keys);
        let end = server.terminate();
        let metrics = String::from_utf8_lossy(&end.stdout).into_owned();
        for line in [
            "homa_driver_handshakes_completed_total 2\n".to_owned(),
            "homa_driver_handshakes_resumed_total 1\n".to_owned(),
            format!("homa_driver_handshakes_early_total {early}\n"),
            format!("homa_driver_early_datagrams_opened_total {early}\n"),
        ] {
            assert!(metrics.contains(&line), "{options:?}: no {line} in {metrics}");
        }
    }
}

#[test]
fn early_data_without_a_cluster_key_is_a_mistake() {
    let (_folder, path) = key("early-mistakes");
    let certificates = ["--cert", "a.crt", "--cert-key", "a.key", "--ca", "ca.crt"];
    let serve = ["serve", "--bind", "127.0.0.1:0", "--early-data"];
    for (options, said) in [
        (&[][..], "--key <FILE>"),
        (&["--plaintext"], "'--early-data' cannot be used with '--plaintext'"),
        (&certificates, "'--early-data' cannot be used with '--cert <FILE>'"),
    ] {
        let refused = homa(&[&serve, options].concat());
        assert_eq!(code(&refused), 2, "{options:?}");
        assert!(stderr(&refused).contains(said), "{options:?}: {}", stderr(&refused));
    }
    // It would have no effect.
    for command in [&["call", "127.0.0.1:9"][..], &["ping", "127.0.0.1:9"]] {
        let refused = homa(&[command, &["--key", &path, "--early-data"]].concat());
        assert_eq!(code(&refused), 2);
        assert!(stderr(&refused).contains("--early-data"), "{}", stderr(&refused));
    }
}

#[cfg(feature = "grpc")]
#[test]
fn proxies_beside_servers_take_calls_early() {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use crate::proxy::pair::proxy;

    let (_folder, path) = key("early-proxy");
    let options = ["--key", &path, "--early-data", "--metrics", "127.0.0.1:0"];
    let refused = homa(
        &[&["proxy", "--listen", "http://127.0.0.1:0", "--to", "homa://127.0.0.1:1"], &options[..]]
            .concat(),
    );
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--early-data has no effect"), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("hint: give it to the proxy beside the server"));

    let mut back = proxy("homa://127.0.0.1:0", "http://127.0.0.1:1", &options);
    let metrics = back.line("metrics at http://");
    let keys = Keys::from_file(&path).unwrap().early_data();
    let to = back.address.strip_prefix("homa://").unwrap().parse().unwrap();
    for client in clients(&keys) {
        for _ in 0..2 {
            // It is no call of gRPC, which an answer says.
            client.call_with(to, "x", &CallOptions::default().idempotent()).unwrap();
        }
    }
    let mut page = TcpStream::connect(metrics.strip_suffix("/metrics").unwrap()).unwrap();
    page.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.contains("homa_driver_handshakes_early_total 1\n"), "{text}");
    back.terminate();
}
