//! `cargo xtask release --check`: what must hold before a release and takes too long for every test
//! run. Each check passes, fails, or says what this machine lacks for it; only a failure counts.
//! The last check says what is left to a person.
//!
//! Packages, the image and the wheel are those of a release: they are built once into
//! `target/packages`, installed and called, and left there to be published.
//!
//! A check that passes leaves nothing but build outputs and downloads in the target folder, which
//! the next run uses, and the lock file of `contrib/opentelemetry`, which git ignores. If a check
//! fails, its files stay for inspection until the next run replaces them.
//! Left out: what every test run checks, and the upload, which is a person's decision.

mod boot;
mod collector;
mod container;
mod crates;
mod packages;
mod previous;
mod program;
mod prometheus;
mod upload;
mod user;
mod wheels;

use std::cell::OnceCell;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::package;
use crate::process::output;

/// What a check, or a part of one, found if it did not fail.
enum Outcome {
    /// What holds.
    Passed(String),
    /// What is missing to run it here.
    Skipped(String),
    /// What only a person can do, before the upload.
    ForPerson(String),
}

/// What the checks of one run look at.
struct Candidate<'a> {
    repository: &'a Path,
    debian: OnceCell<Vec<PathBuf>>,
}

impl<'a> Candidate<'a> {
    fn new(repository: &'a Path) -> Self {
        Self { repository, debian: OnceCell::new() }
    }

    /// The Debian packages, built by the first check that needs them.
    fn debian(&self) -> io::Result<&[PathBuf]> {
        if let Some(packages) = self.debian.get() {
            return Ok(packages);
        }
        let built = package::debian_packages(self.repository)?;
        Ok(self.debian.get_or_init(|| built))
    }

    /// An error unless a program that printed its version was built as a release, from the commit
    /// that is checked out: other builds name no commit (`build.rs` of the program).
    fn expect_version(&self, printed: &str) -> io::Result<()> {
        let mut git = Command::new("git");
        git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(self.repository);
        let commit = output(&mut git)?;
        let expected = format!("homa {} ({})", package::VERSION, commit.trim());
        match printed.trim() == expected {
            true => Ok(()),
            false => Err(Error::other(format!(
                "what was installed is {:?}, and not the release {expected:?}",
                printed.trim()
            ))),
        }
    }
}

/// A check: its name, and what it does.
type Check = (&'static str, fn(&Candidate<'_>) -> io::Result<Vec<Outcome>>);

const CHECKS: [Check; 13] = [
    ("crates", |of| crates::publish(of.repository)),
    ("semver", |of| crates::compatible(of.repository)),
    ("rust-version", |of| crates::rust_version(of.repository)),
    ("advisories", |of| crates::advisories(of.repository)),
    ("wheels", |of| wheels::two_alike(of.repository)),
    ("manylinux", |of| wheels::manylinux(of.repository)),
    ("previous", |of| previous::calls(of.repository)),
    ("packages", packages::check),
    ("boot", boot::check),
    ("container", container::check),
    ("monitoring", |of| prometheus::check(of.repository)),
    ("collector", |of| collector::check(of.repository)),
    ("upload", |of| upload::left(of.repository)),
];

/// What the checks have found so far.
#[derive(Default)]
struct Findings {
    passed: usize,
    failed: usize,
    skipped: usize,
    for_person: usize,
    /// How long each check took.
    times: Vec<(&'static str, Duration)>,
}

impl Findings {
    /// Adds what a check found, and says it.
    fn add(&mut self, name: &'static str, found: io::Result<Vec<Outcome>>, took: Duration) {
        self.times.push((name, took));
        let outcomes = found.unwrap_or_else(|error| {
            println!("release: {name}: FAILED, {error}");
            self.failed += 1;
            Vec::new()
        });
        for outcome in outcomes {
            match outcome {
                Outcome::Passed(what) => {
                    println!("release: {name}: {what}");
                    self.passed += 1;
                }
                Outcome::Skipped(why) => {
                    println!("release: {name}: skipped, {why}");
                    self.skipped += 1;
                }
                Outcome::ForPerson(what) => {
                    println!("release: {name}: left to a person, {what}");
                    self.for_person += 1;
                }
            }
        }
    }

