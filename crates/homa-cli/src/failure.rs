//! How a command ends: a verdict, or a failure that says what to do next.

use std::fmt;
use std::io;

use homa_lab::error::short_numbers;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use crate::pages::located;

/// The end of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Passed,
    /// Exit code 1: the work was done and a check on its result failed.
    CheckFailed,
}

/// A usage or environment error: exit code 2.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: String,
}

/// The result of every command.
pub type Outcome = Result<Verdict, Failure>;

impl Failure {
    /// A failure with its remedy. If the process has as many files open as it may, that is to be
    /// remedied, whatever was tried.
    pub fn new(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        let error = error.into();
        let hint = descriptors(&error).unwrap_or_else(|| hint.into());
        Self { error, hint }
    }

    /// The program was built without the feature `grpc`, and a command needs it.
    pub fn without_grpc(command: &str) -> Self {
        let error = anyhow::anyhow!(
            "this program was built without the feature `grpc`, which {command} needs"
        );
        Self::new(error, HOW_TO_GET_GRPC)
    }
}

/// How to get a program with the feature `grpc`.
const HOW_TO_GET_GRPC: &str = "the Debian package and the container image have it; in a clone of \
                               the repository, run `cargo install --locked --path \
                               crates/homa-cli --features grpc`";

/// What to do about a limit of open files; `None` if that is not the reason.
fn descriptors(error: &anyhow::Error) -> Option<String> {
    let codes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let codes = codes.filter_map(io::Error::raw_os_error).map(Errno::from_raw);
    match codes.last()? {
        Errno::EMFILE => {
            let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
            Some(format!("this process may have {limit} files open: raise that (`ulimit -n`)"))
        }
        Errno::ENFILE => Some("all files that the system may open are: raise fs.file-max".into()),
        _ => None,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.error.to_string();
        // Many errors quote their cause themselves.
        for cause in self.error.chain().skip(1).map(ToString::to_string) {
            if !said.contains(&cause) {
                said = format!("{said}: {cause}");
            }
        }
        write!(f, "error: {}\nhint: {}", located(&short_numbers(&said)), located(&self.hint))
    }
}

/// Attaches the `hint:` line to an error on its way out.
pub trait Hint<T> {
    /// Turns an error into a [`Failure`] that ends with `hint`.
    fn hint(self, hint: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(error, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_open_files_is_the_remedy_of_what_it_stopped() {
        let error = io::Error::from_raw_os_error(Errno::EMFILE as i32);
        let error = anyhow::Error::from(error).context("could not bind 127.0.0.1:4000");
        let shown = Failure::new(error, "choose another port").to_string();
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let hint =
            format!("\nhint: this process may have {limit} files open: raise that (`ulimit -n`)");
        assert!(shown.ends_with(&hint), "{shown}");
    }

    #[test]
    fn the_remedy_for_a_program_without_grpc_is_that_of_the_pages() {
        let shown = Failure::without_grpc("`homa proxy`").to_string();
        let command = shown.rsplit_once("run `").and_then(|(_, rest)| rest.strip_suffix('`'));
        let command = command.expect("a command at the end");
        for page in [
            include_str!("../../../docs/operating/install.md"),
            include_str!("../../../docs/guide/proxy.md"),
        ] {
            assert!(page.contains(command), "no `{command}` there");
        }
    }

    #[test]
    fn a_failure_shows_its_causes_and_ends_with_the_hint() {
        let error = anyhow::anyhow!("address in use").context("could not bind 127.0.0.1:4000");
        let failure = Failure::new(error, "choose another port");
        assert_eq!(
            failure.to_string(),
            "error: could not bind 127.0.0.1:4000: address in use\nhint: choose another port"
        );
    }
}
