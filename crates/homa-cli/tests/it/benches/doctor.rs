//! `homa doctor`, which tries a rack.

use std::process::Output;
use std::sync::LazyLock;

use serde_json::json;

use super::alone;
use crate::common::{code, document, homa, keys, stderr};
use crate::json::check;

/// What `homa doctor` prints about this machine and the way to itself. It tries a rack, which takes
/// seconds and both cores, so that all tests read the same report.
static DOCTOR: LazyLock<Output> = LazyLock::new(|| {
    let _alone = alone();
    homa(&["doctor", "--peer", "127.0.0.1", "--format", "json"])
});

#[test]
fn doctor_says_for_each_probe_what_follows() {
    assert!([0, 1].contains(&code(&DOCTOR)), "{}", stderr(&DOCTOR));
    let report = document(&DOCTOR);
    assert_eq!(keys(&report), ["checks", "links"]);
    let checks = report["checks"].as_array().expect("an array");
    let names: Vec<_> = checks.iter().filter_map(|c| c["name"].as_str()).collect();
    for probe in ["cores", "namespaces", "udp", "udp gso", "udp gro", "receive buffer", "tcp"] {
        assert!(names.contains(&probe), "{probe} is missing in {names:?}");
    }
    for check in checks {
        assert!(check["consequence"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        let fine = check["status"] == "ok";
        assert!(fine || check["remedy"].is_string(), "no remedy in {check}");
    }
}

#[test]
fn doctor_names_the_link_to_a_peer_and_no_rate_of_loopback() {
    let links = document(&DOCTOR)["links"].clone();
    if links.as_array().is_some_and(Vec::is_empty) {
        return skip::test("netlink");
    }
    assert_eq!(links.as_array().map(Vec::len), Some(1), "{links}");
    let link = &links[0];
    assert_eq!((&link["interface"], &link["kind"]), (&"lo".into(), &"loopback".into()));
    assert_eq!((&link["certainty"], link["rate_gbps"].is_null()), (&"unlimited".into(), true));
}

#[test]
fn the_keys_of_doctor_are_those_of_the_reference() {
    // A machine without any fault has no remedy to show.
    let fine = json!({ "checks": [{ "remedy": "" }] });
    check("## homa doctor", &[document(&DOCTOR), fine]);
}
