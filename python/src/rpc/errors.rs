//! The errors of calls, replies and addresses as the exceptions of `package/homa/rpc/_errors.py`:
//! one for each, with the same words.

use homa::balance::BalanceError;
use homa::error::WriteError;
use homa::{CallError, KeysError, OpenError, ReplyError, RequestError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// An exception of the given name, with what it says and what can be read from it.
fn exception(py: Python<'_>, name: &str, text: String, figures: &[(&str, u64)]) -> PyErr {
    let made = || {
        let class = py.import("homa.rpc._errors")?.getattr(name)?;
        let exception = class.call1((text,))?;
        for (figure, value) in figures {
            exception.setattr(figure, value)?;
        }
        Ok(PyErr::from_value(exception))
    };
    made().unwrap_or_else(|failure| failure)
}

/// An error number of the system.
fn number(errno: i32) -> u64 {
    errno.unsigned_abs().into()
}

/// What a call that brought no response raises.
pub fn call(py: Python<'_>, error: &CallError) -> PyErr {
    let (name, figures): (_, &[(&str, u64)]) = match *error {
        CallError::EmptyMessage => ("EmptyMessage", &[]),
        CallError::MessageTooLong { length, max } => {
            ("MessageTooLong", &[("length", length as u64), ("max", max.into())])
        }
        CallError::TooManyCalls { max } => ("TooManyCalls", &[("max", max.into())]),
        CallError::TooManyCallsTo { max, .. } => ("TooManyCallsTo", &[("max", max.into())]),
        CallError::SendMemoryFull { held } => ("SendMemoryFull", &[("held", held)]),
        CallError::TooManyPeers { max } => ("TooManyPeers", &[("max", max.into())]),
        CallError::AddressFamily { .. } => ("AddressFamily", &[]),
        CallError::Destination { .. } => ("Destination", &[]),
        CallError::DeadlineExceeded | CallError::RuntimeBlocked | CallError::NewerPeer { .. } => {
            ("DeadlineExceeded", &[])
        }
        CallError::SendRefused { errno } => ("SendRefused", &[("errno", number(errno))]),
        CallError::NotSent { errno } => ("NotSent", &[("errno", number(errno))]),
        CallError::EngineFailed { errno } => ("EngineFailed", &[("errno", number(errno))]),
        CallError::HandshakeRefused { .. } => ("HandshakeRefused", &[]),
        CallError::Unprotected { .. } => ("Unprotected", &[]),
        CallError::Unreachable => ("Unreachable", &[]),
        CallError::HostUnreachable => ("HostUnreachable", &[]),
        CallError::ProtocolUnreachable => ("ProtocolUnreachable", &[]),
        CallError::PortUnreachable => ("PortUnreachable", &[]),
        CallError::Indeterminate => ("Indeterminate", &[]),
        CallError::RequestTooLong { max } => ("RequestTooLong", &[("max", max.into())]),
        CallError::Abandoned => ("Abandoned", &[]),
        CallError::Overloaded => ("Overloaded", &[]),
        CallError::ResponseTooLong { length, max } => {
            ("ResponseTooLong", &[("length", length.into()), ("max", max.into())])
        }
        CallError::ShuttingDown => ("ShuttingDown", &[]),
        CallError::Forked => ("Forked", &[]),
        // Of later versions.
        _ => ("CallError", &[]),
    };
    exception(py, name, error.to_string(), figures)
}

/// What a call to one of several servers raises.
pub fn balance(py: Python<'_>, error: &BalanceError) -> PyErr {
    match error {
        BalanceError::Call(error) => call(py, error),
        BalanceError::Late => exception(py, "DeadlineExceeded", error.to_string(), &[]),
        // No servers, and what later versions add.
        error => exception(py, "NoServers", error.to_string(), &[]),
    }
}

/// What a reply that could not be sent raises.
pub fn reply(py: Python<'_>, error: &ReplyError) -> PyErr {
    let (name, figures): (_, &[(&str, u64)]) = match *error {
        ReplyError::EmptyMessage => ("EmptyReply", &[]),
        ReplyError::MessageTooLong { length, max } => {
            ("ReplyTooLong", &[("length", length as u64), ("max", max.into())])
        }
        ReplyError::Gone => ("Gone", &[]),
        ReplyError::Forked => ("Forked", &[]),
        _ => ("ReplyError", &[]),
    };
    exception(py, name, error.to_string(), figures)
}

/// What reading a request that is arriving raises.
pub fn piece(py: Python<'_>, error: RequestError) -> PyErr {
    let name = if error == RequestError::Forked { "Forked" } else { "Gone" };
    exception(py, name, error.to_string(), &[])
}

/// What writing a message that is sent meanwhile raises.
pub fn write(py: Python<'_>, error: WriteError) -> PyErr {
    match error {
        WriteError::Gone => exception(py, "Gone", error.to_string(), &[]),
        WriteError::Forked => exception(py, "Forked", error.to_string(), &[]),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// A key file that cannot be used.
pub fn keys(py: Python<'_>, error: &KeysError) -> PyErr {
    exception(py, "OpenError", error.to_string(), &[])
}

/// What an address that cannot be had, or a limit that cannot be, raises; `errno` is the system's.
pub fn open(py: Python<'_>, error: &OpenError) -> PyErr {
    let (name, code) = match error {
        OpenError::InUse { .. } => ("AddressInUse", Some(libc::EADDRINUSE)),
        OpenError::Bind { source, .. } | OpenError::Resources(source) => {
            ("OpenError", source.raw_os_error())
        }
        _ => ("OpenError", None),
    };
    let Some(code) = code else { return exception(py, name, error.to_string(), &[]) };
    let made = || {
        let class = py.import("homa.rpc._errors")?.getattr(name)?;
        Ok(PyErr::from_value(class.call1((code, error.to_string()))?))
    };
    made().unwrap_or_else(|failure: PyErr| failure)
}

/// The system refused descriptors.
pub fn refused(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}
