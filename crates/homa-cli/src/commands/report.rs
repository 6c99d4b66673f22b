//! `homa report`: one self-contained page from a folder of results.

use std::path::PathBuf;

use homa_lab::store::write_atomically;

use super::work::write_page;
use crate::failure::{Hint, Outcome, Verdict};

/// Arguments of `homa report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder that `homa sim --out`, `homa sweep` or `homa repro` wrote; the page becomes its
    /// index.html.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Instead of the page, write drawings of `homa repro` as one SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Of these the drawings whose titles end so, such as "80 % load"; absent: all.
    #[arg(long, value_name = "TEXT", requires = "svg", default_value = "")]
    titled: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.svg {
        None => write_page(&args.folder)?,
        Some(file) => {
            let drawn = homa_lab::report::drawings(&args.folder, &args.titled);
            let drawn = drawn.hint("is this a folder of `homa repro`?")?;
            write_atomically(file, drawn.as_bytes()).hint("is the folder writable?")?;
        }
    }
    Ok(Verdict::Passed)
}
