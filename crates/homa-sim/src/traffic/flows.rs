//! A list of messages: rows of `id,src,dst,bytes,start_ns`, in any order of time, or of the columns
//! that a header names.
//!
//! A first row that holds anything but numbers is taken for a header, and refused if it lacks a
//! column: a message with a mistyped number must not be left out.

use std::fmt;

use homa_workload::sizes::MAX_BYTES;
use homa_workload::text::{TableHead, TextRow, plain, rows, whole};

use crate::time::SimTime;

use super::open_loop::ScheduledMessage;

/// The latest start, 104 days, which is half of the range of simulated time.
const LAST_NS: u64 = u64::MAX / 2_000;

/// An error in a list of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowError {
    /// Line, from 1.
    pub line: usize,
    /// The expected content of the line.
    pub expected: String,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.expected)
    }
}

impl std::error::Error for FlowError {}

/// The columns of a list without a header.
const COLUMNS: [&str; 5] = ["id", "src", "dst", "bytes", "start_ns"];

/// The columns that a list must have: an `id` is for people.
const NEEDED: [&str; 4] = ["src", "dst", "bytes", "start_ns"];

/// Where the fields of a row are.
struct FlowColumns {
    places: [usize; 4],
    columns: usize,
    /// Without a header, a first field that is no number may be one that is missing.
    has_id: bool,
}

impl FlowColumns {
    /// Of a list without a header.
    const PLAIN: Self = Self { places: [1, 2, 3, 4], columns: COLUMNS.len(), has_id: true };

    /// Of the columns that a header names.
    fn named(header: &TextRow<'_>) -> Result<Self, FlowError> {
        let head = TableHead::new(header);
        let mut places = [0; 4];
        for (place, name) in places.iter_mut().zip(NEEDED) {
            *place = head.find(name).map_err(|error| FlowError {
                line: header.line,
                expected: format!(
                    "{error}; a list begins with the names {} in any order, or with a row of \
                     whole numbers in this order",
                    COLUMNS.join(",")
                ),
            })?;
        }
        Ok(Self { places, columns: head.columns(), has_id: false })
    }

    fn message(&self, row: &TextRow<'_>) -> Result<ScheduledMessage, String> {
        let (found, needed) = (row.fields.len(), self.columns);
        if found != needed {
            return Err(format!("expected {needed} fields, found {found}"));
        }
        if self.has_id && whole(row.fields[0]).is_none() {
            return Err(format!("id: expected a whole number, found `{}`", row.fields[0]));
        }
        let mut numbers = [0; 4];
        for ((number, place), name) in numbers.iter_mut().zip(self.places).zip(NEEDED) {
            let field = row.fields[place];
            *number = whole(field)
                .ok_or_else(|| format!("{name}: expected a whole number, found `{field}`"))?;
        }
        let [src, dst, bytes, start_ns] = numbers;
        let (Ok(src), Ok(dst)) = (u32::try_from(src), u32::try_from(dst)) else {
            return Err("src and dst are numbers of hosts, from 0".to_owned());
        };
        if src == dst {
            return Err("src and dst are the same host: a message needs two".to_owned());
        }
        let Some(bytes) = u32::try_from(bytes).ok().filter(|it| (1..=MAX_BYTES).contains(it))
        else {
            return Err(format!("bytes must be 1 to {MAX_BYTES}"));
        };
        if start_ns > LAST_NS {
            return Err(format!(
                "start_ns must be at most {LAST_NS}: count from the list's beginning"
            ));
        }
        Ok(ScheduledMessage { at: SimTime(start_ns * 1_000), src, dst, bytes })
    }
}

/// Reads a list. Messages are sorted by start time, equals in the order of the list. Columns that
/// are not needed are ignored.
pub fn parse(text: &str) -> Result<Vec<ScheduledMessage>, FlowError> {
    let text = plain(text);
    let mut rows = rows(&text).peekable();
    let is_number = |field: &&str| field.parse::<f64>().is_ok();
    let header = rows.next_if(|row| !row.fields.iter().all(is_number));
    let layout = header.as_ref().map_or(Ok(FlowColumns::PLAIN), FlowColumns::named)?;
    let message = |row: TextRow<'_>| {
        layout.message(&row).map_err(|expected| FlowError { line: row.line, expected })
    };
    let mut arrivals = rows.map(message).collect::<Result<Vec<_>, _>>()?;
    // The sort is stable, so the list's order decides between equals.
    arrivals.sort_by_key(|arrival| arrival.at);
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_by_start_time() {
        let text = "id,src,dst,bytes,start_ns\n# later first\n0,107,139,56940,13243\n1,1,2,7,9\n";
        let arrivals = parse(text).unwrap();
        assert_eq!(arrivals[0], ScheduledMessage { at: SimTime(9_000), src: 1, dst: 2, bytes: 7 });
        assert_eq!(arrivals[1].at, SimTime(13_243_000));
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn columns_are_taken_by_their_names_in_any_order() {
        let sent = ScheduledMessage { at: SimTime(10_000), src: 3, dst: 5, bytes: 200_000 };
        let tables = [
            "src,dst,id,bytes,start_ns\n3,5,1,200000,10\n",
            "bytes;start_ns;src;dst\n200000;10;3;5\n",
            "\u{feff}START_NS\tsrc\tbytes\tdst\tnote\r\n10\t3\t2e5\t5\tlate\r\n",
            ",\"src\",\"dst\",\"bytes\",\"start_ns\"\n0,3.0,5.0,200000.0,10\n",
            "1 3 5 200000 10\n",
        ];
        for table in tables {
            assert_eq!(parse(table).as_deref(), Ok(&[sent][..]), "{table}");
        }
    }

    #[test]
    fn a_first_row_that_is_no_header_is_not_left_out() {
        for (text, said) in [
            ("O,0,1,1000,0\n1,1,2,1000,5\n", "line 1: no column `src`; the first row has o, 0, 1"),
            ("id,src\n0,1,2,3\n", "line 1: no column `dst`; the first row has id, src;"),
            ("src,src,dst,bytes,start_ns\n", "line 1: two columns are named `src`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let head = "id,src,dst,bytes,start_ns";
        let cases = [
            ("0,1,1,3,4", 1),
            ("\n0,1,2,7,4\n0,1,2,x,4", 3),
            ("0,1,2,7,4\nO,1,2,7,4", 2),
            ("0,1,2,0,4", 1),
            ("0,1,2,3", 1),
            ("0,1,2,3.5,4", 1),
            ("#\nid,src,dst,bytes,start_ns\n0,1,2,3,4\n\n0,1,2,3\n", 5),
            ("src,dst,bytes,start_ns\n0,1,2,3,4\n", 2),
        ];
        for (text, line) in cases {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
        assert_eq!(parse(head), Ok(Vec::new()));
        let says = |text: &str| parse(text).unwrap_err().to_string();
        assert!(says("0,1,1,3,4").contains("same host"));
        // Limits of transports and of simulated time.
        assert!(says("0,1,2,2147483648,4").contains("1 to 2147483647"));
        assert!(says("0,1,2,3,1700000000000000000").contains("start_ns"));
        assert_eq!(parse("0,1,2,2147483647,9000000000000000").unwrap()[0].bytes, 2_147_483_647);
    }
}
