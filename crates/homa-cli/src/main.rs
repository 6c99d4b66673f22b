//! The program `homa`: one subcommand per file in `commands/`.
//!
//! Contract for scripts: data goes to stdout, progress and logs to stderr; exit 0 when all went
//! well, 1 when a check failed, 2 for a usage or environment error; every error ends with a `hint:`
//! line. Left out: everything that decides a number. Protocols, workloads and the rack live in
//! libraries.

/// Like the standard one, but does not panic if stderr is closed, for example in
/// `homa sweep … 2>&1 | head`.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::say(format_args!($($text)*)) };
}

mod args;
mod commands;
mod cores;
mod cp_node;
mod cpu;
mod failure;
#[cfg(feature = "grpc")]
mod grpc;
mod micro;
mod output;
mod pages;
mod reach;
mod values;

use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use homa_lab::error::short_numbers;

use args::Cli;
use failure::Verdict;

fn main() -> ExitCode {
    let given = args::command().try_get_matches();
    let cli = match given.and_then(|given| Cli::from_arg_matches(&given)) {
        Ok(cli) => cli,
        Err(error) => return explain_usage(&error),
    };
    let ended = commands::run(cli.command);
    if let Some(reason) = output::lost() {
        eprintln!("error: results were not written to stdout: {reason}");
        eprintln!("hint: make room where stdout leads");
        return ExitCode::from(2);
    }
    match ended {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::CheckFailed) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

/// Prints what clap has to say; a mistake gets our hint and exit code 2, `--help` and `--version`
/// get 0.
fn explain_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    let short = short_numbers(&text);
    // A closed pipe on the other side is no reason to fail differently.
    let _ = match error.use_stderr() && short != text {
        true => write!(std::io::stderr(), "{short}"),
        false => error.print(),
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => {
            // Arguments may be any bytes.
            let words = std::env::args_os().skip(1);
            let command = args::named(words.map(|word| word.to_string_lossy().into_owned()));
            match error.kind() {
                ErrorKind::InvalidUtf8 => eprintln!(
                    "hint: this value has to be UTF-8 text: a plan, which is such text, could not \
                     name the file; rename it, or make a link to it (ln -s)"
                ),
                _ => eprintln!(
                    "hint: `homa{command} --help` lists what is accepted, with units and defaults"
                ),
            }
            ExitCode::from(2)
        }
    }
}
