//! The Python that tests use: a virtual environment in the target folder, with the packages of
//! `python/tests/requirements.txt`.
//!
//! If there is no Python or no network, nothing fails here: the tests that need it are skipped with
//! that reason.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Names the Python of the tests.
pub const VARIABLE: &str = "HOMA_PYTHON";

/// The Python to use: the one that the environment variable names, otherwise that of our virtual
/// environment, which is made and filled first. `None` if it cannot be made.
pub fn prepare(repository: &Path) -> Option<OsString> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named);
    }
    let environment = crate::target(repository).join("python");
    let python = environment.join("bin/python");
    if !python.is_file() && !run(Command::new("python3").args(["-m", "venv"]).arg(&environment)) {
        eprintln!("python3 cannot make a virtual environment (apt-get install python3-venv)");
        return None;
    }
    let list = repository.join("python/tests/requirements.txt");
    // Compiles only imported modules to bytecode.
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-compile", "--timeout", "20"]);
    install.args(["--retries", "1", "--disable-pip-version-check", "-r"]).arg(list);
    if !run(&mut install) {
        eprintln!("pip could not install the packages of python/tests/requirements.txt");
    }
    Some(python.into_os_string())
}

fn run(command: &mut Command) -> bool {
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}
