//! An engine with its client and, if it has an address to serve, its server, for one event loop of
//! Python. A server at several addresses has an engine for each.
//!
//! The loop drives the engines: it watches their descriptors, and calls [`Endpoint::turn`].
//! All methods except [`Endpoint::close`] return at once. Locks are held while futures are polled,
//! and never while Python code is called.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use homa::{
    CallError, CallOptions, Client, Config, Engine, OpenError, Padding, Reactor, ReplyError,
    Request,
};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::acceptor::Acceptor;
use super::engines::OpenedEngines;
use super::incoming::{Incoming, LentRequest};
use super::ring::{Ring, Ringer};
use super::tasks::{ENDPOINT, Future, Outcome, Tasks, UNSENT};
use super::writer::{RequestWriter, ResponseWriter};
use super::{buffer, errors, keys};

/// Clients and servers of `homa.rpc` are made of one.
#[pyclass(frozen, module = "homa.rpc")]
pub struct Endpoint {
    local: Vec<SocketAddr>,
    process: u32,
    open: Mutex<Option<Open>>,
}

/// Until it is closed.
pub struct Open {
    ring: Arc<Ring>,
    tasks: Tasks,
    /// Of the servers; a client alone has none.
    acceptor: Option<Acceptor>,
    /// Calls, through the first engine.
    pub client: Client,
    engines: Vec<Engine>,
    /// Of each engine, once a loop drives them.
    reactors: Vec<Reactor>,
}

impl Open {
    /// The client for a call, perhaps on behalf of a request.
    pub fn client_for(&self, behalf: Option<&Bound<'_, Incoming>>) -> Client {
        let behalf = behalf.and_then(|incoming| incoming.get().client());
        behalf.map_or_else(|| self.client.clone(), |of| self.client.on_behalf_of_client(&of))
    }

    /// The engines' descriptors, for the loop that drives them from now on.
    fn driven(&mut self) -> Result<Vec<RawFd>, OpenError> {
        for engine in &self.engines[self.reactors.len()..] {
            let reactor = engine.reactor()?;
            let ringer = Ringer { ring: self.ring.clone(), number: UNSENT };
            reactor.flush_with(Waker::from(Arc::new(ringer)), || IN_LOOP.get());
            self.reactors.push(reactor);
        }
        Ok(self.reactors.iter().map(AsRawFd::as_raw_fd).collect())
    }
}

thread_local! {
    /// A loop's thread is in a method that polls futures.
    static IN_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// Does something with futures in the thread of the loop.
fn in_loop<T>(what: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_LOOP.set(false);
        }
    }
    IN_LOOP.set(true);
    let _leave = Leave;
    what()
}

/// The result of starting a future: its outcome, or its number.
pub type Started<'py> = PyResult<Bound<'py, PyAny>>;

/// The future with this number has ended, with a result or an exception.
type Ended = (u64, Py<PyAny>);

impl Endpoint {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request, to be read or answered, and no longer watched.
    fn taken(&self, py: Python<'_>, request: &Bound<'_, Incoming>) -> PyResult<Request> {
        if request.get().is_read() {
            let text = "the request is being read: await `arrived` before you read on or answer";
            return Err(PyRuntimeError::new_err(text));
        }
        let held = request.get().take();
        self.forget(held.watch.unwrap_or(ENDPOINT));
        let taken = held.request.and_then(Arc::into_inner);
        taken.ok_or_else(|| errors::reply(py, &ReplyError::Gone))
    }

    /// Begins the future of `make`, or raises its error.
    pub fn start<'py>(&self, py: Python<'py>, make: impl FnOnce(&Open) -> Future) -> Started<'py> {
        let started = self.open().as_mut().map(|open| {
            in_loop(|| {
                let future = make(open);
                open.tasks.start(future)
            })
        });
        match started {
            Some(Ok(number)) => Ok(number.into_pyobject(py)?.into_any()),
            Some(Err(outcome)) => Ok(outcome.result(py)?.into_bound(py)),
            None => Err(errors::call(py, &CallError::ShuttingDown)),
        }
    }
}

