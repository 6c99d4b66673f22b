//! The text of `homa --version`: the version, and in release builds the commit.
//!
//! A build of the same sources gives the same text. A packaged crate, or a copy without its
//! repository, has the version alone; so have debug builds, which would otherwise be linked again
//! after each commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let given = |name: &str| std::env::var(name).unwrap_or_default();
    let version = given("CARGO_PKG_VERSION");
    let folder = given("CARGO_MANIFEST_DIR");
    let repository = Some(Path::new(&folder)).filter(|_| given("PROFILE") == "release");
    let commit = repository.and_then(commit);
    if let Some(log) = repository.filter(|_| commit.is_some()).and_then(log_of_commits) {
        println!("cargo:rerun-if-changed={log}");
    }
    let named = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=HOMA_VERSION={version}{named}");
}

/// The checked-out commit at `folder` in 12 digits; `None` if the crate is not in its repository.
pub fn commit(folder: &Path) -> Option<String> {
    git(folder, &["ls-files", "--error-unmatch", "build.rs"])?;
    git(folder, &["rev-parse", "--short=12", "HEAD"])
}

/// A file that changes with each commit and checkout, if git keeps one.
fn log_of_commits(folder: &Path) -> Option<String> {
    let log = git(folder, &["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    Path::new(&log).exists().then_some(log)
}

/// The output of git; `None` if there is no git, or it fails.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}
