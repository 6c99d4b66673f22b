//! `homa bench` run for real, so briefly that only shapes and promises mean something, not numbers.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::alone;
use super::runs::{MICRO, report};
use crate::common::{code, document, homa, program, stderr};
use crate::folder::Folder;
use crate::refused::without_namespaces;

/// `keys` checks the keys.
#[test]
fn micro_has_a_row_for_each_way_and_rival() {
    let _alone = alone();
    let Some(report) = report(&MICRO) else { return };
    let echo = report["echo"].as_array().expect("an array");
    for path in [
        "raw-udp-spin",
        "raw-udp-blocking",
        "tcp-spin",
        "tcp-blocking",
        "homa-inline",
        "homa-inline-sealed",
        "homa-blocking",
        "homa-default",
    ] {
        for bytes in [100, 10_000] {
            let row = echo.iter().find(|row| row["path"] == path && row["bytes"] == bytes);
            let row = row.unwrap_or_else(|| panic!("no row {path} {bytes}"));
            assert!(row["p50_us"].as_f64() > Some(0.0) && row["p99_us"].is_f64(), "{row}");
        }
    }
    // Over AF_XDP too, or it says why not.
    let xdp = echo.iter().filter(|row| row["path"] == "homa-xdp").count();
    let left_out = stderr(&MICRO).contains("homa-xdp) are left out");
    assert_eq!((xdp == 2, left_out), (!left_out, xdp == 0), "{}", stderr(&MICRO));
    let rate = report["rate"].as_array().expect("an array");
    for (peers, outstanding) in [(1, 64), (1, 256), (64, 2)] {
        for transport in ["homa", "homa-sealed", "tcp-batched"] {
            let row = rate.iter().find(|row| {
                row["transport"] == transport
                    && row["peers"] == peers
                    && row["outstanding"] == outstanding
            });
            assert!(row.is_some_and(|row| row["rpcs_per_s"].is_f64()), "{rate:?}");
        }
    }
    for transport in ["homa-pair", "homa-sharded"] {
        let rows = rate.iter().filter(|row| row["transport"] == transport && row["peers"] == 1);
        assert_eq!(rows.filter(|row| row["rpcs_per_s"].as_f64() > Some(0.0)).count(), 2);
    }
    for row in report["throughput"].as_array().expect("an array") {
        assert!(row["mb_per_s"].is_f64(), "{row}");
    }
}

/// What a rack could leave at a host: interfaces, mounts, and processes of the run's group.
fn traces(group: Option<u32>) -> (BTreeSet<OsString>, String, bool) {
    let names = |entries: fs::ReadDir| entries.map(|entry| entry.expect("an entry").file_name());
    let interfaces = names(fs::read_dir("/sys/class/net").expect("interfaces")).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let alive = |group: u32| {
        let kill = format!("kill -0 -{group} 2> /dev/null");
        Command::new("sh").args(["-c", &kill]).status().expect("a shell").success()
    };
    (interfaces, mounts, group.is_some_and(alive))
}

/// A parent process may ignore interrupts, and children inherit that.
fn interrupts_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("our status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("signals").trim(), 16).expect("a mask");
    ignored >> 1 & 1 == 1
}

#[test]
fn a_bench_that_is_ended_midway_leaves_nothing_behind() {
    let _alone = alone();
    for signal in ["INT", "TERM", "KILL"] {
        if signal == "INT" && interrupts_are_ignored() {
            skip::part("an interrupt that is not ignored, as behind a shell's &");
            continue;
        }
        let before = traces(None);
        let mut bench = program()
            .args(["bench", "--transport", "homa,tcp", "--hosts", "2", "--link", "50Mbps"])
            .args(["--anyway", "--duration", "60s"])
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let group = bench.id();
        let said = BufReader::new(bench.stderr.take().expect("a pipe"));
        let mut lines = said.lines().map(|line| line.expect("text"));
        let running = lines.any(|line| line.starts_with("homa: 1 of 2"));
        let kill = format!("kill -{signal} -{group}");
        if !running {
            // There was no rack to end.
            assert_eq!(bench.wait().expect("it ended").code(), Some(2));
            return skip::test("namespaces (see `homa doctor`)");
        }
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        assert!(!bench.wait().expect("it ended").success(), "{signal}");
        assert_eq!(traces(Some(group)), before, "{signal}");
    }
}

