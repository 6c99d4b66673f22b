//! `cargo xtask test`: runs every test of the workspace, shows cargo's own output as it comes, and
//! adds up its `test result:` lines into one last line.
//!
//! Tests that could not run here (`xtask/skip`) are counted as skipped, with what each needs, and
//! not as passed. Fails when a test failed, when cargo failed (a crate does not build) and when no
//! test ran at all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::python;

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// What was left out: the test, or `part of` it, by what it needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Skipped {
    /// Whole tests.
    tests: u64,
    by_need: BTreeMap<String, Vec<String>>,
}

/// Runs all tests below `repository` and reports.
pub fn run(repository: &Path) -> ExitCode {
    let skipped = std::env::temp_dir().join(format!("homa-skipped-{}", std::process::id()));
    let outcome = std::fs::write(&skipped, "").and_then(|()| cargo_test(repository, &skipped));
    let left_out = read_skipped(&std::fs::read_to_string(&skipped).unwrap_or_default());
    let _ = std::fs::remove_file(&skipped);
    match outcome {
        Ok((counted, cargo_succeeded)) => {
            let tally = take_out(counted, &left_out);
            print_skipped(&left_out);
            if !cargo_succeeded && tally.failed == 0 {
                eprintln!("cargo test failed outside the tests: see its errors above");
            }
            if counted == Tally::default() {
                eprintln!("no test ran");
            }
            let Tally { passed, failed, skipped } = tally;
            println!("{passed} passed, {failed} failed, {skipped} skipped");
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

/// The harness counts a test that left at once as passed.
fn take_out(counted: Tally, left_out: &Skipped) -> Tally {
    Tally {
        passed: counted.passed.saturating_sub(left_out.tests),
        skipped: counted.skipped + left_out.tests,
        ..counted
    }
}

fn print_skipped(left_out: &Skipped) {
    if !left_out.by_need.is_empty() {
        println!("\nnot run on this machine:");
    }
    for (need, tests) in &left_out.by_need {
        println!("  {need}");
        tests.iter().for_each(|test| println!("    {test}"));
    }
}

/// Lines of `xtask/skip`: extent, program, test, need.
fn read_skipped(text: &str) -> Skipped {
    let mut skipped = Skipped::default();
    let mut whole = std::collections::BTreeSet::new();
    for line in text.lines() {
        let mut fields = line.splitn(4, '\t');
        let mut field = || fields.next().unwrap_or_default();
        let (extent, program, test, need) = (field(), field(), field(), field());
        // The file's name ends with a hash of how it was built.
        let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
        let name = match test {
            "main" => program.to_owned(),
            test => format!("{program}: {test}"),
        };
        let name = match extent {
            "part" => format!("part of {name}"),
            _ => {
                // A program without harness counts its own.
                if test != "main" && whole.insert(name.clone()) {
                    skipped.tests += 1;
                }
                name
            }
        };
        let tests: &mut Vec<String> = skipped.by_need.entry(need.to_owned()).or_default();
        if !tests.contains(&name) {
            tests.push(name);
        }
    }
    skipped
}

fn cargo_test(repository: &Path, skipped: &PathBuf) -> std::io::Result<(Tally, bool)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args([
            "test",
            "--workspace",
            "--no-fail-fast",
            "--features",
            "homa/tower,homa/metrics-http",
        ])
        .current_dir(repository)
        .env(skip::FILE, skipped)
        .envs(python::prepare(repository).map(|python| (python::VARIABLE, python)))
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
                tally.skipped += result.skipped;
            }
        }
    }
    Ok((tally, child.wait()?.success()))
}

/// Reads a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
fn parse_result(line: &str) -> Option<Tally> {
    let counts = line.trim_start().strip_prefix("test result: ")?;
    let count = |what: &str| {
        let before = &counts[..counts.find(what)?];
        before.split_whitespace().last()?.parse().ok()
    };
    Some(Tally {
        passed: count(" passed;")?,
        failed: count(" failed;")?,
        skipped: count(" ignored;")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read_and_other_lines_are_not() {
        let counts = "3 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.2s";
        let line = format!("test result: FAILED. 37 passed; {counts}");
        let expected = Tally { passed: 37, failed: 3, skipped: 2 };
        assert_eq!(parse_result(&line), Some(expected));
        for other in ["", "test a ... ok", "running 4 tests", "test result: lost"] {
            assert_eq!(parse_result(other), None, "{other}");
        }
    }

    #[test]
    fn only_tests_that_ran_and_passed_are_success() {
        let tally = |passed, failed| Tally { passed, failed, skipped: 1 };
        assert!(succeeded(tally(1, 0), true));
        assert!(!succeeded(tally(1, 1), false));
        assert!(!succeeded(tally(1, 0), false), "a crate that does not build");
        assert!(!succeeded(tally(0, 0), true), "nothing ran");
    }

    #[test]
    fn skipped_tests_are_no_passed_ones_and_parts_of_tests_are_named_only() {
        let text = "test\twireshark-0a1b\tfields_agree\ttshark\n\
                    test\twireshark-0a1b\tfields_agree\ttshark\n\
                    part\tprograms-77\tthreads\tvalgrind\n\
                    test\traw_ip-3\tmain\tnamespaces\n";
        let skipped = read_skipped(text);
        assert_eq!(skipped.tests, 1);
        assert_eq!(skipped.by_need["tshark"], ["wireshark: fields_agree"]);
        assert_eq!(skipped.by_need["valgrind"], ["part of programs: threads"]);
        assert_eq!(skipped.by_need["namespaces"], ["raw_ip"]);
        let counted = Tally { passed: 10, failed: 0, skipped: 5 };
        assert_eq!(take_out(counted, &skipped), Tally { passed: 9, failed: 0, skipped: 6 });
    }
}
