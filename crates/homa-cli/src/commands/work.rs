//! Progress of simulations, and the paths of their results.

use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use homa_lab::error::LabError;
use homa_lab::report::Choice;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// Time between lines if there is no terminal.
const QUIET: Duration = Duration::from_secs(10);
/// Between two looks of the bar.
const REDRAW: Duration = Duration::from_millis(50);
/// Exit code of a command that was interrupted, as shells have it.
const ENDED: i32 = 130;
/// Parts of the whole that the bar counts.
const PARTS: f64 = 10_000.0;

/// A bar with the time left on a terminal; a line now and then elsewhere. On stderr.
pub struct Work {
    bar: ProgressBar,
    terminal: bool,
    began: Instant,
    shown: Instant,
}

impl Work {
    /// Nothing done yet.
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(PARTS as u64);
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        bar.set_draw_target(target);
        // The template is a constant: the default only keeps an edit of it from becoming a panic.
        let style = ProgressStyle::with_template("[{bar:24}] {percent} %  {eta} left  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        Self { bar, terminal, began: now, shown: now }
    }

    /// A share of the work is done, 0 to 1.
    pub fn show(&mut self, done: f64, what: &str) {
        self.show_with(done, || what.to_owned());
    }

    /// The same, for messages that are shown rarely about work that is done many times a second.
    pub fn show_with(&mut self, done: f64, what: impl FnOnce() -> String) {
        if self.terminal && self.shown.elapsed() >= REDRAW {
            self.shown = Instant::now();
            self.bar.set_message(what());
            self.bar.set_position((done * PARTS) as u64);
        } else if !self.terminal && self.shown.elapsed() >= QUIET {
            self.shown = Instant::now();
            let spent = self.began.elapsed().as_secs_f64();
            // Before the first per cent nothing is known of the pace.
            let left = match done {
                ..0.01 | 1.0.. => String::new(),
                _ => format!(", about {:.0} s left", spent / done - spent),
            };
            eprintln!("{:.0} % done{left}: {}", done * 100.0, what());
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// From now on Ctrl-C and SIGTERM end the program with these words. If handlers are refused, it
/// ends without them.
pub fn say_when_ended(words: String) {
    // It ends with the process.
    std::thread::spawn(move || {
        if super::wait_for_the_end(None, || ()).is_ok() {
            let erase = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            eprintln!("{erase}{words}");
            std::process::exit(ENDED);
        }
    });
}

/// Writes the pages of a folder of results, and prints their paths.
pub fn write_page(folder: &Path, choice: &Choice) -> Result<(), Failure> {
    let pages = homa_lab::report::write(folder, choice).map_err(|error| {
        let hint = match &error {
            LabError::Choice(_) => "leave --metric, --x or --only out, or choose another",
            LabError::Unknown { .. } => "choose one of those",
            LabError::File { source, .. } if source.kind() == ErrorKind::NotFound => {
                "give a folder that `homa sim --out`, `homa sweep` or `homa repro` wrote"
            }
            _ => "is this a folder of results, and writable?",
        };
        Failure::new(error, hint)
    })?;
    for path in pages {
        eprintln!("the page is {}", path.display());
    }
    Ok(())
}
