//! A table of results, as Python sees it: columns by name, and the whole by Arrow's interface.

use std::sync::Arc;

use homa_lab::table as lab;
use homa_sim::measure::latency::Sample;
use pyo3::exceptions::{PyKeyError, PyModuleNotFoundError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::arrow::{ArrowArrayStream, Column, Columns, Presence, Values};
use crate::kept::{Kept, keep, restore};

/// A table of results. Libraries that know Arrow's PyCapsule interface (pandas, polars, pyarrow,
/// DuckDB) read it without a copy; `table["column"]` is a list.
#[pyclass(frozen, module = "homa")]
pub struct Table {
    columns: Arc<Columns>,
}

impl Table {
    /// Columns of the laboratory.
    pub fn of(table: &lab::Table) -> Self {
        let column = |column: &lab::Column| Column {
            name: column.name.clone(),
            values: match &column.values {
                lab::Values::Text(texts) => text(texts),
                lab::Values::Integer(values) => {
                    let plain = values.iter().map(|value| value.unwrap_or_default());
                    Values::Integer(plain.collect(), presence(values))
                }
                lab::Values::Real(values) => {
                    let plain = values.iter().map(|value| value.unwrap_or(f64::NAN));
                    Values::Real(plain.collect(), presence(values))
                }
            },
        };
        let columns = table.columns().iter().map(column).collect();
        Self { columns: Arc::new(Columns { columns, rows: table.rows() }) }
    }

    /// One row per measured message.
    pub fn of_samples(samples: &[Sample], slowdowns: Vec<f64>) -> Self {
        let count = |of: fn(&Sample) -> u32| Values::Count(samples.iter().map(of).collect());
        let real = |values: Vec<f64>| Values::Real(values, Presence::default());
        let micros = samples.iter().map(|sample| sample.latency.0 as f64 / 1e6).collect();
        let columns = [
            ("bytes", count(|sample| sample.bytes)),
            ("latency_us", real(micros)),
            ("slowdown", real(slowdowns)),
            ("receiver", count(|sample| sample.receiver)),
            ("class", count(|sample| u32::from(sample.class))),
        ];
        let column = |(name, values): (&str, Values)| Column { name: name.to_owned(), values };
        let columns = columns.into_iter().map(column).collect();
        Self { columns: Arc::new(Columns { columns, rows: samples.len() }) }
    }
}

fn text(texts: &[String]) -> Values {
    let mut ends = vec![0];
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend(text.as_bytes());
        ends.push(bytes.len() as i64);
    }
    Values::Text { ends, bytes }
}

fn presence<T>(values: &[Option<T>]) -> Presence {
    Presence::of(values.iter().map(Option::is_some))
}

#[pymethods]
impl Table {
    /// A table as pickle keeps it; use the tables of results.
    #[new]
    fn new(rows: usize, columns: Vec<Kept>) -> PyResult<Self> {
        let columns = restore(rows, columns)
            .ok_or_else(|| PyValueError::new_err("the table is damaged: have it pickled again"))?;
        Ok(Self { columns: Arc::new(columns) })
    }

    /// What [`Table::new`] takes: pickle and copy call it.
    fn __getnewargs__(&self) -> (usize, Vec<Kept>) {
        (self.columns.rows, keep(&self.columns))
    }

    /// The names of the columns; those of measures end with their unit.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// As `column_names`: `dict(table)` has a list for each.
    fn keys(&self) -> Vec<&str> {
        self.column_names()
    }

    fn __len__(&self) -> usize {
        self.columns.rows
    }

    fn __repr__(&self) -> String {
        format!("<homa.Table: {} rows, {}>", self.columns.rows, self.column_names().join(", "))
    }

    /// A column as a list; `None` if a value is absent.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let column = self.columns.columns.iter().find(|column| column.name == name);
        let Some(column) = column else {
            let known = self.column_names().join(", ");
            return Err(PyKeyError::new_err(format!("no column `{name}`; there are {known}")));
        };
        match &column.values {
            Values::Text { ends, bytes } => {
                let text = |ends: &[i64]| {
                    String::from_utf8_lossy(&bytes[ends[0] as usize..ends[1] as usize])
                };
                PyList::new(py, ends.windows(2).map(text).collect::<Vec<_>>())
            }
            Values::Integer(values, there) => PyList::new(py, optional(values, there)),
            Values::Real(values, there) => PyList::new(py, optional(values, there)),
            Values::Count(values) => PyList::new(py, values),
        }
    }

    /// The table for libraries that know the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // There is one form; a caller that needs another casts.
        let _ = requested_schema;
        let stream = ArrowArrayStream::new(self.columns.clone());
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// A pandas DataFrame whose columns are this table's memory (`pandas.ArrowDtype`, so that
    /// counts with gaps stay counts). Needs pandas and pyarrow, the package's extra `pandas`.
    fn to_pandas<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let dtype = needed(py, "pandas", "pandas")?.getattr("ArrowDtype")?;
        let table = needed(py, "pyarrow", "pandas")?.call_method1("table", (slf,))?;
        let kwargs = pyo3::types::PyDict::new(py);
        kwargs.set_item("types_mapper", dtype)?;
        table.call_method("to_pandas", (), Some(&kwargs))
    }

    /// A polars DataFrame whose columns are this table's memory. Needs polars, the package's extra
    /// `polars`.
    fn to_polars<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        needed(slf.py(), "polars", "polars")?.call_method1("DataFrame", (slf,))
    }
}

/// A module that an extra of the package installs; the error of a missing one names the extra.
fn needed<'py>(py: Python<'py>, module: &str, extra: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(module).map_err(|error| {
        // An installed package may lack one of its modules, and its error names it.
        let named = error.value(py).getattr("name").and_then(|name| name.extract::<String>());
        if named.ok().as_deref() != Some(module) {
            return error;
        }
        let message = format!("{module} is missing: pip install 'homa-rpc[{extra}]'");
        let missing = PyModuleNotFoundError::new_err(message);
        missing.set_cause(py, Some(error));
        missing
    })
}

fn optional<T: Copy>(values: &[T], there: &Presence) -> Vec<Option<T>> {
    values.iter().enumerate().map(|(place, value)| there.has(place).then_some(*value)).collect()
}
