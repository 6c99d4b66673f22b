//! `cargo xtask test`: builds and runs every test of the workspace, prints a line for each crate,
//! and adds up what passed, failed and was skipped in the last line, which scripts read.
//!
//! Everything that cargo and the tests print is in a file of the target folder; it is shown only
//! for what failed. Fails when a test failed, when something does not compile, and when no test
//! ran at all.

mod outcome;
mod programs;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use self::outcome::{Skipped, Tally};
use crate::python;

/// Runs all tests below `repository` and reports.
pub fn run(repository: &Path) -> ExitCode {
    let mut skipped = Skipped::default();
    let tally = match ProgramRun::begin(repository).and_then(|mut run| run.all(&mut skipped)) {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("cannot run the tests: {error}; is cargo in PATH?");
            return ExitCode::from(2);
        }
    };
    if tally == Tally::default() {
        eprintln!("no test ran");
    }
    skipped.print();
    let Tally { passed, failed, skipped } = tally;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(!succeeded(tally)))
}

fn succeeded(tally: Tally) -> bool {
    tally.failed == 0 && tally.passed > 0
}

/// One run of all tests.
struct ProgramRun<'a> {
    repository: &'a Path,
    /// What everything prints, and its path.
    log: File,
    log_path: PathBuf,
    /// The file in which tests that are skipped say so.
    skips: PathBuf,
}

impl<'a> ProgramRun<'a> {
    fn begin(repository: &'a Path) -> io::Result<Self> {
        let folder = crate::target(repository);
        let (log_path, skips) = (folder.join("test.log"), folder.join("test.skipped"));
        fs::write(&log_path, "")?;
        let log = File::options().read(true).append(true).open(&log_path)?;
        Ok(Self { repository, log, log_path, skips })
    }

    fn all(&mut self, skipped: &mut Skipped) -> io::Result<Tally> {
        println!("building the tests; what they and cargo print is in {}", self.log_path.display());
        let begun = Instant::now();
        let Some(programs) = programs::build(self.repository, &self.log)? else {
            println!("{}\nthe tests do not build: see above", self.printed_since(0)?);
            return Ok(Tally { failed: 1, ..Tally::default() });
        };
        let python = python::prepare(self.repository).map(PathBuf::from);
        println!("built in {:.1} s", begun.elapsed().as_secs_f64());
        let mut variables = vec![(skip::FILE, self.skips.clone())];
        variables.extend(python.map(|python| (python::VARIABLE, python)));
        let variables: Vec<(&str, &Path)> =
            variables.iter().map(|(name, value)| (*name, value.as_path())).collect();
        let mut sum = Tally::default();
        for of_crate in programs.chunk_by(|one, next| one.folder == next.folder) {
            let name = of_crate[0].crate_name();
            sum += self.one(&name, skipped, |run| {
                let mut status = Vec::new();
                for program in of_crate {
                    status.push(program.run(&run.log, &variables)?);
                }
                Ok(status)
            })?;
        }
        sum += self.one("documentation", skipped, |run| {
            let mut examples = crate::process::cargo(run.repository);
            examples.args(["test", "--doc", "--workspace", "--no-fail-fast"]);
            examples.args(programs::FEATURES).envs(variables.iter().copied());
            let examples = examples.stdout(run.log.try_clone()?).stderr(run.log.try_clone()?);
            Ok(vec![examples.status()?])
        })?;
        fs::remove_file(&self.skips)?;
        Ok(sum)
    }

    /// Runs the tests of one name and prints their line, and what they said if one failed.
    fn one(
        &mut self,
        name: &str,
        skipped: &mut Skipped,
        tests: impl FnOnce(&Self) -> io::Result<Vec<ExitStatus>>,
    ) -> io::Result<Tally> {
        let (begun, start) = (Instant::now(), self.log.metadata()?.len());
        fs::write(&self.skips, "")?;
        let status = tests(self)?;
        let printed = self.printed_since(start)?;
        let mut tally = outcome::totals(&printed);
        let whole = skipped.add(name, &fs::read_to_string(&self.skips)?);
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
            println!("{}", outcome::failures(&printed));
        }
        println!("{}", line(name, tally, begun.elapsed().as_secs_f64()));
        Ok(tally)
    }

    /// The log from an offset on, in bytes. Tests may print bytes that are not UTF-8.
    fn printed_since(&mut self, start: u64) -> io::Result<String> {
        let mut printed = Vec::new();
        self.log.seek(SeekFrom::Start(start))?;
        self.log.read_to_end(&mut printed)?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }
}

/// The line of a crate.
fn line(name: &str, tally: Tally, seconds: f64) -> String {
    let Tally { passed, failed, skipped } = tally;
    let mut line = format!("{name:<15} {passed:>4} passed {seconds:>7.1} s");
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
        assert_eq!(line("homa-proto", tally(0, 0), 14.24), "homa-proto       312 passed    14.2 s");
        let all = line("homa", tally(2, 1), 9.0);
        assert_eq!(all, "homa             312 passed     9.0 s  2 FAILED  1 skipped");
    }
}
