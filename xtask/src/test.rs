//! `cargo xtask test`: builds and runs every test of the workspace, prints a line for each crate,
//! and adds up what passed, failed and was skipped in the last line, which scripts read.
//!
//! Tests that mostly wait run beside tests that mostly compute. Then those that measure in real
//! time run alone, and racks run beside tests that make calls.
//!
//! Everything that cargo and the tests print is in a file of the target folder; it is shown only
//! for what failed. Fails when a test failed, when something does not compile, and when no test
//! ran at all.

mod outcome;
mod programs;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use self::outcome::{Skipped, Tally};
pub(crate) use self::programs::FEATURES;
use self::programs::{Program, Suits};
use crate::python;

/// Names the folder in which tests find libhoma, so that they do not build it again.
const LIBRARIES: &str = "HOMA_LIBRARIES";

/// Runs all tests below `repository` and reports.
pub fn run(repository: &Path) -> ExitCode {
    let results = match TestRun::begin(repository).and_then(TestRun::all) {
        Ok(results) => results,
        Err(error) => {
            eprintln!("cannot run the tests: {error}; is cargo in PATH?");
            return ExitCode::from(2);
        }
    };
    if results.tally == Tally::default() {
        eprintln!("no test ran");
    }
    results.skipped.print();
    let Tally { passed, failed, skipped } = results.tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(!succeeded(results.tally)))
}

/// Has clippy check everything that the tests build, and more: examples and benches.
pub fn clippy(repository: &Path) -> ExitCode {
    let mut clippy = crate::process::cargo(repository);
    clippy.args(["clippy", "--workspace", "--all-targets"]).args(FEATURES);
    let clean = clippy.args(["--", "-D", "warnings"]).status().is_ok_and(|status| status.success());
    ExitCode::from(u8::from(!clean))
}

fn succeeded(tally: Tally) -> bool {
    tally.failed == 0 && tally.passed > 0
}

/// One run of all tests.
struct TestRun<'a> {
    repository: &'a Path,
    /// What a crate's tests print while they run.
    folder: PathBuf,
    libraries: PathBuf,
    /// The Python of tests that need one.
    python: Option<PathBuf>,
    results: Mutex<TestResults>,
}

/// The outcome of the tests that have run.
struct TestResults {
    tally: Tally,
    skipped: Skipped,
    /// What everything printed, crate by crate.
    log: File,
}

impl<'a> TestRun<'a> {
    fn begin(repository: &'a Path) -> io::Result<Self> {
        let target = crate::target(repository);
        let folder = target.join("tests");
        fs::create_dir_all(&folder)?;
        let log_path = target.join("test.log");
        let log = File::create(&log_path)?;
        println!("building the tests; what they and cargo print is in {}", log_path.display());
        let results = TestResults { tally: Tally::default(), skipped: Skipped::default(), log };
        let libraries = target.join("debug");
        Ok(Self { repository, folder, libraries, python: None, results: Mutex::new(results) })
    }

