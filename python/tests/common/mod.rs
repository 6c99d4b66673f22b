//! What the tests of the Python package share: its interpreter, and copies of folders.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The Python that `HOMA_PYTHON` names, or `python3`, if it has this module; otherwise the test
/// counts as skipped.
pub fn python_with(module: &str) -> Option<OsString> {
    let python = std::env::var_os("HOMA_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(python);
    }
    skip::test(&format!(
        "Python with {module} (python/tests/requirements.txt; HOMA_PYTHON names it)"
    ));
    None
}

/// Copies a file, or a folder with all in it.
pub fn copy(from: &Path, to: &Path) {
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