#[test]
fn without_namespaces_the_simulator_answers_and_says_so() {
    let _alone = alone();
    let folder = Folder::new("bench-simulated");
    let chart = folder.path("chart.svg");
    let brief = ["bench", "--hosts", "3", "--duration", "1s", "--load", "0.5", "--chart", &chart];
    let Some(output) = without_namespaces(&brief) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    for row in ["homa", "homa-flat", "tcp-classed", "tcp-pool", "tcp"] {
        let label = format!("{row} (simulated)");
        assert!(text.lines().any(|line| line.starts_with(&label)), "no {label}: {text}");
    }
    assert!(text.contains("All rows are simulated, not measured. The rack could not be"), "{text}");
    assert!(text.contains("In simulation, at 50 % load of 100 Mbit/s links, 99 % of"), "{text}");
    let drawn = fs::read_to_string(&chart).expect("a chart");
    assert!(drawn.contains("simulated: W3"), "{drawn}");
    let strict = [&brief[..], &["--strict", "--format", "json"]].concat();
    let Some(output) = without_namespaces(&strict) else { return };
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let report = document(&output);
    for row in report["transports"].as_array().expect("rows") {
        assert_eq!((&row["source"], &row["valid"]), (&"simulated".into(), &true.into()));
        assert!(row["short"]["p99_us"].is_f64() && row["cpu_us_per_rpc"].is_null(), "{row}");
    }
}

/// Uses half of a core until it is dropped.
struct HalfACore(Arc<AtomicBool>);

impl HalfACore {
    fn burn() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self(stop)
    }
}

impl Drop for HalfACore {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn beside_a_busy_process_the_readme_bench_compares_all_the_same() {
    let printed = readme_commands().into_iter().find_map(of_the_program);
    let printed = printed.expect("README has a command of the program");
    assert_eq!(printed.first(), Some(&"bench"), "README's first command measures");
    let _alone = alone();
    let _busy = HalfACore::burn();
    let folder = Folder::new("bench-busy");
    let chart = folder.path("chart.svg");
    let brief = ["--transport", "homa,tcp", "--hosts", "3", "--duration", "1s"];
    let output = homa(&[&printed[..], &brief, &["--chart", &chart]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    // With a valid row of each kind or from the simulator: no machine is left without.
    let sentence = text.lines().find(|line| line.contains("99 % of RPCs up to 1,500 B took"));
    let sentence = sentence.unwrap_or_else(|| panic!("no comparison: {text}{}", stderr(&output)));
    assert!(sentence.contains("over Homa") && sentence.contains("over one TCP"), "{sentence}");
    assert!(text.contains(&format!("Chart: {chart}")), "{text}");
    let simulated = text.contains("All rows are simulated");
    assert_eq!(sentence.starts_with("In simulation"), simulated, "{text}");
}

#[test]
fn patterns_that_cannot_be_offered_are_refused_first() {
    let _alone = alone();
    for arguments in [
        &["--hosts", "5000"][..],
        &["--buffer", "100"],
        &["--chart", "/nonexistent/bench.svg"],
        &["--incast", "5"],
        &["--fan-out", "5"],
    ] {
        let bench = [&["bench"], arguments].concat();
        let Some(output) = without_namespaces(&bench) else { return };
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && stderr(&output).contains("hint: "), "{arguments:?}");
    }
}

/// The lines of the README's shell blocks, without comments.
fn readme_commands() -> Vec<&'static str> {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.split(" #").next());
    lines.map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The arguments of a line that starts the program.
fn of_the_program(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["homa", ref printed @ ..] | ["cargo", "run", "--release", "--", ref printed @ ..] => {
            Some(printed.to_vec())
        }
        _ => None,
    }
}

/// Each line of the README's shell blocks, with the program of this build instead of one built with
/// --release.
#[test]
fn the_readme_commands_run_as_printed() {
    let mut programs = 0;
    for line in readme_commands() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            _ if of_the_program(line).is_some() => programs += 1,
            ["cargo", "xtask", task, ..] => {
                let usage = Command::new(env!("CARGO")).args(["xtask", "help"]).output();
                let usage = usage.expect("cargo is there").stdout;
                let named = format!("\n  {task} ");
                assert!(String::from_utf8_lossy(&usage).contains(&named), "no task: {line}");
            }
            ["cargo" | "pip", "install", ..] => {
                skip::part(&format!("a machine on which tests install programs: {line}"));
            }
            _ => panic!("`{line}` is tried by no test: say here how"),
        }
    }
    assert_eq!(programs, 1, "one is run beside a busy process: try the others here");
}
