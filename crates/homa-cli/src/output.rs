//! Output: tables and JSON on stdout, progress on stderr.
//!
//! A closed stdout (`homa workloads | head -1`) ends the output silently, it is not an error.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Hint};

/// The form of the results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// One JSON document for programs.
    Json,
}

/// Why stdout did not take a line, the first time.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes one line to stdout. If that fails, the command continues and fails at its end.
pub fn line(text: impl AsRef<str>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            LOST.get_or_init(|| error.to_string());
        }
        _ => {}
    }
}

/// Text of another program as it may be printed: characters that control a terminal, change the
/// direction of text, or are invisible are escaped, and the rest beyond 200 characters is cut.
pub fn printable(text: &str) -> String {
    const MOST: usize = 200;
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        match c {
            _ if count == MOST => {
                shown.push('…');
                break;
            }
            c if hidden(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// True if a terminal shows nothing for a character, or something else: Unicode's
/// Default_Ignorable_Code_Point (DerivedCoreProperties.txt), line separators, and annotations.
fn hidden(c: char) -> bool {
    let ignorable = matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}')
        || matches!(c, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}')
        || matches!(c, '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}')
        || matches!(c, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}');
    c.is_control() || ignorable || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
}

/// Writes one line to stderr; a closed stderr is ignored.
pub fn say(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Why results are missing on stdout, if some are.
pub fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

/// Writes one document to stdout.
pub fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .hint("this is a bug in homa: please report the command line")?;
    line(text);
    Ok(())
}

/// The side of its column on which a cell's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// Columns of fixed width, so that a row can be printed when it is ready and still line up.
pub struct TextTable {
    columns: Vec<(String, Align, usize)>,
}

impl TextTable {
    /// Columns by title, alignment and least width in characters.
    pub fn new(columns: &[(&str, Align, usize)]) -> Self {
        let columns = columns
            .iter()
            .map(|&(title, align, width)| (title.into(), align, width.max(title.chars().count())))
            .collect();
        Self { columns }
    }

    /// The line of titles.
    pub fn head(&self) -> String {
        let titles: Vec<String> = self.columns.iter().map(|(title, ..)| title.clone()).collect();
        self.row(&titles)
    }

    /// One line. Missing cells are empty; a cell wider than its column pushes the rest to the
    /// right.
    pub fn row(&self, cells: &[String]) -> String {
        let mut text = String::new();
        for (index, (_, align, width)) in self.columns.iter().enumerate() {
            let cell = cells.get(index).map_or("", String::as_str);
            if index > 0 {
                text.push_str("  ");
            }
            match align {
                Align::Left => text.push_str(&format!("{cell:<width$}")),
                Align::Right => text.push_str(&format!("{cell:>width$}")),
            }
        }
        text.trim_end().into()
    }
}

/// Progress on stderr: a bar on a terminal, otherwise one line per step.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    ticker: Option<Ticker>,
    began: Instant,
}

impl Progress {
    /// For a job that takes about `expected` in all and says itself how far it is.
    pub fn new(expected: Duration) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(expected.as_millis().max(1) as u64);
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        bar.set_draw_target(target);
        // The template is a constant: the default only keeps an edit of it from becoming a panic.
        let style = ProgressStyle::with_template("{msg}  [{bar:24}]  about {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !terminal {
            eprintln!("this takes about {} s", expected.as_secs().max(1));
        }
        Self { bar, terminal, ticker: None, began: Instant::now() }
    }

    /// For a job that takes about `expected` and cannot be interrupted to say how far it is. Starts
    /// a thread when a terminal is there to see it.
    pub fn ticking(expected: Duration) -> Self {
        let mut progress = Self::new(expected);
        if progress.terminal {
            progress.ticker = Some(Ticker::start(progress.bar.clone()));
        }
        progress
    }

    /// Names the step that is in progress.
    pub fn step(&self, message: &str) {
        self.bar.set_message(message.to_string());
        if !self.terminal {
            eprintln!("{message}");
        }
    }

    /// It takes about this long from now on.
    pub fn expect(&self, left: Duration) {
        self.bar.set_length((self.began.elapsed() + left).as_millis().max(1) as u64);
    }

    /// How much of the expected time has been spent.
    pub fn spent(&self, time: Duration) {
        self.bar.set_position(time.as_millis() as u64);
    }

    /// Prints results without disturbing the bar.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the bar.
    pub fn finish(self) {
        drop(self.ticker);
        self.bar.finish_and_clear();
    }
}

/// A thread that moves a bar with the clock.
struct Ticker {
    /// Dropped to stop.
    _stop: mpsc::Sender<()>,
}

impl Ticker {
    fn start(bar: ProgressBar) -> Self {
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            let start = Instant::now();
            let gone = mpsc::RecvTimeoutError::Disconnected;
            while stopped.recv_timeout(Duration::from_millis(250)) != Err(gone) {
                let elapsed = start.elapsed().as_millis() as u64;
                // A job that takes longer than expected is not done yet, so its bar is not full.
                let least = elapsed + elapsed / 20;
                if bar.length().is_some_and(|length| length < least) {
                    bar.set_length(least);
                }
                bar.set_position(elapsed);
            }
        });
        Self { _stop: stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_control_a_terminal() {
        assert_eq!(printable("10.0.0.1:9 \"ä\" {}"), "10.0.0.1:9 \"ä\" {}");
        assert_eq!(printable("\x1b]0;x\x07\r\n\t"), r"\u{1b}]0;x\u{7}\r\n\t");
        assert_eq!(
            printable("a\u{9b}31m\u{7f}\u{202e}\u{2066}"),
            r"a\u{9b}31m\u{7f}\u{202e}\u{2066}"
        );
        for c in "\u{ad}\u{61c}\u{180e}\u{200b}\u{2029}\u{3164}\u{fe0f}\u{fff9}\u{e0041}\u{e007f}"
            .chars()
        {
            assert!(!printable(&c.to_string()).contains(c), "{c:?} is invisible");
        }
        let long = printable(&"ä".repeat(300));
        assert_eq!((long.chars().count(), long.ends_with('…')), (201, true));
    }

    #[test]
    fn numbers_align_right_and_names_left() {
        let table = TextTable::new(&[("name", Align::Left, 6), ("p50", Align::Right, 8)]);
        assert_eq!(table.head(), "name         p50");
        assert_eq!(table.row(&["homa".into(), "1.25".into()]), "homa        1.25");
    }

    #[test]
    fn a_wide_cell_does_not_lose_characters() {
        let table = TextTable::new(&[("a", Align::Left, 1), ("b", Align::Right, 1)]);
        assert_eq!(table.row(&["longer".into(), "2".into()]), "longer  2");
    }
}
