//! The results in a test program's output: its totals, and why tests failed or were skipped.
//!
//! Rust's harness counts a test that could not run here (`xtask/skip`) as passed; here it counts as
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The sum of the totals in what test programs print, `test result: ok. 12 passed; 0 failed; …`.
pub fn totals(output: &str) -> Tally {
    let mut sum = Tally::default();
    output.lines().filter_map(total).for_each(|total| sum += total);
    sum
}

fn total(line: &str) -> Option<Tally> {
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

/// The part of a program's output that is about failures: what failed tests printed. Everything if
/// there is no such part, for example because the program crashed.
pub fn failures(output: &str) -> &str {
    output.find("\nfailures:\n").map_or(output, |start| &output[start..])
}

/// Skipped tests, or parts of tests (`part of` a name), by what they need.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    by_need: BTreeMap<String, Vec<String>>,
}

impl Skipped {
    /// Reads lines of `xtask/skip` (extent, program, test, need) that the tests of a crate wrote.
    /// Returns how many whole tests they are.
    pub fn add(&mut self, crate_name: &str, lines: &str) -> u64 {
        let mut whole = BTreeSet::new();
        for line in lines.lines() {
            let mut fields = line.splitn(4, '\t');
            let mut field = || fields.next().unwrap_or_default();
            let (extent, program, test, need) = (field(), field(), field(), field());
            // The file's name ends with a hash of how it was built.
            let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
            let test = match test {
                "main" => program,
                test => test,
            };
            let name = match extent {
                "part" => format!("part of {crate_name}: {test}"),
                _ => format!("{crate_name}: {test}"),
            };
            // A program without harness counts its own.
            if extent == "test" && test != program {
                whole.insert(name.clone());
            }
            let tests = self.by_need.entry(need.to_owned()).or_default();
            if !tests.contains(&name) {
                tests.push(name);
            }
        }
        whole.len() as u64
    }

    /// Prints the reason for each skip.
    pub fn print(&self) {
        if !self.by_need.is_empty() {
            println!("\nskipped, because this machine lacks what is named:");
        }
        for (need, tests) in &self.by_need {
            println!("  {need}");
            tests.iter().for_each(|test| println!("    {test}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up_and_other_lines_are_not() {
        let counts = "3 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.2s";
        let lines = format!("test result: FAILED. 37 passed; {counts}\ntest a ... ok\nrunning 4\n");
        let expected = Tally { passed: 37, failed: 3, skipped: 2 };
        assert_eq!(totals(&lines), expected);
        let twice = Tally { passed: 74, failed: 6, skipped: 4 };
        assert_eq!(totals(&format!("{lines}\ntest result: lost\n{lines}")), twice);
        assert_eq!(totals("test result: lost"), Tally::default());
    }

    #[test]
    fn of_a_failed_run_what_failed_tests_printed_is_shown() {
        let output = "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nno\n";
        assert_eq!(failures(output), "\nfailures:\n\n---- a stdout ----\nno\n");
        assert_eq!(failures("running 1 test\nAborted"), "running 1 test\nAborted");
    }

    #[test]
    fn skipped_tests_count_once_and_parts_are_only_named() {
        let text = "test\tit-0a1b\tpcap::fields_agree\ttshark\n\
                    test\tit-0a1b\tpcap::fields_agree\ttshark\n\
                    part\tit-0a1b\tthreads\tvalgrind\n\
                    test\traw_ip-3\tmain\tnamespaces\n";
        let mut skipped = Skipped::default();
        assert_eq!(skipped.add("homa-cli", text), 1);
        assert_eq!(skipped.by_need["tshark"], ["homa-cli: pcap::fields_agree"]);
        assert_eq!(skipped.by_need["valgrind"], ["part of homa-cli: threads"]);
        assert_eq!(skipped.by_need["namespaces"], ["homa-cli: raw_ip"]);
    }
}
