//! Tasks of this repository: `cargo xtask test` runs every test, `cargo xtask tidy` only the checks
//! of style and structure, which are a test as well; `release` checks what a release promises;
//! `fuzz` runs a fuzz target; `public-items` guards what users can name, `generated` that generated
//! files are fresh; `install-capi` installs what C programs need.
//!
//! Nothing but the standard library, so that it builds in a second. Left out: what cargo does alone
//! (formatting, lints, documentation); `.ci/run` puts them together.
#![forbid(unsafe_code)]

mod book;
mod fuzz;
mod install;
mod package;
mod process;
mod public_items;
mod python;
mod release;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str =
    "usage: cargo xtask test | clippy | tidy | words [PATH…] | release --check [NAME…] | book |
                    readme | generated [--write] | public-items [--write] | fuzz TARGET |
                    install-capi --prefix DIR | package [--debug] [deb] [container]
  test          run all tests of the workspace, then print `N passed, N failed, N skipped`;
                makes a virtual environment of Python for them unless HOMA_PYTHON names one
  clippy        check every target, with the features that have tests; warnings are errors
  tidy          check style and structure only (also one of the tests)
  words         count words in comments and Markdown beside their limits, below some paths
  release       with --check: what a release promises, or the checks that are named (minutes each):
                crates, semver, rust-version, advisories, wheels, manylinux, previous,
                packages, boot (the unit in a booted Debian), container (the image in runc; all
                three try the published files, which they leave in target/packages),
                monitoring (the expressions of contrib/monitoring, on a Prometheus),
                collector (spans in a collector of OpenTelemetry),
                upload (what is left to a person)
  book          build the documentation as a web site in target/book, with mdBook
  readme        write README's numbers anew from docs/results
  public-items  compare the documented items of the libraries with docs/public-items.txt
  generated     compare crates/homa-capi/include/homa.h and the code that tonic generates for
                crates/homa-tonic with their sources; with --write, write them anew
  fuzz          run a fuzz target with this compiler: wire_decode, endpoint_ops, grpc_decode or
                handshake
                (--runs 1_000_000 --seed 1 --first 0: inputs do not depend on each other)
  install-capi  build libhoma and install it below DIR: libraries, homa.h, homa.pc, manual pages
                (with --debug unoptimised, for tests; with --built DIR those of that folder)
  package       write Debian packages (homa, libhoma0, libhoma-dev) and a container image to
                target/packages, or only the kinds that are named (minutes; with --debug
                unoptimised, for trying out, to target/packages-debug)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["test"] => test::run(repository()),
        ["clippy"] => test::clippy(repository()),
        ["tidy"] => report(tidy::check(repository())),
        ["words", ref paths @ ..] => match tidy::words(repository(), paths) {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("cannot read the repository: {error}");
                ExitCode::from(2)
            }
        },
        ["book"] => book::run(repository()),
        ["release", "--check", ref names @ ..] => release::check(repository(), names),
        ["package", ref rest @ ..] => package::run(repository(), rest),
        ["readme"] => write_readme(repository()),
        ["generated", ref rest @ ..] => generated(repository(), rest),
        ["public-items"] => public_items::run(repository(), false),
        ["public-items", "--write"] => public_items::run(repository(), true),
        ["fuzz", ref rest @ ..] => fuzz::run(repository(), rest),
        ["install-capi", "--prefix", to] => {
            install::run(repository(), Path::new(to), install::Libraries::Release)
        }
        ["install-capi", "--debug", "--prefix", to] => {
            install::run(repository(), Path::new(to), install::Libraries::Debug)
        }
        ["install-capi", "--built", folder, "--prefix", to] => {
            install::run(repository(), Path::new(to), install::Libraries::Built(Path::new(folder)))
        }
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

/// The target folder, in which this program lies.
fn target(repository: &Path) -> PathBuf {
    let own = std::env::current_exe().ok();
    let folder = own.as_deref().and_then(|own| own.ancestors().nth(2));
    folder.map_or_else(|| repository.join("target"), Path::to_path_buf)
}

/// Cargo's folder of downloads and settings.
fn cargo_home() -> std::io::Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || Some(std::env::home_dir()?.join(".cargo"));
    named.or_else(usual).ok_or_else(|| std::io::Error::other("no home of cargo: set CARGO_HOME"))
}

/// Has the test of README's numbers write them.
fn write_readme(repository: &Path) -> ExitCode {
    let mut test = process::cargo(repository);
    test.args(["test", "--quiet", "--package", "homa-rpc-cli", "--test", "it", "numbers"]);
    success(test.env("HOMA_WRITE_README", "1"))
}

/// Runs the program that generates files, a workspace by itself.
fn generated(repository: &Path, arguments: &[&str]) -> ExitCode {
    let mut generate = process::cargo(repository);
    generate.args(["run", "--quiet", "--locked", "--manifest-path"]);
    generate.arg(repository.join("xtask/generated/Cargo.toml"));
    generate.arg("--target-dir").arg(target(repository).join("generated"));
    success(generate.arg("--").args(arguments))
}

fn success(command: &mut Command) -> ExitCode {
    ExitCode::from(u8::from(!command.status().is_ok_and(|status| status.success())))
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
