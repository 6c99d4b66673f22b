//! The subcommands. Each file holds its arguments, their help, and what it does.

pub mod bench;

use crate::args::Command;
use crate::failure::Outcome;

/// Runs a subcommand.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Bench(args) => bench::run(&args),
    }
}