    fn all(mut self) -> io::Result<TestResults> {
        let begun = Instant::now();
        let (built, python) = thread::scope(|scope| {
            // Most of it is download and unpacking.
            let python = scope.spawn(|| python::prepare(self.repository).map(PathBuf::from));
            let built = self.build();
            (built, python.join())
        });
        self.python = python.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(programs) = built? {
            println!("built in {:.1} s", begun.elapsed().as_secs_f64());
            self.run_all(&programs)?;
        }
        fs::remove_dir_all(&self.folder)?;
        Ok(self.results.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The test programs in the order of their crates. `None` if something does not compile, which
    /// counts as a failure.
    fn build(&self) -> io::Result<Option<Vec<Program>>> {
        let path = self.folder.join("build");
        let programs = programs::build(self.repository, &File::create(&path)?)?;
        let printed = read(&path)?;
        let mut results = self.results();
        results.log.write_all(printed.as_bytes())?;
        if programs.is_none() {
            println!("{printed}\nthe tests do not build: see above");
            results.tally.failed = 1;
        }
        Ok(programs)
    }

    fn run_all(&self, programs: &[Program]) -> io::Result<()> {
        let those = |suits: Suits| {
            self.crates(programs.iter().filter(move |program| program.suits() == suits))
        };
        beside(
            || those(Suits::Waiting),
            || those(Suits::Computing).and_then(|()| self.examples()),
        )?;
        those(Suits::Alone)?;
        beside(|| those(Suits::Racks), || those(Suits::BesideRacks))
    }

    /// Runs programs, crate by crate.
    fn crates<'p>(&self, programs: impl Iterator<Item = &'p Program>) -> io::Result<()> {
        let programs: Vec<&Program> = programs.collect();
        for same in programs.chunk_by(|one, next| one.name() == next.name()) {
            self.one(&same[0].name(), |log, variables| {
                same.iter().map(|program| program.run(log, variables)).collect()
            })?;
        }
        Ok(())
    }

    /// Runs the examples in the documentation.
    fn examples(&self) -> io::Result<()> {
        self.one("documentation", |log, variables| {
            let mut examples = programs::compiler(self.repository);
            examples.args(["test", "--doc", "--workspace", "--no-fail-fast"]);
            examples.args(FEATURES).envs(variables.iter().copied());
            let examples = examples.stdout(log.try_clone()?).stderr(log.try_clone()?);
            Ok(vec![examples.stdin(Stdio::null()).status()?])
        })
    }

    /// Runs the tests of one name, and then prints their line and what they said if one failed.
    /// `tests` gets the file for what they print and the variables of their environment.
    fn one(
        &self,
        name: &str,
        tests: impl FnOnce(&File, &[(&str, &Path)]) -> io::Result<Vec<ExitStatus>>,
    ) -> io::Result<()> {
        let (log, skips) = (self.folder.join(name), self.folder.join(format!("{name}.skipped")));
        fs::write(&skips, "")?;
        let mut variables = vec![(skip::FILE, skips.as_path())];
        variables.push((LIBRARIES, &self.libraries));
        variables.extend(self.python.as_deref().map(|python| (python::VARIABLE, python)));
        let begun = Instant::now();
        let status = tests(&File::create(&log)?, &variables)?;
        let seconds = begun.elapsed().as_secs_f64();
        let (printed, skips) = (read(&log)?, read(&skips)?);
        self.results().add(name, (&status, seconds), &printed, &skips)
    }

    fn results(&self) -> std::sync::MutexGuard<'_, TestResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TestResults {
    /// Adds the tests of one name and prints their line.
    fn add(
        &mut self,
        name: &str,
        (status, seconds): (&[ExitStatus], f64),
        printed: &str,
        skips: &str,
    ) -> io::Result<()> {
        self.log.write_all(printed.as_bytes())?;
        let mut tally = outcome::totals(printed);
        let whole = self.skipped.add(name, skips);
        tally.passed = tally.passed.saturating_sub(whole);
        tally.skipped += whole;
        let bad = status.iter().find(|status| !status.success());
        if let Some(status) = bad
            && tally.failed == 0
        {
            // It crashed, and did not count what it ran.
            println!("{name}: {status}");
            tally.failed = 1;
        }
        if bad.is_some() {
            println!("{}", outcome::failures(printed));
        }
        println!("{}", line(name, tally, seconds));
        self.tally += tally;
        Ok(())
    }
}

/// Does one thing while another thread does the other.
fn beside(
    other: impl FnOnce() -> io::Result<()> + Send,
    one: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(one)
    })
}

/// A file's text. Tests may print bytes that are not UTF-8.
fn read(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The line of a crate.
fn line(name: &str, tally: Tally, seconds: f64) -> String {
    let Tally { passed, failed, skipped } = tally;
    let mut line = format!("{name:<16} {passed:>4} passed {seconds:>7.1} s");
    if failed > 0 {
        line += &format!("  {failed} FAILED");
    }
    if skipped > 0 {
        line += &format!("  {skipped} skipped");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_ran_and_passed_are_success() {
        let tally = |passed, failed| Tally { passed, failed, skipped: 1 };
        assert!(succeeded(tally(1, 0)));
        assert!(!succeeded(tally(1, 1)));
        assert!(!succeeded(tally(0, 0)), "nothing ran");
    }

    #[test]
    fn a_crates_line_names_what_did_not_pass() {
        let tally = |failed, skipped| Tally { passed: 312, failed, skipped };
        assert_eq!(
            line("homa-proto", tally(0, 0), 14.24),
            "homa-proto        312 passed    14.2 s"
        );
        let all = line("homa", tally(2, 1), 9.0);
        assert_eq!(all, "homa              312 passed     9.0 s  2 FAILED  1 skipped");
    }
}
