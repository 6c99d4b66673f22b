//! `homa proxy`: a client and a server of tonic, or of any other HTTP, over TCP, with two proxies
//! between them that speak Homa.

#[cfg(feature = "grpc")]
mod calls;
#[cfg(feature = "grpc")]
mod hostile;
#[cfg(feature = "grpc")]
mod lives;
#[cfg(feature = "grpc")]
mod named;
#[cfg(feature = "grpc")]
pub mod pair;
#[cfg(feature = "grpc")]
mod web;

use crate::common::{code, homa, stderr};

#[test]
fn a_proxy_has_one_end_at_homa_or_asks_for_its_feature() {
    let proxy = |listen: &str, to: &str| homa(&["proxy", "--listen", listen, "--to", to]);
    let ends = [
        ("http://127.0.0.1:0", "http://127.0.0.1:1", "no end is Homa"),
        ("homa://127.0.0.1:0", "homa://127.0.0.1:1", "both ends are Homa"),
    ];
    for (listen, to, error) in ends {
        let output = proxy(listen, to);
        let error = if cfg!(feature = "grpc") { error } else { "--features grpc" };
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains(error), "{}", stderr(&output));
    }
    let output = proxy("127.0.0.1:7000", "homa://127.0.0.1:1");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("http://127.0.0.1:7000"), "{}", stderr(&output));
}

#[cfg(feature = "grpc")]
#[test]
fn plaintext_to_other_hosts_has_to_be_chosen() {
    let ends = [
        ["--listen", "http://127.0.0.1:0", "--to", "homa://192.0.2.1:4000"],
        ["--listen", "homa://0.0.0.0:0", "--to", "http://127.0.0.1:1"],
    ];
    for ends in ends {
        let output = homa(&[&["proxy"], &ends[..]].concat());
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--plaintext"), "{}", stderr(&output));
    }
    let ends = [
        ["--listen", "http://0.0.0.0:0", "--to", "homa://127.0.0.1:1"],
        ["--listen", "homa://127.0.0.1:0", "--to", "http://192.0.2.1:1"],
    ];
    for ends in ends {
        let output = homa(&[&["proxy"], &ends[..]].concat());
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--plain-http"), "{}", stderr(&output));
    }
}
