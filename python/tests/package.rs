//! The Python package as its users have it: pytest runs `python/tests` in a virtual environment, on
//! the library that the tests of the workspace built, so that nothing is compiled twice.
//!
//! `HOMA_PYTHON` names the environment's Python (`cargo xtask test` makes one); skipped if Python
//! or pytest is missing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python that `HOMA_PYTHON` names, or `python3`, if it has pytest; otherwise the test counts
/// as skipped.
fn python() -> Option<OsString> {
    let python = std::env::var_os("HOMA_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", "import pytest"]).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(python);
    }
    skip::test("Python with pytest (python/tests/requirements.txt; HOMA_PYTHON names it)");
    None
}

/// Copies a file, or a folder with all in it.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}

/// The package as it would be installed: its Python files, and the library under its name there.
fn installed() -> PathBuf {
    let site = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site");
    let package = site.join("homa");
    let _ = std::fs::remove_dir_all(&package);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("package/homa"), &package);
    // Cargo puts it beside this program. A copy would take 50 MB.
    let library = std::env::current_exe().unwrap().with_file_name("lib_native.so");
    std::os::unix::fs::symlink(library, package.join("_native.abi3.so")).unwrap();
    site
}

#[test]
fn pytest_passes() {
    let Some(python) = python() else { return };
    // Of a whole build of the workspace; tests that compare with it are skipped without.
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).map(|target| target.join("homa"));
    // As the tests of the C library leave them.
    let examples = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let in_c = examples.join("echo_server").is_file() && examples.join("echo_client").is_file();
    let output = Command::new(python)
        .args(["-m", "pytest", "-rs"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONPATH", installed())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .envs(program.filter(|path| path.is_file()).map(|path| ("HOMA_PROGRAM", path)))
        .envs(in_c.then_some(("HOMA_C_PROGRAMS", examples)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // pytest ends with what it could not run.
    for line in said.lines().filter_map(|line| line.strip_prefix("SKIPPED ")) {
        skip::part(line);
    }
}
