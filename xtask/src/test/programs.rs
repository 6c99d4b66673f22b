//! The workspace's test programs: cargo builds them all at once and names them; each is then run in
//! its crate's folder, as `cargo test` does.
//!
//! Left out: examples and benches, which clippy compiles and no test runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::process::cargo;

/// The features that no crate of the workspace turns on by itself and that have tests.
pub const FEATURES: [&str; 2] = [
    "--features",
    "homa-rpc/srv,homa-rpc/testing,homa-rpc/tower,homa-rpc/metrics-http,homa-rpc/opentelemetry,\
     homa-rpc-cli/grpc",
];

/// What may run beside tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suits {
    /// They wait for deadlines and timers of real sockets, and compute little. Beside them run
    /// tests that compute, which give way to them.
    Waiting,
    /// They compute, with the least priority.
    Computing,
    /// They keep both processors busy, or measure in real time. Nothing runs beside them.
    Alone,
    /// They run racks with links so slow that their claims hold beside tests that make calls.
    Racks,
    /// They make calls that end in time beside racks.
    BesideRacks,
}

/// How many tests a program runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// The module of `homa-cli`'s tests that run benches, in a process apart from its other tests.
const BENCHES: &str = "benches::";

/// The tests of a program that one process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    Whole,
    Benches,
    AllButBenches,
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// The folder of its crate.
    pub folder: PathBuf,
    pub executable: PathBuf,
    pub share: Share,
}

impl Program {
    /// The crate's name: that of its folder.
    pub fn crate_name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The name under which its tests are counted.
    pub fn name(&self) -> String {
        let benches = if self.share == Share::Benches { " benches" } else { "" };
        self.crate_name() + benches
    }

    /// The processes that run its tests.
    fn parts(self) -> Vec<Self> {
        let shares: &[Share] = if self.crate_name() == "homa-cli" && self.is_integration() {
            &[Share::Benches, Share::AllButBenches]
        } else {
            &[Share::Whole]
        };
        shares.iter().map(|share| Self { share: *share, ..self.clone() }).collect()
    }

    /// What may run beside it.
    pub fn suits(&self) -> Suits {
        match self.crate_name().as_str() {
            "homa-cli" if self.share == Share::Benches => Suits::Alone,
            "homa" | "homa-capi" | "homa-cli" | "homa-tonic" => Suits::Waiting,
            "homa-testbed" => Suits::Racks,
            "python" => Suits::BesideRacks,
            _ => Suits::Computing,
        }
    }

    /// The words that choose its tests.
    fn filter(&self) -> &[&str] {
        match self.share {
            Share::Whole => &[],
            Share::Benches => &[BENCHES],
            Share::AllButBenches => &["--skip", BENCHES],
        }
    }

    /// How many of its tests run at a time, if not as many as there are processors. For sockets and
    /// processes that wait: on two processors, eight at a time take 44 s instead of 75 for `homa`.
    fn threads(&self) -> Option<&'static str> {
        match (self.crate_name().as_str(), self.suits()) {
            ("homa", _) if self.is_integration() => Some("8"),
            ("homa", _) | ("homa-cli", Suits::Waiting) => Some("4"),
            _ => None,
        }
    }

    /// True of the program of a crate's integration tests (`tests/it/`).
    fn is_integration(&self) -> bool {
        let name = self.executable.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("it-")
    }

    /// Runs all its tests; what it prints is added to `log`.
    pub fn run(&self, log: &File, variables: &[(&str, &Path)]) -> io::Result<ExitStatus> {
        let mut program = if self.suits() == Suits::Computing {
            giving_way(&self.executable)
        } else {
            Command::new(&self.executable)
        };
        if let Some(threads) = self.threads()
            && std::env::var_os(THREADS).is_none()
        {
            program.env(THREADS, threads);
        }
        program.args(self.filter());
        program
            .current_dir(&self.folder)
            // Otherwise that of this program.
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .status()
    }
}

/// A program that runs while no other one needs the processors.
fn giving_way(executable: &Path) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(executable);
    nice
}

/// Cargo, which keeps nothing for incremental builds unless `CARGO_INCREMENTAL` is set: that would
/// cost a fresh clone 1.5 GB of disk. All that compiles tests asks here, because cargo compiles the
/// workspace again if one command keeps and the next one does not.
pub fn compiler(repository: &Path) -> Command {
    let mut cargo = cargo(repository);
    cargo.env("CARGO_INCREMENTAL", std::env::var("CARGO_INCREMENTAL").unwrap_or("0".into()));
    cargo
}

/// Builds every test program; cargo's own output is added to `log`. `None` if something does not
/// compile; otherwise the programs in the order of their crates.
pub fn build(repository: &Path, log: &File) -> io::Result<Option<Vec<Program>>> {
    let built = compiler(repository)
        // The libraries for C, too, on which no test depends for cargo.
        .args(["build", "--workspace", "--lib", "--tests"])
        .args(["--message-format", "json-render-diagnostics"])
        .args(FEATURES)
        .stderr(log.try_clone()?)
        .output()?;
    if !built.status.success() {
        return Ok(None);
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let built = messages.lines().filter_map(program);
    let mut programs: Vec<Program> = built.flat_map(Program::parts).collect();
    programs.sort();
    Ok(Some(programs))
}

/// The test program that a message of cargo's names, if it names one.
fn program(message: &str) -> Option<Program> {
    // That of the profile, which ends before the features; a target has a key of this name, too.
    if !message.contains("\"test\":true},\"features\":") {
        return None;
    }
    let manifest = Path::new(text(message, "manifest_path")?);
    let executable = text(message, "executable")?.into();
    Some(Program { folder: manifest.parent()?.to_owned(), executable, share: Share::Whole })
}

/// The string of this key in a line of JSON. Paths with a quotation mark or a backslash, which JSON
/// would escape, are not expected.
fn text<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, value) = json.split_once(&format!("\"{key}\":\""))?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(folder: &str, name: &str) -> Program {
        let executable = Path::new("/r/target/debug/deps").join(name);
        Program { folder: folder.into(), executable, share: Share::Whole }
    }

    #[test]
    fn every_test_runs_once_and_benches_run_apart() {
        let parts = whole("/r/crates/homa-cli", "it-0f").parts();
        let [benches, others] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((benches.filter(), benches.suits()), (&[BENCHES][..], Suits::Alone));
        assert_eq!((others.filter(), others.suits()), (&["--skip", BENCHES][..], Suits::Waiting));
        assert_ne!(benches.name(), others.name(), "each has a log");
        for whole in [whole("/r/crates/homa-cli", "homa-0f"), whole("/r/crates/homa", "it-0f")] {
            assert_eq!(whole.clone().parts(), [whole]);
        }
    }

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///r/a#0.1.0\",\
                 \"manifest_path\":\"/r/a/Cargo.toml\",\"target\":{{\"kind\":[\"test\"],\
                 \"name\":\"it\",\"test\":true}},\"profile\":{{\"opt_level\":\"1\",\
                 \"test\":{test}}},\"features\":[],\"executable\":{executable},\"fresh\":false}}"
            )
        };
        let expected = whole("/r/a", "it-0f");
        assert_eq!(expected.crate_name(), "a");
        assert_eq!(program(&message(true, "\"/r/target/debug/deps/it-0f\"")), Some(expected));
        assert_eq!(program(&message(false, "\"/r/target/debug/homa\"")), None, "no test");
        assert_eq!(program(&message(true, "null")), None, "no program");
        assert_eq!(program("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }
}
