//! The interface between a pattern of load on the rack (`load`, `incast`, `workflow`) and the loop
//! that measures its rows (`measure`): what each host does, how a run becomes a row, and how rows
//! are shown.

use homa_testbed::{Pattern, Rack, RunReport};
use serde::Serialize;

use super::marking::PlannedRow;
use super::results::report::Judged;
use crate::failure::Failure;
use crate::output::TextTable;

/// A pattern of load at one link rate.
pub trait Rows {
    /// The figures of a run, as they stand in the result.
    type Row: Serialize;

    /// The load of each row.
    fn pattern(&self) -> Pattern<'_>;

    /// Sizes whose idle round trip each row measures, bytes.
    fn idle_sizes(&self) -> &[u32] {
        &[]
    }

    /// The figures of a run.
    fn row(&self, run: &RunReport, planned: PlannedRow, rack: &Rack) -> Result<Self::Row, Failure>;

    /// The figures that the simulator gives for a row; `None` if it has no such row.
    fn simulated(&self, _planned: PlannedRow) -> Result<Option<Self::Row>, Failure> {
        Ok(None)
    }

    /// Promises that a row broke, as sentences.
    fn broken(&self, row: &Self::Row) -> Vec<String>;

    /// The columns for people; the first one is the transport's.
    fn table(&self) -> TextTable;

    /// The offered load, above the table.
    fn offered(&self) -> String;

    /// The cells after the transport's.
    fn cells(&self, row: &Self::Row) -> Vec<String>;

    /// Lines about a row, below the table; more of them if they are asked for.
    fn below(&self, row: &Self::Row, verbose: bool) -> Vec<String>;

    /// The rows in sentences, below everything else.
    fn summary(&self, _rows: &[Judged<Self::Row>]) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
}