#[pymethods]
impl Endpoint {
    /// Opens an engine at each of `addresses` to serve, at the first for calls alone, over the
    /// socket with the number `descriptor`, or at any address for calls.
    #[new]
    #[pyo3(signature = (addresses, serves, limits, descriptor=None, early=None))]
    fn new(
        py: Python<'_>,
        addresses: Vec<String>,
        serves: bool,
        limits: Vec<(String, Bound<'_, PyAny>)>,
        descriptor: Option<RawFd>,
        early: Option<usize>,
    ) -> PyResult<Self> {
        let config = config(&limits)?;
        let at = addresses.iter().map(|text| parsed(text)).collect::<PyResult<Vec<_>>>()?;
        let opened = match descriptor {
            Some(descriptor) => OpenedEngines::over(descriptor, serves, config),
            None if serves => OpenedEngines::serving(&at, &config),
            None => OpenedEngines::calling(at.first().copied(), config),
        };
        let OpenedEngines { engines, servers } =
            opened.map_err(|error| errors::open(py, &error))?;
        let ring = Ring::new().map_err(errors::refused)?;
        let servers = servers.into_iter().map(|server| match early {
            Some(window) => server.early(window),
            None => server,
        });
        let servers: Vec<_> = servers.collect();
        let (local, process) =
            (engines.iter().map(Engine::local_addr).collect(), std::process::id());
        let open = Open {
            tasks: Tasks::new(ring.clone()),
            acceptor: (!servers.is_empty()).then(|| Acceptor::new(servers, &ring)),
            client: engines[0].client(),
            engines,
            ring,
            reactors: Vec::new(),
        };
        Ok(Self { local, process, open: Mutex::new(Some(open)) })
    }

    /// The addresses of the engines.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.local.iter().map(ToString::to_string).collect()
    }

    /// The descriptors that the event loop watches. One is readable if `turn` has something to do.
    fn filenos(&self, py: Python<'_>) -> PyResult<Vec<RawFd>> {
        if self.process != std::process::id() {
            return Err(errors::call(py, &CallError::Forked));
        }
        let handles = self.open().as_mut().map(|open| {
            let mut handles = open.driven()?;
            handles.push(open.ring.handle());
            Ok(handles)
        });
        let handles = handles.ok_or_else(|| errors::call(py, &CallError::ShuttingDown))?;
        handles.map_err(|error| errors::open(py, &error))
    }

