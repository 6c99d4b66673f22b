//! `cargo xtask release --check`: what must hold before a release and takes too long for every test
//! run. Each check passes, fails, or says what this machine lacks for it; only a failure counts.
//!
//! Left out: what every test run checks, and the upload, which is a person's decision.

mod boot;
mod collector;
mod container;
mod crates;
mod packages;
mod previous;
mod prometheus;
mod server;
mod wheels;

use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What a check, or a part of one, found if it did not fail.
enum Outcome {
    /// What holds.
    Passed(String),
    /// What is missing to run it here.
    Skipped(String),
}

/// A check: its name, and what it does in the repository.
type Check = (&'static str, fn(&Path) -> io::Result<Vec<Outcome>>);

const CHECKS: [Check; 11] = [
    ("crates", crates::publish),
    ("rust-version", crates::rust_version),
    ("advisories", crates::advisories),
    ("wheels", wheels::two_alike),
    ("manylinux", wheels::manylinux),
    ("previous", previous::calls),
    ("packages", packages::check),
    ("boot", boot::check),
    ("container", container::check),
    ("monitoring", prometheus::check),
    ("collector", collector::check),
];

/// Runs the checks of these names, or all, and says what they found.
pub fn check(repository: &Path, names: &[&str]) -> ExitCode {
    if let Some(name) = names.iter().find(|name| !CHECKS.iter().any(|(known, _)| known == *name)) {
        let known = CHECKS.map(|(name, _)| name).join(", ");
        eprintln!("release: no check `{name}`; there are {known}");
        return ExitCode::from(2);
    }
    let mut failed = false;
    for (name, check) in CHECKS {
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        match check(repository) {
            Ok(outcomes) => outcomes.iter().for_each(|outcome| match outcome {
                Outcome::Passed(what) => println!("release: {name}: {what}"),
                Outcome::Skipped(why) => println!("release: {name}: skipped, {why}"),
            }),
            Err(error) => {
                eprintln!("release: {name}: FAILED, {error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
