//! The text form of a size distribution: rows of a size and the share of messages of at most that.
//!
//! A table with the header `size_bytes,cumulative_fraction` is one of this project, and its rows
//! are steps. Generators of other simulators (HPCC, the ns-3 and pFabric studies) write points
//! without a header, separated by blanks, in per cent or fractions, and draw linearly between
//! them; as steps, their means would be up to 80 % too large. So rows without that header are
//! points of lines, unless the [`Reading`] says otherwise.
//!
//! A first row of one number is a mean or the number of rows. Three columns are pFabric's form:
//! packets, a constant, the share. Every error names the line and the expected form.

use std::fmt;

use super::reading::{Between, Reading, Shares, TableForm};
use super::{MAX_BYTES, PACKET_BYTES, SizeStep, lines};
use crate::text::{HeadError, TableHead, TextRow, plain, rows};
use crate::units::Quantity;

/// The columns of a table of this project.
const OWN: [&str; 2] = ["size_bytes", "cumulative_fraction"];

/// Other names of the column of sizes, and whether it counts packets.
const SIZES: [(&str, bool); 5] = [
    ("size_bytes", false),
    ("bytes", false),
    ("size", false),
    ("flow_size", false),
    ("packets", true),
];

/// Names of the column of shares, and their unit if the name says it.
const SHARES: [(&str, Option<Shares>); 6] = [
    ("cumulative_fraction", Some(Shares::Fractions)),
    ("cumulative_percent", Some(Shares::Percent)),
    ("fraction", Some(Shares::Fractions)),
    ("percent", Some(Shares::Percent)),
    ("cumulative", None),
    ("cdf", None),
];

/// How far the last share may be from 1 before the table counts as incomplete.
const LAST_SHARE_TOLERANCE: f64 = 1e-6;

/// A size table that cannot be used.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableError {
    /// The line at fault, counted from 1.
    pub line: usize,
    /// The mistake.
    pub kind: TableErrorKind,
}

/// Mistakes in a line of a size table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The first row names columns, but none of sizes or none of shares.
    Header(Vec<String>),
    /// Two columns of the header have the same name.
    Twice(String),
    /// A row does not have as many fields as the others.
    Fields,
    /// Three columns, and the middle one is not constant, as it is in pFabric's form.
    Middle,
    /// The size is no number of bytes up to [`MAX_BYTES`], or no whole one where steps need it;
    /// holds the text found.
    Size(String),
    /// The share is no number from 0 to 1, or 0 to 100 per cent; holds the text found.
    Share(String),
    /// The size is below the one before, or the same in a table of this project; that size.
    SizeOrder(f64),
    /// The share is smaller than the one of the row before.
    ShareOrder,
    /// Messages of no bytes.
    Nothing,
    /// The size in packets is beyond the longest message, as it would not be in bytes.
    Packets(u32),
    /// The table ends before the share reaches 1, or 100 per cent: the last share, and its unit if
    /// it was given.
    Incomplete(f64, Option<Shares>),
    /// There is no row at all.
    Empty,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            TableErrorKind::Header(found) => write!(
                f,
                "the first row has {}: expected the header `{}`, or `cumulative_percent` or \
                 `packets` in it, or no header",
                found.join(", "),
                OWN.join(",")
            ),
            TableErrorKind::Twice(name) => HeadError::Twice(name.clone()).fmt(f),
            TableErrorKind::Fields => f.write_str(
                "expected a size and a cumulative share, for example `1000,0.95`, as in the other \
                 rows",
            ),
            TableErrorKind::Middle => f.write_str(
                "of three columns the middle one is always the same (packets, 1, share, as pFabric \
                 has them): leave out the column that holds neither sizes nor shares",
            ),
            TableErrorKind::Size(found) => {
                write!(f, "expected a size in whole bytes, 1 to {MAX_BYTES}, found `{found}`")
            }
            TableErrorKind::Share(found) => write!(
                f,
                "expected a cumulative fraction from 0 to 1, or per cent from 0 to 100, found \
                 `{found}`"
            ),
            TableErrorKind::SizeOrder(before) => {
                write!(f, "expected a size above {before}, the one before: sort the rows by size")
            }
            TableErrorKind::ShareOrder => f.write_str(
                "the cumulative share falls: give the share of messages of at most this size, not \
                 the share of this size alone",
            ),
            TableErrorKind::Nothing => {
                f.write_str("messages of 0 bytes: a message has at least one, so give 0 no share")
            }
            TableErrorKind::Packets(bytes) => write!(
                f,
                "packets of {bytes} B make this longer than any message: if sizes are bytes, write \
                 `bytes:FILE`"
            ),
            TableErrorKind::Incomplete(last, unit) => incomplete(*last, *unit, f),
            TableErrorKind::Empty => f.write_str("expected at least one row, such as `1000,1`"),
        }
    }
}

