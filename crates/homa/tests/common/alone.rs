//! Runs tests again in processes of their own. A process can get its own network namespace, in
//! which the test has every privilege.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Set if the test runs in its own network namespace.
const ALONE: &str = "HOMA_TEST_ALONE";
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(120);

/// The arguments with which this program runs only one test. `test` includes its modules.
pub fn only(test: &str) -> [&str; 3] {
    ["--exact", test, "--nocapture"]
}

/// The name of the test that runs on this thread, with its modules. The harness names the thread
/// so.
pub fn this_test() -> String {
    thread::current().name().unwrap().to_owned()
}

/// A command that runs only one test of this program. `test` includes its modules.
pub fn process_of(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(only(test));
    command
}

/// Runs this test again in its own network namespace, if the system allows one.
fn in_a_network_of_its_own() {
    let tried = Command::new("unshare").args(["-Urn", "ip", "link"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip::test("user namespaces and ip (apt-get install iproute2)");
    }
    // The kernel routes to a new IPv6 address a little later. Until then it refuses packets.
    let link = "ip link set lo up && ip addr add fd00::66/64 dev lo nodad || exit; \
        until ip -6 route get fd00::66 | grep -q ^local; do sleep 0.01; done; exec \"$@\"";
    let mut again = Command::new("unshare");
    again.args(["-Urn", "sh", "-c", link, "sh"]).arg(std::env::current_exe().unwrap());
    again.args(only(&this_test())).env(ALONE, "1");
    let mut child = again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stuck = stuck(&mut child);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(stuck.is_none(), "still in a namespace: {}\n{text}", stuck.unwrap_or_default());
    assert!(output.status.success(), "in a namespace: {}\n{text}", output.status);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("1 passed"), "no test of this name: {report}");
}

/// Waits for a child. If it does not end in time, kills it and returns the state of its threads.
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

/// True if this test runs in its own network namespace. Otherwise the test has just been run again
/// in one, if the system allows it.
pub fn is_alone() -> bool {
    let alone = std::env::var_os(ALONE).is_some();
    if !alone {
        in_a_network_of_its_own();
    }
    alone
}
