//! Tests in a network of their own, where they have every privilege.

use std::process::Command;

/// Set where the test is in a network of its own.
const ALONE: &str = "HOMA_TEST_ALONE";

/// Runs the test again in a network of its own, where there is one to be had.
fn in_a_network_of_its_own(test: &str) {
    let tried = Command::new("unshare").args(["-Urn", "ip", "link"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip::test("user namespaces and ip (apt-get install iproute2)");
    }
    let link = "ip link set lo up && ip addr add fd00::66/64 dev lo nodad && exec \"$@\"";
    let alone = ["-Urn", "sh", "-c", link, "sh"];
    // One that waits for ever shows what it said until then.
    let mut again = Command::new("timeout");
    again
        .args(["--signal=ABRT", "120", "unshare"])
        .args(alone)
        .arg(std::env::current_exe().unwrap())
        .env(ALONE, "1");
    let output = again.args(["--exact", test, "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in a namespace: {}\n{text}", output.status);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("1 passed"), "no test of this name: {report}");
}

/// True where the test is in a network of its own; else it was run again in one, if there is one.
pub fn is_alone(test: &str) -> bool {
    let alone = std::env::var_os(ALONE).is_some();
    if !alone {
        in_a_network_of_its_own(test);
    }
    alone
}
