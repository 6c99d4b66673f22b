//! The subcommands. Each file holds its arguments, their help, and what it does.

pub mod bench;
pub mod doctor;
pub mod workloads;

use crate::args::Command;
use crate::failure::Outcome;

/// Runs a subcommand.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    }
}
