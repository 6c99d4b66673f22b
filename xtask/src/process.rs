//! Commands that the tasks run: cargo, programs that may be missing, and those that must succeed.
//! Also removes folders before they are made anew.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, Stdio};

/// Cargo, in the repository, without input.
pub fn cargo(repository: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository).stdin(Stdio::null());
    cargo
}

/// Whether a program is there and does what it is asked, which is not shown.
pub fn works(program: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a program is installed, which has to know `--version`.
pub fn there(program: &str) -> bool {
    works(Path::new(program), &["--version"])
}

/// Whether this is root.
pub fn is_root() -> bool {
    works(Path::new("sh"), &["-c", "test \"$(id -u)\" = 0"])
}

/// Removes a folder with all that is in it, if there is one.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Runs a command whose messages go to the terminal; an error says which one failed.
pub fn succeed(command: &mut Command) -> io::Result<()> {
    let status = command.status();
    let name = command.get_program().display();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::other(format!("`{name}` failed ({status}): see above"))),
        Err(error) => Err(Error::other(format!("`{name}` does not run: {error}"))),
    }
}

/// What a command prints; its messages go to the terminal.
pub fn output(command: &mut Command) -> io::Result<String> {
    let ran = command.stderr(Stdio::inherit()).output();
    let name = command.get_program().display();
    let ran = ran.map_err(|error| Error::other(format!("`{name}` does not run: {error}")))?;
    match ran.status.success() {
        true => String::from_utf8(ran.stdout).map_err(Error::other),
        false => {
            // Some programs say here what is wrong.
            eprint!("{}", String::from_utf8_lossy(&ran.stdout));
            Err(Error::other(format!("`{name}` failed ({}): see above", ran.status)))
        }
    }
}
