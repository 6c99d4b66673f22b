//! `cargo xtask release --check`: what must hold before a release and takes too long for every test
//! run. Each check passes, fails, or says what this machine lacks for it; only a failure counts.
//!
//! Left out: what every test run checks, and the upload, which is a person's decision.

mod crates;
mod packages;
mod previous;
mod prometheus;
mod wheels;

use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What a check, or a part of one, found if it did not fail.
enum Outcome {
    /// What holds.
    Passed(String),
    /// What is missing to run it here.
    Skipped(String),
}

/// A check: its name, and what it does in the repository.
type Check = (&'static str, fn(&Path) -> io::Result<Vec<Outcome>>);

const CHECKS: [Check; 8] = [
    ("crates", crates::publish),
    ("rust-version", crates::rust_version),
    ("advisories", crates::advisories),
    ("wheels", wheels::two_alike),
    ("manylinux", wheels::manylinux),
    ("previous", previous::calls),
    ("packages", packages::check),
    ("monitoring", prometheus::check),
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

/// Cargo, in the repository.
pub(crate) fn cargo(repository: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository).stdin(Stdio::null());
    cargo
}

/// Whether a program is there and does what it is asked, which is not shown.
fn works(program: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command whose messages go to the terminal; an error says which one failed.
fn succeed(command: &mut Command) -> io::Result<()> {
    let status = command.status();
    let name = command.get_program().display();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::other(format!("`{name}` failed ({status}): see above"))),
        Err(error) => Err(Error::other(format!("`{name}` does not run: {error}"))),
    }
}

/// What a command prints; its messages go to the terminal.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let ran = command.stderr(Stdio::inherit()).output();
    let name = command.get_program().display();
    let ran = ran.map_err(|error| Error::other(format!("`{name}` does not run: {error}")))?;
    match ran.status.success() {
        true => String::from_utf8(ran.stdout).map_err(Error::other),
        false => Err(Error::other(format!("`{name}` failed ({}): see above", ran.status))),
    }
}