fn incomplete(last: f64, unit: Option<Shares>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match unit {
        Some(Shares::Percent) if last <= 1.0 => write!(
            f,
            "the last share is {last} per cent; the last must be 100: are these fractions? \
             `fraction:FILE` reads them so"
        ),
        Some(Shares::Percent) => {
            write!(
                f,
                "the last share is {last} per cent; the last must be 100: add the largest size"
            )
        }
        Some(Shares::Fractions) => write!(
            f,
            "the last cumulative fraction is {last}; it must be 1: add the largest size, or, if \
             these are per cent, write `percent:FILE`"
        ),
        None => write!(
            f,
            "the last share is {last}; it must be 1, or 100 in per cent: add the largest size \
             (`percent:FILE` and `fraction:FILE` say which of the two it is)"
        ),
    }
}

impl std::error::Error for TableError {}

/// A row as it stands there.
struct SizePoint<'a> {
    line: usize,
    /// In the table's unit.
    size: f64,
    written: &'a str,
    share: f64,
}

/// Which columns are what.
struct SizeColumns {
    size: usize,
    share: usize,
    all: usize,
    /// Of three columns without names: what the middle one has.
    middle: Option<String>,
    /// A table of this project.
    own: bool,
    packets: bool,
    shares: Option<Shares>,
}

impl SizeColumns {
    fn named(row: &TextRow<'_>) -> Result<Self, TableErrorKind> {
        let head = TableHead::new(row);
        let place = |name: &str| match head.find(name) {
            Ok(place) => Ok(Some(place)),
            Err(HeadError::Twice(name)) => Err(TableErrorKind::Twice(name)),
            Err(_) => Ok(None),
        };
        let (mut size, mut share) = (None, None);
        for (name, packets) in SIZES {
            size = size.or(place(name)?.map(|place| (place, name, packets)));
        }
        for (name, unit) in SHARES {
            share = share.or(place(name)?.map(|place| (place, name, unit)));
        }
        let (Some((size, size_name, packets)), Some((share, share_name, shares))) = (size, share)
        else {
            return Err(TableErrorKind::Header(head.names().to_vec()));
        };
        let own = [size_name, share_name] == OWN;
        Ok(Self { size, share, all: head.columns(), middle: None, own, packets, shares })
    }

    fn plain(row: &TextRow<'_>) -> Result<Self, TableErrorKind> {
        let all = row.fields.len();
        if !(2..=3).contains(&all) {
            return Err(TableErrorKind::Fields);
        }
        let packets = all == 3;
        let middle = packets.then(|| row.fields[1].to_owned());
        Ok(Self { size: 0, share: all - 1, all, middle, own: false, packets, shares: None })
    }

    fn point<'a>(&mut self, row: &TextRow<'a>) -> Result<SizePoint<'a>, TableErrorKind> {
        if row.fields.len() != self.all {
            return Err(TableErrorKind::Fields);
        }
        if self.middle.as_ref().is_some_and(|middle| middle != row.fields[1]) {
            return Err(TableErrorKind::Middle);
        }
        let (written, share) = (row.fields[self.size], row.fields[self.share]);
        let size = size(written).ok_or_else(|| TableErrorKind::Size(written.to_owned()))?;
        let bare = share.strip_suffix('%');
        if bare.is_some() {
            self.shares = self.shares.or(Some(Shares::Percent));
        }
        let value = bare.unwrap_or(share).trim_end();
        let share = number(value).ok_or_else(|| TableErrorKind::Share(share.to_owned()))?;
        Ok(SizePoint { line: row.line, size, written, share })
    }
}

/// A number from 0 on.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// A size in the table's unit: a number, or bytes such as `10KB`.
fn size(text: &str) -> Option<f64> {
    number(text).or_else(|| Quantity::Bytes.parse(text).ok().map(|bytes| bytes as f64))
}

