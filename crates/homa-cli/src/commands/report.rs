//! `homa report`: one self-contained page from a folder of results.

use std::path::PathBuf;

use super::work::write_page;
use crate::failure::{Outcome, Verdict};

/// Arguments of `homa report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder that `homa sim --out`, `homa sweep` or `homa repro` wrote; the page becomes its
    /// index.html.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    write_page(&args.folder)?;
    Ok(Verdict::Passed)
}
