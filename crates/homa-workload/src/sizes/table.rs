//! The text form of a size distribution: comments, one header line, one row per size.
//!
//! Every error names the line and the expected form. Left out: other separators, units.

use std::fmt;

use super::{MAX_BYTES, SizeStep};

/// The header line a table must have.
const HEADER: &str = "size_bytes,cumulative_fraction";

/// How far the last share may be from 1 before the table counts as incomplete.
const LAST_SHARE_TOLERANCE: f64 = 1e-6;

/// A size table that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableError {
    /// The line at fault, counted from 1.
    pub line: usize,
    /// The mistake.
    pub kind: TableErrorKind,
}

/// Mistakes in a line of a size table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The first line that is no comment is not the header.
    Header,
    /// A row does not have exactly two fields.
    Fields,
    /// The size is no whole number of bytes from 1 to [`MAX_BYTES`]; holds the text found.
    Size(String),
    /// The share is no number from 0 to 1; holds the text found.
    Share(String),
    /// The size is not larger than the one before, whose bytes are given.
    SizeOrder(u32),
    /// The share is smaller than the one of the row before.
    ShareOrder,
    /// The table ends before the share reaches 1.
    Incomplete,
    /// There is no row at all.
    Empty,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            TableErrorKind::Header => write!(f, "expected the header `{HEADER}`"),
            TableErrorKind::Fields => {
                write!(f, "expected two fields, `{HEADER}`, for example `1000,0.95`")
            }
            TableErrorKind::Size(found) => {
                write!(f, "expected a size in whole bytes, 1 to {MAX_BYTES}, found `{found}`")
            }
            TableErrorKind::Share(found) => {
                write!(f, "expected a cumulative fraction from 0 to 1, found `{found}`")
            }
            TableErrorKind::SizeOrder(before) => {
                write!(f, "expected a size above {before}, the one before: sort the rows by size")
            }
            TableErrorKind::ShareOrder => f.write_str(
                "the cumulative fraction falls: give the share of messages of at most this size, \
                 not the share of this size alone",
            ),
            TableErrorKind::Incomplete => {
                f.write_str("the last cumulative fraction must be 1: add the largest size")
            }
            TableErrorKind::Empty => f.write_str("expected at least one row, such as `1000,1`"),
        }
    }
}

impl std::error::Error for TableError {}

/// Reads a whole table.
pub(super) fn parse(text: &str) -> Result<Vec<SizeStep>, TableError> {
    let mut steps: Vec<SizeStep> = Vec::new();
    let mut header_seen = false;
    let mut last_line = 1;
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        last_line = line;
        let fail = |kind| TableError { line, kind };
        if !header_seen {
            if content.split(',').map(bare).collect::<Vec<_>>().join(",") != HEADER {
                return Err(fail(TableErrorKind::Header));
            }
            header_seen = true;
            continue;
        }
        let step = parse_row(content).map_err(fail)?;
        if let Some(before) = steps.last() {
            if step.bytes <= before.bytes {
                return Err(fail(TableErrorKind::SizeOrder(before.bytes)));
            }
            if step.cumulative < before.cumulative {
                return Err(fail(TableErrorKind::ShareOrder));
            }
        }
        steps.push(step);
    }
    let end = |kind| TableError { line: last_line, kind };
    let Some(last) = steps.last_mut() else {
        return Err(end(TableErrorKind::Empty));
    };
    if 1.0 - last.cumulative > LAST_SHARE_TOLERANCE {
        return Err(end(TableErrorKind::Incomplete));
    }
    last.cumulative = 1.0;
    Ok(steps)
}

/// A field without the blanks and quotes around it.
fn bare(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field).trim()
}

fn parse_row(content: &str) -> Result<SizeStep, TableErrorKind> {
    let (size, share) = content.split_once(',').ok_or(TableErrorKind::Fields)?;
    let (size, share) = (bare(size), bare(share));
    if share.contains(',') {
        return Err(TableErrorKind::Fields);
    }
    let bytes: u32 = match size.parse() {
        Ok(bytes) if (1..=MAX_BYTES).contains(&bytes) => bytes,
        _ => return Err(TableErrorKind::Size(size.to_owned())),
    };
    let cumulative: f64 = match share.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => value,
        _ => return Err(TableErrorKind::Share(share.to_owned())),
    };
    Ok(SizeStep { bytes, cumulative })
}