    /// The last lines: the time of each check, the room that build outputs take, and the sums.
    fn end(&self, megabytes: [u64; 2]) -> String {
        let times: Vec<_> =
            self.times.iter().map(|(name, took)| format!("{name} {}", minutes(*took))).collect();
        let total = minutes(self.times.iter().map(|(_, took)| *took).sum());
        let [before, after] = megabytes;
        format!(
            "release: took {total}: {}\nrelease: the target folder has {after} MB ({before} MB \
             before the run)\nrelease: {} passed, {} failed, {} skipped, {} left to a person",
            times.join(", "),
            self.passed,
            self.failed,
            self.skipped,
            self.for_person
        )
    }
}

/// `4 min`, or `12 s` below two minutes.
fn minutes(time: Duration) -> String {
    match time.as_secs() {
        short @ ..120 => format!("{short} s"),
        long => format!("{} min", (long + 30) / 60),
    }
}

/// The room that a folder takes, in MB; 0 if `du` cannot tell.
fn megabytes(folder: &Path) -> u64 {
    let mut du = Command::new("du");
    let said = output(du.args(["--summarize", "--block-size=1MB"]).arg(folder)).ok();
    said.and_then(|said| said.split('\t').next()?.parse().ok()).unwrap_or(0)
}

/// Runs the checks of these names, or all, and says what they found.
pub fn check(repository: &Path, names: &[&str]) -> ExitCode {
    if let Some(name) = names.iter().find(|name| !CHECKS.iter().any(|(known, _)| known == *name)) {
        let known = CHECKS.map(|(name, _)| name).join(", ");
        eprintln!("release: no check `{name}`; there are {known}");
        return ExitCode::from(2);
    }
    let target = crate::target(repository);
    let before = megabytes(&target);
    let (mut findings, candidate) = (Findings::default(), Candidate::new(repository));
    for (name, check) in CHECKS {
        if names.is_empty() || names.contains(&name) {
            let start = Instant::now();
            findings.add(name, check(&candidate), start.elapsed());
        }
    }
    println!("{}", findings.end([before, megabytes(&target)]));
    ExitCode::from(u8::from(findings.failed > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_names_every_check() {
        let usage = crate::USAGE.split_once("release       with --check").expect("the task").1;
        let checks = usage.split_once("book          ").expect("the next task").0;
        for (name, _) in CHECKS {
            let named = |word: &str| word.trim_end_matches(',') == name;
            assert!(checks.split_whitespace().any(named), "{name} is not in {checks}");
        }
    }

    #[test]
    fn only_a_release_of_this_commit_is_what_is_published() {
        let candidate = Candidate::new(crate::repository());
        let mut git = Command::new("git");
        git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(crate::repository());
        let Ok(commit) = output(&mut git) else { return skip::test("git, and a repository") };
        let version = package::VERSION;
        candidate.expect_version(&format!("homa {version} ({})\n", commit.trim())).unwrap();
        for other in [format!("homa {version}\n"), format!("homa {version} (0123456789ab)\n")] {
            let error = candidate.expect_version(&other).unwrap_err().to_string();
            assert!(error.contains("not the release"), "{error}");
        }
    }

    #[test]
    fn the_last_line_counts_every_part() {
        let mut findings = Findings::default();
        let parts = vec![Outcome::Passed("a".to_owned()), Outcome::Skipped("no b".to_owned())];
        findings.add("packages", Ok(parts), Duration::from_secs(90));
        findings.add("boot", Err(Error::other("no call")), Duration::from_secs(400));
        let steps = vec![Outcome::ForPerson("c".to_owned()), Outcome::ForPerson("d".to_owned())];
        findings.add("upload", Ok(steps), Duration::ZERO);
        let end = findings.end([100, 250]);
        let sums = "\nrelease: 1 passed, 1 failed, 1 skipped, 2 left to a person";
        assert!(end.ends_with(sums), "{end}");
        assert!(end.contains("took 8 min: packages 90 s, boot 7 min, upload 0 s\n"), "{end}");
        assert!(end.contains("has 250 MB (100 MB before the run)"), "{end}");
    }
}
