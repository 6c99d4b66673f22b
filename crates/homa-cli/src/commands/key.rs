//! `homa key`: files with the keys of a cluster.

use std::path::PathBuf;

use homa::Keys;

use crate::failure::{Hint, Outcome, Verdict};
use crate::output::line;

/// Arguments of `homa key`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(Debug, clap::Subcommand)]
enum KeyAction {
    /// Write a new random key to a file that does not exist yet, for its owner only. Copy it to
    /// every host of the cluster by a way that others cannot read, and give it to `--key`.
    New {
        /// The file.
        #[arg(value_name = "FILE", default_value = "homa.key")]
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let KeyAction::New { file } = &args.action;
    Keys::create_file(file).hint("name a file that does not exist, in a folder of yours")?;
    line(format!("{}", file.display()));
    eprintln!("copy it to every host of the cluster, by a way that others cannot read");
    Ok(Verdict::Passed)
}
