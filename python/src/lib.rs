//! The compiled part of the Python package `homa`: plans, simulations and sweeps of [`homa_lab`]
//! for Python, without any code that decides a number, and calls and servers of [`homa`]
//! for asyncio.
//!
//! | module | what it holds |
//! |---|---|
//! | [`given`] | what callers simulate: a file, a dictionary, keywords |
//! | [`errors`] | the laboratory's errors as exceptions |
//! | [`watch`] | progress, and Ctrl-C while Python waits |
//! | [`arrow`], [`table`] | results as tables that other libraries read without a copy |
//! | [`kept`] | tables as pickle keeps them |
//! | [`simulation`], [`sweep`], [`figures`] | called from `package/homa/*.py` |
//! | [`rpc`] | called from `package/homa/rpc` |
//!
//! Across the border go texts (JSON), numbers and tables; what is only convenience in Python is
//! written in Python. The interpreter is released while anything is simulated.

mod arrow;
mod errors;
mod figures;
mod given;
mod kept;
mod rpc;
mod simulation;
mod sweep;
mod table;
mod watch;

/// The compiled part of `homa`: use the package.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::figures::{report, repro, repro_list};
    #[pymodule_export]
    use super::rpc::writer::{RequestWriter, ResponseWriter};
    #[pymodule_export]
    use super::rpc::{endpoint::Endpoint, incoming::Incoming, keys::Keys, service::Service};
    #[pymodule_export]
    use super::simulation::{Simulation, simulate};
    #[pymodule_export]
    use super::sweep::{Sweep, SweepResults, perform_task};
    #[pymodule_export]
    use super::table::Table;

    /// The version of the crates.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = homa_lab::store::VERSION;
}
