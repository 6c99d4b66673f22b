//! Files of networks in the formats of other simulators, read as graphs.
//!
//! Hosts have no delay of their own there: the delay of a link is its propagation and, for htsim,
//! the latency of the switch at its far end. Invariants: an error names its line; nothing is
//! reserved for a number that a file announces before it was checked.

mod hpcc;
mod htsim;

use std::collections::BTreeMap;

use homa_workload::text::{TextRow, plain, rows, whole};

use crate::scenario::GraphFormat;

use super::graph::{Graph, GraphError, GraphFault};

/// A network from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkFile {
    /// Its links.
    pub graph: Graph,
    /// The hosts by the numbers that the file gives to nodes, if these are not those of hosts.
    pub nodes: Option<BTreeMap<u32, u32>>,
    /// Sentences about parts that are not simulated.
    pub warnings: Vec<String>,
}

/// The most links and switches of a network.
const MOST: u64 = 1 << 22;

/// Reads a text in this format, or in the one that its first row shows.
///
/// # Errors
///
/// The line at fault, and its expected content.
pub fn read(text: &str, format: Option<GraphFormat>) -> Result<NetworkFile, GraphError> {
    let text = plain(text);
    match format.unwrap_or_else(|| recognise(&text)) {
        GraphFormat::Links => {
            Ok(NetworkFile { graph: Graph::from_csv(&text)?, nodes: None, warnings: Vec::new() })
        }
        GraphFormat::Htsim => htsim::read(&text),
        GraphFormat::Hpcc => hpcc::read(&text),
    }
}

/// The format that the first row shows; a list of links if it shows no other.
fn recognise(text: &str) -> GraphFormat {
    let Some(first) = rows(text).next() else { return GraphFormat::Links };
    let numbers = first.fields.iter().all(|field| whole(field).is_some());
    match first.fields.len() {
        2 if htsim::begins_with(first.fields[0]) => GraphFormat::Htsim,
        3..=6 if numbers => GraphFormat::Hpcc,
        _ => GraphFormat::Links,
    }
}

/// An error in a line.
fn wrong<T>(line: usize, expected: impl Into<String>) -> Result<T, GraphError> {
    Err(GraphError { line, fault: GraphFault::Expected(expected.into()) })
}

/// A whole number that names or counts something.
fn number(row: &TextRow<'_>, what: &str, field: &str) -> Result<u32, GraphError> {
    match whole(field).and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => wrong(row.line, format!("{what}: expected a whole number, found `{field}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_recognised_by_its_first_row() {
        let cases = [
            ("# tree\nNodes 8\nTiers 2\n", GraphFormat::Htsim),
            ("tiers 2\n", GraphFormat::Htsim),
            ("5 1 4\n4\n", GraphFormat::Hpcc),
            ("5 1 1 4\n4\n", GraphFormat::Hpcc),
            ("from,to,gbps,delay_ns\n", GraphFormat::Links),
            ("h0,s0,10,500\n", GraphFormat::Links),
            ("", GraphFormat::Links),
        ];
        for (text, format) in cases {
            assert_eq!(recognise(text), format, "{text}");
        }
    }
}
