//! Text files as people's programs write them, and the rows of the tables in them.
//!
//! Spreadsheets begin a file with a byte order mark, end lines with CR and LF, and save "Unicode
//! text" in UTF-16. Generators of other simulators separate fields by blanks. All lists and tables
//! that this project reads come through here, so that a form that one of them takes is taken by
//! all.
//!
//! Invariants: lines have the numbers that an editor shows; nothing is guessed about a byte that
//! is no text: its line is named. Left out: fields that contain their own separator.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;

/// The byte order mark, as text.
const MARK: char = '\u{feff}';

/// Reads a file of text: UTF-8, or UTF-16 with a byte order mark.
///
/// # Errors
///
/// What the system says; [`io::ErrorKind::InvalidData`] names the line of bytes that are no text.
pub fn read(path: &Path) -> io::Result<String> {
    decode(std::fs::read(path)?)
}

/// The text of a file's bytes, as [`read`] has it.
pub fn decode(bytes: Vec<u8>) -> io::Result<String> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let wide = match bytes.first_chunk() {
        Some([0xff, 0xfe]) => Some(u16::from_le_bytes as fn([u8; 2]) -> u16),
        Some([0xfe, 0xff]) => Some(u16::from_be_bytes as fn([u8; 2]) -> u16),
        _ => None,
    };
    let text = match wide {
        Some(unit) => {
            let (units, odd) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|pair| unit(*pair)).collect();
            let text = String::from_utf16(&units).ok().filter(|_| odd.is_empty());
            text.ok_or_else(|| wrong("the file is damaged UTF-16: save it as UTF-8".to_owned()))?
        }
        None => String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            wrong(format!("line {line} is not UTF-8 text: save the file as UTF-8"))
        })?,
    };
    Ok(plain(&text).into_owned())
}

/// A text without its byte order mark, and with LF alone at the ends of its lines.
pub fn plain(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches(MARK);
    match text.contains('\r') {
        true => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
        false => Cow::Borrowed(text),
    }
}

/// A line of a table, other than empty lines and comments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRow<'a> {
    /// Its number, from 1.
    pub line: usize,
    /// Its fields, without the blanks and quotes around them; at least one.
    pub fields: Vec<&'a str>,
}

/// The rows of a [`plain`] text. Fields are separated by semicolons, commas or tabs, whichever a
/// line has, otherwise by blanks. A `#` at the beginning of a line or after a blank begins a
/// comment; empty fields at the end of a line are those of a spreadsheet, and left out.
pub fn rows(text: &str) -> impl Iterator<Item = TextRow<'_>> {
    (1..).zip(text.lines()).filter_map(|(line, content)| {
        let fields = fields(without_comment(content).trim());
        (!fields.is_empty()).then_some(TextRow { line, fields })
    })
}

fn without_comment(line: &str) -> &str {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(begins);
    &line[..comment.unwrap_or(line.len())]
}

fn fields(line: &str) -> Vec<&str> {
    let mut fields: Vec<&str> = match [';', ',', '\t'].into_iter().find(|c| line.contains(*c)) {
        Some(separator) => line.split(separator).map(bare).collect(),
        None => line.split_whitespace().map(bare).collect(),
    };
    while fields.last().is_some_and(|field| field.is_empty()) {
        fields.pop();
    }
    fields
}

fn bare(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field).trim()
}

/// The names above the columns of a table, in any order and either case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableHead {
    names: Vec<String>,
}

/// A mistake in the names or the length of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadError {
    /// No column has this name; the names that there are.
    Missing(String, Vec<String>),
    /// Two columns have this name.
    Twice(String),
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name, found) => {
                let found: Vec<&str> =
                    found.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
                write!(f, "no column `{name}`; the first row has {}", found.join(", "))
            }
            Self::Twice(name) => write!(f, "two columns are named `{name}`: keep one"),
        }
    }
}

impl std::error::Error for HeadError {}

impl TableHead {
    /// The head that a row is.
    pub fn new(row: &TextRow<'_>) -> Self {
        Self { names: row.fields.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// The names, in lower case.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.names.len()
    }

    /// The place of the column of that name, which is in lower case.
    pub fn find(&self, name: &str) -> Result<usize, HeadError> {
        let mut found = (0..).zip(&self.names).filter(|(_, known)| *known == name);
        match (found.next(), found.next()) {
            (Some((place, _)), None) => Ok(place),
            (Some(_), Some(_)) => Err(HeadError::Twice(name.to_owned())),
            (None, _) => Err(HeadError::Missing(name.to_owned(), self.names.clone())),
        }
    }
}

/// A whole number from 0 on; `1000.0` and `1e6`, as data frames write them, are whole, too.
pub fn whole(field: &str) -> Option<u64> {
    /// Larger numbers are not exact in a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    field.parse().ok().or_else(|| {
        let number: f64 = field.parse().ok()?;
        (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(usize, Vec<&str>)> {
        rows(text).map(|row| (row.line, row.fields)).collect()
    }

    #[test]
    fn a_text_is_the_same_with_any_mark_and_line_ends() {
        let text = "# größe\na,b\n1,2\n";
        let utf16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            format!("\u{feff}{text}").replace('\n', "\r\n").encode_utf16().flat_map(unit).collect()
        };
        let forms = [
            text.as_bytes().to_vec(),
            format!("\u{feff}{text}").into_bytes(),
            text.replace('\n', "\r\n").into_bytes(),
            text.replace('\n', "\r").into_bytes(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
        ];
        for bytes in forms {
            assert_eq!(decode(bytes).unwrap(), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_named_by_their_line() {
        let latin = b"a,b\n# gr\xf6\xdfe\n".to_vec();
        assert_eq!(
            decode(latin).unwrap_err().to_string(),
            "line 2 is not UTF-8 text: save the file as UTF-8"
        );
        for damaged in [b"\xff\xfea".to_vec(), b"\xff\xfe\x00\xd8".to_vec()] {
            assert_eq!(decode(damaged).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(decode(Vec::new()).unwrap(), "");
    }

    #[test]
    fn fields_are_separated_as_the_line_says() {
        for line in ["10,0.5", "10;0.5", "10\t0.5", "  10   0.5 ", "\"10\" , \"0.5\"", "10,0.5,,"] {
            assert_eq!(split(line), [(1, vec!["10", "0.5"])], "{line}");
        }
        assert_eq!(split("h 1, a"), [(1, vec!["h 1", "a"])], "a blank in a name stays");
        assert_eq!(split(",a,b"), [(1, vec!["", "a", "b"])]);
    }

    #[test]
    fn comments_and_empty_lines_are_no_rows() {
        let text = "# head\n\n10 1 # all\n,,,\n   \n\t# more\na#b 2\n";
        assert_eq!(split(text), [(3, vec!["10", "1"]), (7, vec!["a#b", "2"])]);
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let row = TextRow { line: 1, fields: vec!["", "Src", "dst", "dst"] };
        let head = TableHead::new(&row);
        assert_eq!(head.find("src"), Ok(1));
        assert_eq!(head.find("dst"), Err(HeadError::Twice("dst".into())));
        let missing = head.find("bytes").unwrap_err().to_string();
        assert_eq!(missing, "no column `bytes`; the first row has src, dst, dst");
    }

    #[test]
    fn a_whole_number_may_look_like_a_float() {
        let accepted = [("7", 7), ("1000.0", 1_000), ("1e6", 1_000_000), ("0", 0)];
        for (text, number) in accepted {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        assert_eq!(whole("18446744073709551615"), Some(u64::MAX));
        for text in ["1.5", "-1", "nan", "inf", "1e17", "x", ""] {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
