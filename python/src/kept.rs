//! Columns of a table as pickle keeps them: names, kinds and bytes, the same on every machine.
//!
//! What comes back is checked before it becomes memory that other libraries read: a damaged pickle
//! is an error, never a column that ends beyond its bytes.

use crate::arrow::{Column, Columns, Presence, Values};

/// A column: its name, its kind, its values, and beside them the ends of its texts, or one bit for
/// each value that is there (none if all are).
pub type Kept = (String, String, Vec<u8>, Vec<u8>);

/// The columns of a table.
pub fn keep(columns: &Columns) -> Vec<Kept> {
    let column = |column: &Column| {
        let (kind, values, beside) = match &column.values {
            Values::Text { ends, bytes } => ("text", bytes.clone(), little(ends, i64::to_le_bytes)),
            Values::Integer(values, there) => {
                ("integer", little(values, i64::to_le_bytes), there.bits().to_vec())
            }
            Values::Real(values, there) => {
                ("real", little(values, f64::to_le_bytes), there.bits().to_vec())
            }
            Values::Count(values) => ("count", little(values, u32::to_le_bytes), Vec::new()),
        };
        (column.name.clone(), kind.to_owned(), values, beside)
    };
    columns.columns.iter().map(column).collect()
}

/// The columns of `rows` rows that were kept; `None` if they are damaged.
pub fn restore(rows: usize, kept: Vec<Kept>) -> Option<Columns> {
    let column = |(name, kind, values, beside): Kept| {
        let values = match kind.as_str() {
            "text" => text(rows, values, &beside)?,
            "integer" => {
                Values::Integer(read(rows, &values, i64::from_le_bytes)?, presence(rows, &beside)?)
            }
            "real" => {
                Values::Real(read(rows, &values, f64::from_le_bytes)?, presence(rows, &beside)?)
            }
            "count" => Values::Count(read(rows, &values, u32::from_le_bytes)?),
            _ => return None,
        };
        Some(Column { name, values })
    };
    let columns = kept.into_iter().map(column).collect::<Option<Vec<_>>>()?;
    Some(Columns { columns, rows })
}

fn little<T: Copy, const N: usize>(values: &[T], bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn read<T, const N: usize>(rows: usize, bytes: &[u8], value: fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (values, rest) = bytes.as_chunks::<N>();
    let fits = values.len() == rows && rest.is_empty();
    fits.then(|| values.iter().map(|bytes| value(*bytes)).collect())
}

fn text(rows: usize, bytes: Vec<u8>, ends: &[u8]) -> Option<Values> {
    let ends = read(rows.checked_add(1)?, ends, i64::from_le_bytes)?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let is_whole = |end: &i64| usize::try_from(*end).is_ok_and(|end| text.is_char_boundary(end));
    let fits = ends.first() == Some(&0)
        && ends.last().is_some_and(|last| usize::try_from(*last) == Ok(bytes.len()))
        && ends.is_sorted()
        && ends.iter().all(is_whole);
    fits.then_some(Values::Text { ends, bytes })
}

fn presence(rows: usize, bits: &[u8]) -> Option<Presence> {
    if bits.is_empty() {
        return Some(Presence::default());
    }
    let has = |place: usize| bits[place / 8] & (1 << (place % 8)) != 0;
    (bits.len() == rows.div_ceil(8)).then(|| Presence::of((0..rows).map(has)))
}
