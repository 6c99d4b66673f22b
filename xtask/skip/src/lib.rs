//! Tests that cannot run on a machine say so and are counted as skipped, never as passed: Rust's
//! harness knows no such outcome while a test runs.
//!
//! `cargo xtask test` names a file in the environment ([`FILE`]), to which each skipped test adds a
//! line; the total then takes them out of those that passed and says what each needs. Without that
//! file the reason goes to stderr, past the harness's capture.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names the file of skipped tests.
pub const FILE: &str = "HOMA_SKIPPED_TESTS";

/// The extent of a skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The whole test.
    Test,
    /// A part of a test whose other parts ran.
    Part,
}

impl Extent {
    /// As in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Part => "part",
        }
    }
}

/// The running test ends here, since `needs` is missing: what to install or to permit.
pub fn test(needs: &str) {
    note(Extent::Test, needs);
}

/// A part of the running test is left out, since `needs` is missing.
pub fn part(needs: &str) {
    note(Extent::Part, needs);
}

fn note(extent: Extent, needs: &str) {
    // The harness runs each test on a thread of that name; programs without harness have `main`.
    let thread = std::thread::current();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()).unwrap_or_default();
    let name = thread.name().unwrap_or("main");
    let line = format!("{}\t{}\t{name}\t{needs}\n", extent.word(), program.to_string_lossy());
    let file = std::env::var_os(FILE);
    let file = file.and_then(|path| OpenOptions::new().append(true).open(path).ok());
    // One write per line: other processes add to the same file.
    let noted = file.is_some_and(|mut file| file.write_all(line.as_bytes()).is_ok());
    if !noted {
        let _ = writeln!(std::io::stderr(), "skipped ({}): {name}: {needs}", extent.word());
    }
}