/// Reads a whole table.
pub(super) fn parse(
    text: &str,
    reading: Reading,
) -> Result<(Vec<SizeStep>, TableForm), TableError> {
    let text = plain(text);
    let mut rows = rows(&text).peekable();
    let at = |line| move |kind| TableError { line, kind };
    let alone = |row: &TextRow<'_>| row.fields.len() == 1 && number(row.fields[0]).is_some();
    let alone = rows.next_if(alone);
    let first = rows.peek().or(alone.as_ref()).cloned();
    let Some(first) = first else { return Err(at(1)(TableErrorKind::Empty)) };
    let header = rows.next_if(is_header);
    let columns =
        if header.is_some() { SizeColumns::named(&first) } else { SizeColumns::plain(&first) };
    let mut columns = columns.map_err(at(first.line))?;
    let mut points: Vec<SizePoint<'_>> = Vec::new();
    for row in rows {
        points.push(columns.point(&row).map_err(at(row.line))?);
    }
    let Some(last) = points.last() else { return Err(at(first.line)(TableErrorKind::Empty)) };
    let shares = unit(last.share, reading.shares.or(columns.shares)).map_err(at(last.line))?;
    let own = if columns.own { Between::Steps } else { Between::Lines };
    let stated = alone.and_then(|row| number(row.fields[0]));
    let form = TableForm {
        between: reading.between.unwrap_or(own),
        shares,
        packet: reading.packet.unwrap_or(if columns.packets { PACKET_BYTES } else { 1 }),
        points: points.len(),
        stated: stated.filter(|number| *number != points.len() as f64),
    };
    let scaled = checked(&points, &form, columns.own)?;
    let steps = match form.between {
        Between::Steps => steps(&scaled).map_err(|index| {
            let SizePoint { line, written, .. } = points[index];
            at(line)(TableErrorKind::Size(written.to_owned()))
        })?,
        Between::Lines => lines::steps(&scaled),
    };
    Ok((steps, form))
}

/// Whether a first row names columns: it has no number. A row with a number is one of the table,
/// perhaps with a mistake.
fn is_header(row: &TextRow<'_>) -> bool {
    !row.fields.iter().any(|field| field.trim_end_matches('%').parse::<f64>().is_ok())
}

/// The unit in which the last share is the whole.
fn unit(last: f64, given: Option<Shares>) -> Result<Shares, TableErrorKind> {
    let whole = |unit: Shares| (last / unit.whole() - 1.0).abs() <= LAST_SHARE_TOLERANCE;
    let found = match given {
        Some(unit) => Some(unit).filter(|unit| whole(*unit)),
        None => [Shares::Fractions, Shares::Percent].into_iter().find(|unit| whole(*unit)),
    };
    found.ok_or(TableErrorKind::Incomplete(last, given))
}

/// Sizes in bytes and shares from 0 to 1, in order; the last share is exactly 1.
fn checked(
    points: &[SizePoint<'_>],
    form: &TableForm,
    own: bool,
) -> Result<Vec<(f64, f64)>, TableError> {
    let mut scaled: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    let mut before: Option<&SizePoint<'_>> = None;
    for point in points {
        let fail = |kind| Err(TableError { line: point.line, kind });
        let bytes = point.size * f64::from(form.packet);
        let share = point.share / form.shares.whole();
        if bytes > f64::from(MAX_BYTES) && point.size <= f64::from(MAX_BYTES) {
            return fail(TableErrorKind::Packets(form.packet));
        }
        if bytes > f64::from(MAX_BYTES) {
            return fail(TableErrorKind::Size(point.written.to_owned()));
        }
        // Below the first point, nothing occurs; between it and the second, sizes are above 0.
        if bytes == 0.0 && share > 0.0 {
            return fail(TableErrorKind::Nothing);
        }
        if share > 1.0 + LAST_SHARE_TOLERANCE {
            return fail(TableErrorKind::Share(point.share.to_string()));
        }
        if let Some(before) = before {
            if point.size < before.size || (own && point.size == before.size) {
                return fail(TableErrorKind::SizeOrder(before.size));
            }
            if point.share < before.share {
                return fail(TableErrorKind::ShareOrder);
            }
        }
        before = Some(point);
        scaled.push((bytes, share.min(1.0)));
    }
    if let Some(last) = scaled.last_mut() {
        last.1 = 1.0;
    }
    Ok(scaled)
}

/// The steps of a table whose rows are such; the index of a row whose size is no whole number of
/// bytes.
fn steps(points: &[(f64, f64)]) -> Result<Vec<SizeStep>, usize> {
    let mut steps: Vec<SizeStep> = Vec::with_capacity(points.len());
    for (index, &(bytes, cumulative)) in points.iter().enumerate() {
        if bytes.fract() != 0.0 {
            return Err(index);
        }
        // Of two rows of one size, the second has the share of both.
        if steps.last().is_some_and(|step| f64::from(step.bytes) == bytes) {
            steps.pop();
        }
        // A size of 0 has no share.
        if bytes > 0.0 {
            steps.push(SizeStep { bytes: bytes as u32, cumulative });
        }
    }
    Ok(steps)
}