    /// Starts a call, perhaps on behalf of a request. It reads the payload before it returns.
    #[pyo3(signature = (to, payload, deadline, idempotent, trace, behalf))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn call<'py>(
        &self,
        py: Python<'py>,
        to: &str,
        payload: &Bound<'py, PyAny>,
        deadline: f64,
        idempotent: bool,
        trace: Option<&str>,
        behalf: Option<&Bound<'py, Incoming>>,
    ) -> Started<'py> {
        let to = parsed(to)?;
        let options = options(deadline, idempotent, trace)?;
        let bytes = buffer::copied(payload)?;
        self.start(py, move |open| {
            let call = open.client_for(behalf).call_async_with(to, bytes, &options);
            Box::pin(async move { Outcome::Called(call.await) })
        })
    }

    /// Waits for capacity for a call with a request of this many bytes, perhaps to this server.
    #[pyo3(signature = (length, to))]
    fn room<'py>(&self, py: Python<'py>, length: usize, to: Option<&str>) -> Started<'py> {
        let to = to.map(parsed).transpose()?;
        self.start(py, move |open| {
            let client = open.client.clone();
            Box::pin(async move {
                Outcome::Room(match to {
                    Some(to) => client.ready_to(to, length).await,
                    None => client.ready_for(length).await,
                })
            })
        })
    }

    /// Answers a request; waits if there is no capacity for the answer.
    fn reply<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, Incoming>,
        payload: &Bound<'py, PyAny>,
    ) -> Started<'py> {
        let bytes = buffer::copied(payload)?;
        let taken = self.taken(py, request)?;
        let incoming = request.clone().unbind();
        self.start(py, move |_| {
            let replying = taken.reply_async(bytes);
            Box::pin(async move {
                Outcome::Replied(replying.await.map_err(|refused| {
                    if refused.error != ReplyError::Gone {
                        incoming.get().give_back(refused.request);
                    }
                    refused.error
                }))
            })
        })
    }

    /// Takes the next bytes of a request that is arriving; waits until there are some.
    fn arrived<'py>(&self, py: Python<'py>, request: &Bound<'py, Incoming>) -> Started<'py> {
        let taken = self.taken(py, request)?;
        let mut reading = LentRequest::new(request.clone().unbind(), taken);
        self.start(py, move |_| Box::pin(async move { Outcome::Piece(reading.next().await) }))
    }

    /// Answers a request with a response of this many bytes, which is written while it is sent.
    fn reply_writer(
        &self,
        py: Python<'_>,
        request: &Bound<'_, Incoming>,
        length: usize,
    ) -> PyResult<ResponseWriter> {
        let taken = self.taken(py, request)?;
        taken.reply_writer(length).map(ResponseWriter::new).map_err(|refused| {
            if refused.error != ReplyError::Gone {
                request.get().give_back(refused.request);
            }
            errors::reply(py, &refused.error)
        })
    }

    /// Starts a call whose request of this many bytes is written while it is sent.
    #[pyo3(signature = (to, length, deadline, trace, behalf))]
    fn call_writer(
        &self,
        py: Python<'_>,
        to: &str,
        length: usize,
        deadline: f64,
        trace: Option<&str>,
        behalf: Option<&Bound<'_, Incoming>>,
    ) -> PyResult<RequestWriter> {
        let to = parsed(to)?;
        let options = options(deadline, false, trace)?;
        let client = self.open().as_ref().map(|open| open.client_for(behalf));
        let client = client.ok_or_else(|| errors::call(py, &CallError::ShuttingDown))?;
        let begun = client.call_writer(to, length, &options);
        begun.map(RequestWriter::new).map_err(|error| errors::call(py, &error))
    }

    /// Waits for the response to a request that was written.
    fn finish<'py>(&self, py: Python<'py>, writer: &Bound<'py, RequestWriter>) -> Started<'py> {
        let call = writer.get().finish(py)?;
        self.start(py, move |_| Box::pin(async move { Outcome::Called(call.await) }))
    }

    /// Watches whether the client still waits for the answer to a request: ends if it does not.
    fn watch<'py>(&self, py: Python<'py>, request: &Bound<'py, Incoming>) -> Started<'py> {
        let incoming = request.get();
        let Some(request) = incoming.request() else { return Ok(py.None().into_bound(py)) };
        let started = self.start(py, move |_| {
            Box::pin(async move {
                request.cancelled().await;
                Outcome::Abandoned
            })
        })?;
        if let Ok(number) = started.extract() {
            incoming.watched(number);
        }
        Ok(started)
    }

    /// Gives up a request without an answer; its client is notified.
    fn refuse(&self, request: &Bound<'_, Incoming>) {
        let held = request.get().take();
        self.forget(held.watch.unwrap_or(ENDPOINT));
    }

    /// Ends the future with a number, without an outcome: a call is cancelled.
    fn forget(&self, number: u64) {
        if let Some(open) = self.open().as_mut() {
            open.tasks.forget(number);
        }
    }

    /// The futures that have ended since the last turn, as numbers with a result or an exception,
    /// and at most `room` requests.
    fn turn(&self, py: Python<'_>, room: usize) -> PyResult<(Vec<Ended>, Vec<Incoming>)> {
        let (mut ended, mut requests) = (Vec::new(), Vec::new());
        if let Some(Open { ring, tasks, acceptor, reactors, .. }) = self.open().as_mut() {
            let numbers = ring.take(|| {
                for reactor in reactors {
                    // Its descriptor is readable as long as there is work.
                    let _ = reactor.drive();
                }
            });
            in_loop(|| {
                for number in numbers {
                    match acceptor {
                        Some(acceptor) if number == ENDPOINT => acceptor.look(),
                        _ => ended.extend(tasks.go_on(number).map(|outcome| (number, outcome))),
                    }
                }
                if let Some(acceptor) = acceptor {
                    requests = acceptor.accept(room);
                }
            });
        }
        let told = |(number, outcome): (_, Outcome)| {
            let exception = |error: PyErr| error.into_value(py).into_any();
            (number, outcome.result(py).unwrap_or_else(exception))
        };
        let requests = requests.into_iter().map(|request| Incoming::new(py, request));
        Ok((ended.into_iter().map(told).collect(), requests.collect::<PyResult<_>>()?))
    }

    /// Refuses new requests, and says how many are unfinished.
    fn drain(&self) -> usize {
        let servers = {
            let open = self.open();
            open.as_ref().and_then(|open| Some(open.acceptor.as_ref()?.servers()))
        };
        let drained = servers.unwrap_or_default().into_iter().map(|server| {
            server.drain(Duration::ZERO).map_or_else(|unfinished| unfinished.requests, |()| 0)
        });
        drained.sum()
    }

    /// Whether a server has accepted a call with the handshake, and its next ticket is yet to come.
    fn awaits_ticket(&self) -> bool {
        self.open().as_ref().is_some_and(|open| open.client.engine().awaits_ticket())
    }

    /// Ends everything: calls are cancelled, requests refused, descriptors closed.
    fn close(&self, py: Python<'_>) {
        let open = self.open().take();
        py.detach(move || {
            if let Some(Open { tasks, acceptor, engines, reactors, .. }) = open {
                drop((tasks, acceptor, reactors));
                for engine in engines {
                    // Acknowledges received responses, so that servers need not keep them.
                    let _ = engine.drain(Duration::ZERO);
                }
            }
        });
    }
}

