//! Files of messages in the formats of other simulators.
//!
//! | module | format |
//! |---|---|
//! | `htsim` | connection matrices of htsim: messages, and triggers that start them |
//! | `hpcc` | flow files of HPCC's ns-3 |
//! | `yaps` | traces of YAPS, the simulator of dcPIM |
//! | `goal` | programs of LogGOPSim and ATLAHS: sends, receives and computations |
//! | [`flows`] | rows of columns with names, the list of this project |
//!
//! Invariants: an error names its line; nothing is reserved for a number that a file announces.

mod goal;
mod hpcc;
mod htsim;
mod yaps;

use homa_workload::sizes::MAX_BYTES;
use homa_workload::text::{TextRow, plain, rows, whole};

use crate::scenario::FlowFormat;
use crate::time::SimTime;

use super::flows::{self, FlowError};
use super::open_loop::ScheduledMessage;
use super::tasks::TaskGraph;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFile {
    /// The messages.
    pub messages: FileMessages,
    /// When the run begins, by the clock of the file: the start of its first message for formats
    /// whose simulators begin with a pause of seconds, else 0.
    pub begins: SimTime,
    /// Senders and receivers are numbered as the nodes of a network of the same simulator.
    pub names_nodes: bool,
    /// Sentences about probable mistakes, and parts that are not simulated.
    pub warnings: Vec<String>,
}

/// The messages of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileMessages {
    /// Each starts at its time. Sorted by time.
    List(Vec<ScheduledMessage>),
    /// Some wait for others.
    Tasks(TaskGraph),
}

impl FlowFile {
    /// Messages that count from the start of the first one.
    fn from_first(mut list: Vec<ScheduledMessage>, warnings: Vec<String>) -> Self {
        // The sort is stable, so the order of the file decides between equals.
        list.sort_by_key(|message| message.at);
        let begins = list.first().map_or(SimTime::ZERO, |first| first.at);
        list.iter_mut().for_each(|message| message.at = SimTime::ZERO + message.at.since(begins));
        let messages = FileMessages::List(list);
        Self { messages, begins, names_nodes: false, warnings }
    }
}

/// Reads a text in this format, or in the one that its first row shows.
///
/// # Errors
///
/// The line at fault, and its expected content.
pub fn read(text: &str, format: Option<FlowFormat>) -> Result<FlowFile, FlowError> {
    let text = plain(text);
    match format.unwrap_or_else(|| recognise(&text)) {
        FlowFormat::List => {
            let messages = FileMessages::List(flows::parse(&text)?);
            let (begins, names_nodes, warnings) = (SimTime::ZERO, false, Vec::new());
            Ok(FlowFile { messages, begins, names_nodes, warnings })
        }
        FlowFormat::Htsim => htsim::read(&text),
        FlowFormat::Hpcc => hpcc::read(&text),
        FlowFormat::Yaps => yaps::read(&text),
        FlowFormat::Goal => goal::read(&text),
    }
}

/// The format that the first row shows; a list of this project if it shows no other.
fn recognise(text: &str) -> FlowFormat {
    let is_goal = |text: &str| text.split_whitespace().next() == Some(goal::HEAD);
    if text.contains(goal::HEAD) && is_goal(&goal::without_comments(text)) {
        return FlowFormat::Goal;
    }
    let Some(first) = rows(text).next() else { return FlowFormat::List };
    let numbers = first.fields.iter().all(|field| field.parse::<f64>().is_ok());
    match (first.fields[0], first.fields.len(), numbers) {
        (word, ..) if htsim::begins_with(word) => FlowFormat::Htsim,
        (_, 1, true) => FlowFormat::Hpcc,
        (_, 9, true) => FlowFormat::Yaps,
        _ => FlowFormat::List,
    }
}

/// An error in a row.
fn wrong<T>(row: &TextRow<'_>, expected: impl Into<String>) -> Result<T, FlowError> {
    Err(FlowError { line: row.line, expected: expected.into() })
}

/// A whole number that names or counts something.
fn number(row: &TextRow<'_>, what: &str, field: &str) -> Result<u32, FlowError> {
    let number = whole(field).and_then(|number| u32::try_from(number).ok());
    match number {
        Some(number) => Ok(number),
        None => wrong(row, format!("{what}: expected a whole number, found `{field}`")),
    }
}

/// The size of a message.
fn bytes(row: &TextRow<'_>, what: &str, field: &str, unit: u32) -> Result<u32, FlowError> {
    let bytes = whole(field).and_then(|count| count.checked_mul(u64::from(unit)));
    match bytes.filter(|bytes| (1..=u64::from(MAX_BYTES)).contains(bytes)) {
        Some(bytes) => Ok(bytes as u32),
        None => {
            let most = MAX_BYTES / unit;
            wrong(row, format!("{what}: expected a whole number from 1 to {most}, found `{field}`"))
        }
    }
}

/// A time in `picos` picoseconds, up to half of the range of simulated time.
fn time(row: &TextRow<'_>, what: &str, (field, picos): (&str, f64)) -> Result<SimTime, FlowError> {
    let time = field.parse::<f64>().map(|number| (number * picos).round());
    match time {
        Ok(time) if (0.0..=u64::MAX as f64 / 2.0).contains(&time) => Ok(SimTime(time as u64)),
        _ => wrong(row, format!("{what}: expected a time of at most 104 days, found `{field}`")),
    }
}

/// A message between two hosts.
fn between(row: &TextRow<'_>, src: u32, dst: u32) -> Result<(u32, u32), FlowError> {
    if src == dst {
        return wrong(row, format!("a message needs two hosts, and host {src} sends to itself"));
    }
    Ok((src, dst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_recognised_by_its_first_row() {
        let cases = [
            ("Nodes 4\nConnections 1\n0->1 start 0 size 1\n", FlowFormat::Htsim),
            ("# of htsim\nConnections 1\n", FlowFormat::Htsim),
            ("0->1 start 0 size 1\n", FlowFormat::Htsim),
            ("1\n0 1 3 100 10 2.0\n", FlowFormat::Hpcc),
            ("0 1.0 0 0 3 0 0 1 2\n", FlowFormat::Yaps),
            ("/* of a trace\n */ num_ranks 4\n", FlowFormat::Goal),
            ("# of a trace\nnum_ranks 4 // ranks, of a trace\n", FlowFormat::Goal),
            ("id,src,dst,bytes,start_ns\n", FlowFormat::List),
            ("0 1 2 10 5\n", FlowFormat::List),
            ("", FlowFormat::List),
        ];
        for (text, format) in cases {
            assert_eq!(recognise(text), format, "{text}");
        }
    }

    #[test]
    fn a_format_that_is_named_is_not_guessed() {
        let named = read("0 1 2 10 5\n", Some(FlowFormat::Yaps)).unwrap_err().to_string();
        assert!(named.starts_with("line 1: "), "{named}");
        assert!(named.contains("9 fields"), "{named}");
    }
}
