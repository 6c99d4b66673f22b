//! `cargo xtask test`: runs every test of the workspace, shows cargo's own output as it comes, and
//! adds up its `test result:` lines into one last line.
//!
//! Fails when a test failed, when cargo failed (a crate does not build) and when no test ran at
//! all. Left out: tests in other languages, until there are any.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Runs all tests below `repository` and reports.
pub fn run(repository: &Path) -> ExitCode {
    match cargo_test(repository) {
        Ok((tally, cargo_succeeded)) => {
            println!("{} passed, {} failed", tally.passed, tally.failed);
            if !cargo_succeeded && tally.failed == 0 {
                eprintln!("cargo test failed outside the tests: see its errors above");
            }
            if tally == Tally::default() {
                eprintln!("no test ran");
            }
            ExitCode::from(u8::from(!succeeded(tally, cargo_succeeded)))
        }
        Err(error) => {
            eprintln!("cannot run cargo: {error}; is it in PATH?");
            ExitCode::from(2)
        }
    }
}

fn succeeded(tally: Tally, cargo_succeeded: bool) -> bool {
    cargo_succeeded && tally.failed == 0 && tally.passed > 0
}

fn cargo_test(repository: &Path) -> std::io::Result<(Tally, bool)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(repository)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        let mut terminal = std::io::stdout().lock();
        // Lines by bytes: a test may print what is no UTF-8.
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            terminal.write_all(&line)?;
            terminal.write_all(b"\n")?;
            if let Some(result) = parse_result(&String::from_utf8_lossy(&line)) {
                tally.passed += result.passed;
                tally.failed += result.failed;
            }
        }
    }
    Ok((tally, child.wait()?.success()))
}

/// Reads a line such as `test result: ok. 12 passed; 0 failed; …`.
fn parse_result(line: &str) -> Option<Tally> {
    let counts = line.trim_start().strip_prefix("test result: ")?;
    let count = |what: &str| {
        let before = &counts[..counts.find(what)?];
        before.split_whitespace().last()?.parse().ok()
    };
    Some(Tally { passed: count(" passed;")?, failed: count(" failed;")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read_and_other_lines_are_not() {
        let counts = "3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.2s";
        let line = format!("test result: FAILED. 37 passed; {counts}");
        let expected = Tally { passed: 37, failed: 3 };
        assert_eq!(parse_result(&line), Some(expected));
        for other in ["", "test a ... ok", "running 4 tests", "test result: lost"] {
            assert_eq!(parse_result(other), None, "{other}");
        }
    }

    #[test]
    fn only_tests_that_ran_and_passed_are_success() {
        let tally = |passed, failed| Tally { passed, failed };
        assert!(succeeded(tally(1, 0), true));
        assert!(!succeeded(tally(1, 1), false));
        assert!(!succeeded(tally(1, 0), false), "a crate that does not build");
        assert!(!succeeded(tally(0, 0), true), "nothing ran");
    }
}
