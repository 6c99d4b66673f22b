//! The laboratory's errors as the exceptions of `package/homa/_errors.py`, and those of files as
//! the system's.

use homa_lab::error::{LabError, PlanFault};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The name that a plan from a dictionary goes by.
pub const DICTIONARY: &str = "the plan";

/// The Python exception for an error.
pub fn raised(py: Python<'_>, error: LabError) -> PyErr {
    made(py, error).unwrap_or_else(|failure| failure)
}

fn made(py: Python<'_>, error: LabError) -> PyResult<PyErr> {
    match error {
        LabError::Plan(fault) => plan_error(py, &fault),
        LabError::Unknown { what, ref name, ref known } => {
            plan_error(py, &PlanFault::unknown(DICTIONARY, what, (name, known)))
        }
        LabError::File { path, source } => {
            let code = source.raw_os_error();
            Ok(PyOSError::new_err((code, source.to_string(), path.display().to_string())))
        }
        // A stop without a reason comes from Ctrl-C.
        LabError::Stopped => Ok(PyKeyboardInterrupt::new_err(())),
        other => {
            let class = py.import("homa._errors")?.getattr("HomaError")?;
            Ok(PyErr::from_value(class.call1((other.to_string(),))?))
        }
    }
}

fn plan_error(py: Python<'_>, fault: &PlanFault) -> PyResult<PyErr> {
    let class = py.import("homa._errors")?.getattr("PlanError")?;
    let of_file = fault.line > 0 && fault.file != DICTIONARY;
    let message = match fault.key.as_str() {
        _ if of_file => fault.to_string(),
        "" => fault.said(),
        key => format!("`{key}`: {}", fault.said()),
    };
    let kwargs = PyDict::new(py);
    kwargs.set_item("key", &fault.key)?;
    kwargs.set_item("allowed", fault.allowed())?;
    kwargs.set_item("file", of_file.then_some(&fault.file))?;
    kwargs.set_item("line", of_file.then_some(fault.line))?;
    Ok(PyErr::from_value(class.call((message,), Some(&kwargs))?))
}
