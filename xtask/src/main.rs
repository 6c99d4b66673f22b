//! Tasks of this repository: `cargo xtask test` runs every test, `cargo xtask tidy` only the checks
//! of style and structure, which are a test as well.
//!
//! Nothing but the standard library, so that it builds in a second. Left out: what cargo does alone
//! (formatting, lints, documentation); `.ci/run` puts them together.
#![forbid(unsafe_code)]

mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test | tidy
  test  run all tests of the workspace, then print `N passed, N failed`
  tidy  check style and structure only (also one of the tests)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["test"] => test::run(repository()),
        ["tidy"] => report(tidy::check(repository())),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The root of the repository this program was built in.
fn repository() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

fn report(findings: std::io::Result<Vec<tidy::Finding>>) -> ExitCode {
    match findings {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: nothing to do");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} to do", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy cannot read the repository: {error}");
            ExitCode::from(2)
        }
    }
}
