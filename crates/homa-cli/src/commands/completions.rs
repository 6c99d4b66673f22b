//! `homa completions` and `homa man`: completions for a shell, and man pages, both from the
//! definitions of the commands, for packages.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::args;
use crate::failure::{Hint, Outcome, Verdict};
use crate::output::line;

/// Arguments of `homa completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell. Source what is printed, for example in bash: source <(homa completions bash).
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints a shell's completions.
pub fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "homa", &mut script);
    line(String::from_utf8_lossy(&script).trim_end());
    Ok(Verdict::Passed)
}

/// Arguments of `homa man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder for the pages, which is created if it is missing: homa.1 and one page for each
    /// command, such as homa-bench.1.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes the man pages.
pub fn write_pages(args: &ManArgs) -> Outcome {
    let hint = "name a folder in which files may be written";
    std::fs::create_dir_all(&args.folder).hint(hint)?;
    clap_mangen::generate_to(args::command(), &args.folder).hint(hint)?;
    line(format!("man pages in {}", args.folder.display()));
    Ok(Verdict::Passed)
}
