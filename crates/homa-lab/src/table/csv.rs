//! CSV as RFC 4180 has it, with `\n`; numbers in their shortest exact form, measures with a point
//! (a reader takes a column without any for whole numbers), absent values empty.

use std::fmt::Write;

use super::{Table, Values};

pub(super) fn write(table: &Table) -> String {
    let names: Vec<String> = table.columns().iter().map(|column| quoted(&column.name)).collect();
    let mut out = names.join(",") + "\n";
    for row in 0..table.rows() {
        for (index, column) in table.columns().iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            cell(&mut out, &column.values, row);
        }
        out.push('\n');
    }
    out
}

fn cell(out: &mut String, values: &Values, row: usize) {
    // Writing to a string cannot fail.
    let _ = match values {
        Values::Text(values) => write!(out, "{}", quoted(&values[row])),
        Values::Integer(values) => values[row].map_or(Ok(()), |value| write!(out, "{value}")),
        Values::Real(values) => match values[row] {
            Some(value) if value.fract() == 0.0 => write!(out, "{value:.1}"),
            Some(value) => write!(out, "{value}"),
            None => Ok(()),
        },
    };
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_have_a_point_although_all_are_whole() {
        let mut table = Table::default();
        table.real("share", [Some(0.0), Some(-3.0), None, Some(0.1)].into_iter());
        assert_eq!(table.csv(), "share\n0.0\n-3.0\n\n0.1\n");
    }

    #[test]
    fn text_with_commas_is_quoted_and_absent_values_are_empty() {
        let mut table = Table::default();
        table.text("name", ["a,b", "say \"x\""].map(String::from).into_iter());
        table.integer("count", [Some(3), None].into_iter());
        table.real("share", [None, Some(0.1)].into_iter());
        let expected = "name,count,share\n\"a,b\",3,\n\"say \"\"x\"\"\",,0.1\n";
        assert_eq!(table.csv(), expected);
    }
}
