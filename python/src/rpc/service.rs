//! A name that stands for several servers: balancing, retries and hedging of [`homa::balance`].
//!
//! Calls are futures of the endpoint, so the event loop polls them and drives the engine. Lookups
//! and timers have a thread, which never needs the interpreter.

use std::time::{Duration, Instant};

use homa::balance::{Balancer, Config, Target, TargetError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::endpoint::{Endpoint, Started, options, seconds};
use super::incoming::Incoming;
use super::tasks::Outcome;
use super::{buffer, errors};

/// `homa.rpc.Service` is made of one.
#[pyclass(frozen, module = "homa.rpc")]
pub struct Service(Balancer);

fn refused(error: TargetError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Service {
    /// Looks up a target, or several names with ports.
    #[new]
    #[pyo3(signature = (target, names, retries, hedge, hedge_after, wait_for_ready))]
    fn new(
        py: Python<'_>,
        target: Option<&str>,
        names: Vec<String>,
        retries: f64,
        hedge: f64,
        hedge_after: Option<f64>,
        wait_for_ready: bool,
    ) -> PyResult<Self> {
        let target = match target {
            Some(target) => target.parse::<Target>(),
            None => Target::names(names),
        };
        let config = Config::default()
            .retry_budget(retries)
            .hedge_budget(hedge)
            .hedge_after(hedge_after.map(seconds).transpose()?)
            .wait_for_ready(wait_for_ready);
        let balancer = Balancer::detached(target.map_err(refused)?, config);
        balancer.map(Self).map_err(|error| errors::open(py, &error))
    }

    /// The addresses that are known now.
    #[getter]
    fn servers(&self) -> Vec<String> {
        self.0.servers().iter().map(ToString::to_string).collect()
    }

    /// Waits for the first lookup.
    fn connected<'py>(
        &self,
        py: Python<'py>,
        endpoint: &Bound<'py, Endpoint>,
        deadline: f64,
    ) -> Started<'py> {
        let until = until(seconds(deadline)?);
        let balancer = self.0.clone();
        endpoint.get().start(py, move |_| {
            Box::pin(async move { Outcome::Connected(balancer.connected(until).await) })
        })
    }

    /// Starts a call, perhaps on behalf of a request. It reads the payload before it returns.
    #[pyo3(signature = (endpoint, payload, deadline, idempotent, trace, behalf))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn call<'py>(
        &self,
        py: Python<'py>,
        endpoint: &Bound<'py, Endpoint>,
        payload: &Bound<'py, PyAny>,
        deadline: f64,
        idempotent: bool,
        trace: Option<&str>,
        behalf: Option<&Bound<'py, Incoming>>,
    ) -> Started<'py> {
        let options = options(deadline, idempotent, trace)?;
        let bytes = buffer::copied(payload)?;
        let balancer = self.0.clone();
        endpoint.get().start(py, move |open| {
            let client = open.client_for(behalf);
            Box::pin(
                async move { Outcome::Balanced(balancer.call(&client, bytes, &options).await) },
            )
        })
    }
}

fn until(after: Duration) -> Option<Instant> {
    Instant::now().checked_add(after)
}