fn parsed(address: &str) -> PyResult<SocketAddr> {
    address.parse().map_err(|_| {
        let advice = "is no address: write it as 10.0.0.7:4000, [fd00::7]:4000 or name:4000, with \
                      a port up to 65535";
        PyValueError::new_err(format!("{address:?} {advice}"))
    })
}

/// The options of a call.
pub fn options(deadline: f64, idempotent: bool, trace: Option<&str>) -> PyResult<CallOptions> {
    let mut options = CallOptions::deadline(seconds(deadline)?);
    options.idempotent = idempotent;
    let trace = trace.map(str::parse).transpose();
    options.trace =
        trace.map_err(|error: homa::TraceParseError| PyValueError::new_err(error.to_string()))?;
    Ok(options)
}

/// A time to wait.
pub fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let advice = "is no time to wait: give seconds, such as 0.05";
        PyValueError::new_err(format!("{seconds} {advice}"))
    })
}

/// The engine's defaults with other limits.
fn config(limits: &[(String, Bound<'_, PyAny>)]) -> PyResult<Config> {
    let mut config = Config::default();
    for (name, value) in limits {
        if name == "plaintext" {
            if value.extract()? {
                config = config.plaintext();
            }
            continue;
        }
        if name == "keys" {
            config = config.keys(keys::of(value)?);
            continue;
        }
        if name == "padding" {
            config.padding = padding(value)?;
            continue;
        }
        if name == "admit" {
            let names: HashSet<String> = value.extract()?;
            config = config.admit(move |peer| names.contains(&peer.to_string()));
            continue;
        }
        let small = |most| limit(name, value, u64::from(most)).map(|value| value as u32);
        match name.as_str() {
            "max_message" => config.protocol.max_message = small(i32::MAX as u32)?,
            "max_rpcs" => config.protocol.max_rpcs = small(1 << 24)?,
            "max_peers" => config.max_peers = small(u32::MAX)?,
            "max_calls_per_server" => config.max_calls_per_server = Some(small(u32::MAX)?),
            "send_memory" => config.send_memory = limit(name, value, u64::MAX)?,
            _ => return Err(PyValueError::new_err(format!("{name:?} is no limit"))),
        }
    }
    Ok(config)
}

/// To which lengths datagrams are padded: a multiple of a number, or the full size.
fn padding(value: &Bound<'_, PyAny>) -> PyResult<Padding> {
    if value.extract::<String>().is_ok_and(|text| text == "full") {
        return Ok(Padding::Full);
    }
    Ok(Padding::Multiple(limit("padding", value, u16::MAX.into())? as u16))
}

/// An integer of Python's, of any size and sign, from 1 to `most`.
fn limit(name: &str, value: &Bound<'_, PyAny>, most: u64) -> PyResult<u64> {
    match value.extract::<u64>() {
        Ok(given) if (1..=most).contains(&given) => Ok(given),
        Err(error) if !error.is_instance_of::<PyOverflowError>(value.py()) => Err(error),
        _ => {
            let text = format!("{name} is from 1 to {most}, and {value} was given");
            Err(PyValueError::new_err(text))
        }
    }
}
