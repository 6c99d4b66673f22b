//! The Python package as its users have it: pytest runs `python/tests` in a virtual environment, on
//! the library that the tests of the workspace built anyway, so that nothing is compiled twice.
//!
//! `HOMA_PYTHON` names the environment's Python (`cargo xtask test` makes one); skipped where
//! Python or pytest is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The package as it would be installed: its Python files, and the library under its name there.
fn installed() -> PathBuf {
    let site = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site");
    let package = site.join("homa");
    let _ = std::fs::remove_dir_all(&package);
    std::fs::create_dir_all(&package).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("package/homa");
    for file in std::fs::read_dir(source).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    // Cargo puts it beside this program.
    let library = std::env::current_exe().unwrap().with_file_name("lib_native.so");
    std::fs::copy(library, package.join("_native.abi3.so")).unwrap();
    site
}

#[test]
fn pytest_passes() {
    let python = std::env::var_os("HOMA_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", "import pytest"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip::test("Python with pytest (python/tests/requirements.txt; HOMA_PYTHON names it)");
        return;
    }
    // Of a whole build of the workspace; tests that compare with it are skipped without.
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).map(|target| target.join("homa"));
    let output = Command::new(python)
        .args(["-m", "pytest", "-rs"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PYTHONPATH", installed())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
        .envs(program.filter(|path| path.is_file()).map(|path| ("HOMA_PROGRAM", path)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // pytest ends with what it could not run.
    for line in said.lines().filter_map(|line| line.strip_prefix("SKIPPED ")) {
        skip::part(line);
    }
}
