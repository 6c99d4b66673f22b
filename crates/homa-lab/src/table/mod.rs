//! Result tables: columns of one type each, written as CSV for people and Parquet for programs.
//!
//! Both forms hold the same rows in the same order, and the same table gives the same bytes.

mod csv;
mod parquet;

use std::io::ErrorKind;
use std::path::Path;

use crate::error::LabError;
use crate::store::write_atomically;

/// The values of a column; `None` if there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Names.
    Text(Vec<String>),
    /// Counts.
    Integer(Vec<Option<i64>>),
    /// Measures.
    Real(Vec<Option<f64>>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Real(values) => values.len(),
        }
    }
}

/// A named column. The name ends with its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// As in the header.
    pub name: String,
    /// From the first row to the last.
    pub values: Values,
}

/// Columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
}

impl Table {
    /// Adds a column.
    ///
    /// # Panics
    ///
    /// When its length is not that of the others.
    pub fn add(&mut self, name: impl Into<String>, values: Values) {
        if let Some(first) = self.columns.first() {
            assert_eq!(first.values.len(), values.len(), "columns of one length");
        }
        self.columns.push(Column { name: name.into(), values });
    }

    /// Adds a column of names.
    pub fn text(&mut self, name: &str, values: impl Iterator<Item = String>) {
        self.add(name, Values::Text(values.collect()));
    }

    /// Adds a column of counts.
    pub fn integer(&mut self, name: &str, values: impl Iterator<Item = Option<u64>>) {
        let signed = values.map(|value| value.and_then(|value| i64::try_from(value).ok()));
        self.add(name, Values::Integer(signed.collect()));
    }

    /// Adds a column of measures.
    pub fn real(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) {
        self.add(name, Values::Real(values.collect()));
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// As CSV: a header, then the rows.
    pub fn csv(&self) -> String {
        csv::write(self)
    }

    /// As a Parquet file.
    pub fn parquet(&self) -> Vec<u8> {
        parquet::write(self)
    }

    /// Writes `NAME.csv` and `NAME.parquet` into a folder.
    pub fn save(&self, folder: &Path, name: &str) -> Result<(), LabError> {
        write_atomically(&folder.join(format!("{name}.csv")), self.csv().as_bytes())?;
        write_atomically(&folder.join(format!("{name}.parquet")), &self.parquet())
    }

    /// Removes what [`save`](Self::save) wrote for an earlier plan, if it did.
    pub fn remove(folder: &Path, name: &str) -> Result<(), LabError> {
        for form in ["csv", "parquet"] {
            let path = folder.join(format!("{name}.{form}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(LabError::file(&path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
