//! `homa report`: one self-contained page from a folder of results.

use std::path::PathBuf;

use homa_lab::report::{Choice, Quantity};
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
    /// For a sweep: the metric to draw, instead of the usual ones: p99, p50, p99_us@50 (latency at
    /// 50 % of messages by size), p99.9_us (requires measures.groups), tor_down.max, priority.7,
    /// utilisation, goodput, outcome.PATH, and others that docs/simulator.md lists. May be
    /// repeated.
    #[arg(long = "metric", value_name = "NAME", conflicts_with = "svg")]
    metrics: Vec<Quantity>,
    /// For a sweep: the axis to draw against. [default: each numeric axis]
    #[arg(long, value_name = "AXIS", conflicts_with = "svg")]
    x: Option<String>,
    /// For a sweep: only simulations with this value of an axis. May be repeated.
    #[arg(long, value_name = "AXIS=VALUE", conflicts_with = "svg", value_parser = axis_value)]
    only: Vec<(String, String)>,
    /// With --svg: only drawings whose titles end with this text, such as "80 % load". [default:
    /// all]
    #[arg(long, value_name = "TEXT", requires = "svg")]
    #[arg(default_value = "", hide_default_value = true)]
    titled: String,
}

fn axis_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((axis, value)) if !axis.is_empty() && !value.is_empty() => {
            Ok((axis.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write an axis and one of its values, such as load.fraction=0.8".into()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.svg {
        None => {
            let (metrics, x, only) = (args.metrics.clone(), args.x.clone(), args.only.clone());
            write_page(&args.folder, &Choice { metrics, x, only })?;
        }
        Some(file) => {
            let drawn = homa_lab::report::drawings(&args.folder, &args.titled);
            let drawn = drawn.hint("is this a folder of `homa repro`?")?;
            write_atomically(file, drawn.as_bytes()).hint("is the folder writable?")?;
        }
    }
    Ok(Verdict::Passed)
}
