//! Tests in a network of their own, where they have every privilege.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Set where the test is in a network of its own.
const ALONE: &str = "HOMA_TEST_ALONE";
/// Only reached when something is broken.
const GIVE_UP: Duration = Duration::from_secs(120);

/// Runs the test again in a network of its own, where there is one to be had.
fn in_a_network_of_its_own(test: &str) {
    let tried = Command::new("unshare").args(["-Urn", "ip", "link"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip::test("user namespaces and ip (apt-get install iproute2)");
    }
    // The kernel routes to a new address of IPv6 a little later; until then it refuses packets.
    let link = "ip link set lo up && ip addr add fd00::66/64 dev lo nodad || exit; \
        until ip -6 route get fd00::66 | grep -q ^local; do sleep 0.01; done; exec \"$@\"";
    let mut again = Command::new("unshare");
    again.args(["-Urn", "sh", "-c", link, "sh"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    let mut child = again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stuck = stuck(&mut child);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(stuck.is_none(), "still in a namespace: {}\n{text}", stuck.unwrap_or_default());
    assert!(output.status.success(), "in a namespace: {}\n{text}", output.status);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("1 passed"), "no test of this name: {report}");
}

/// Waits for a child; where one that waits for ever is, and has been ended.
fn stuck(child: &mut Child) -> Option<String> {
    let end = Instant::now() + GIVE_UP;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= end {
            let threads = format!("/proc/{}/task", child.id());
            let threads = fs::read_dir(threads).into_iter().flatten().flatten();
            let places = threads.map(|thread| {
                let read = |what| fs::read_to_string(thread.path().join(what)).unwrap_or_default();
                ["comm", "stat", "syscall", "wchan", "stack"].map(read).join(" ")
            });
            let places = places.collect::<Vec<_>>().join("\n");
            child.kill().unwrap();
            return Some(places);
        }
        sleep(Duration::from_millis(10));
    }
    None
}

/// True where the test is in a network of its own; else it was run again in one, if there is one.
pub fn is_alone(test: &str) -> bool {
    let alone = std::env::var_os(ALONE).is_some();
    if !alone {
        in_a_network_of_its_own(test);
    }
    alone
}
