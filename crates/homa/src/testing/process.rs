//! What runs at a host: engines with the task that drives each, and the tasks of the application.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::tokio::time::{Instant, Sleep, sleep_until};
use homa_proto::LinkId;

use super::state::{NetworkShared, ip_of};
use crate::driver::memory::MemoryDriver;
use crate::driver::{Driver, Gather, Outbox, ReceivedTrain, UnreachableReport};
use crate::engine::wait::shared;
use crate::engine::wait::shared::reactor::{Flush, Link, Turned};
use crate::metrics::DriverCounters;

/// Longer than any call takes.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Lets the tasks of a host run, unless it is paused.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
    }

    /// Wakes the tasks that wait for the gate.
    pub(super) fn wake(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut *waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn pass(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_closed() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// A task of a host.
pub(super) struct Gated<F> {
    pub(super) gate: Arc<Gate>,
    pub(super) task: Pin<Box<F>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        std::task::ready!(self.gate.pass(context));
        self.task.as_mut().poll(context)
    }
}

/// An engine of a host.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) host: usize,
    /// Drives the engine.
    task: Mutex<Option<Waker>>,
    engine: OnceLock<Weak<shared::Shared>>,
    crashed: AtomicBool,
}

impl Process {
    pub(super) fn of(host: usize) -> Arc<Self> {
        let (task, crashed) = (Mutex::new(None), AtomicBool::new(false));
        Arc::new(Self { host, task, engine: OnceLock::new(), crashed })
    }

    /// Something has arrived.
    pub(super) fn wake(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.into_iter().for_each(Waker::wake);
    }

    /// Ends the engine. It sends nothing.
    pub(super) fn crash(&self) {
        self.crashed.store(true, Ordering::Relaxed);
        if let Some(engine) = self.engine.get().and_then(Weak::upgrade) {
            engine.crash(libc::EOWNERDEAD);
        }
    }

    /// True if the engine has ended.
    pub(super) fn is_over(&self) -> bool {
        self.engine.get().is_some_and(|engine| engine.strong_count() == 0)
    }
}

/// The sockets of an engine.
pub(super) struct Sockets {
    pub(super) network: Weak<NetworkShared>,
    pub(super) process: Arc<Process>,
    pub(super) memory: MemoryDriver,
    /// No other process has had the first address.
    is_first: bool,
}

impl Sockets {
    /// Opens the first socket.
    pub(super) fn new(network: &Arc<NetworkShared>, host: usize, port: u16) -> io::Result<Self> {
        let at = SocketAddr::new(ip_of(host), port);
        let (process, memory) = (Process::of(host), network.memory.attach(at)?);
        let is_first = network.open(memory.local()[0], process.clone());
        Ok(Self { network: Arc::downgrade(network), process, memory, is_first })
    }
}

impl Driver for Sockets {
    fn alone_since(&self) -> Option<std::time::Instant> {
        // Before the network was made, there was none.
        let long_ago = std::time::Instant::now().checked_sub(FOREVER);
        long_ago.filter(|_| self.is_first)
    }

    fn bind(&mut self, mut at: SocketAddr) -> io::Result<SocketAddr> {
        let network = self.network.upgrade().ok_or(io::ErrorKind::NetworkDown)?;
        if self.process.crashed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        if at.ip().is_unspecified() {
            at.set_ip(ip_of(self.process.host));
        }
        if at.ip() != ip_of(self.process.host) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let at = self.memory.bind(at)?;
        network.open(at, self.process.clone());
        Ok(at)
    }

    fn unbind(&mut self, socket: usize) {
        if let Some(network) = self.network.upgrade() {
            network.close(self.memory.local()[socket], &self.process);
        }
        self.memory.unbind(socket);
    }

    fn local(&self) -> &[SocketAddr] {
        self.memory.local()
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.memory.reaches(socket, to)
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        let network = self.network.upgrade();
        self.memory.send_by(outbox, messages, |from, to, bytes| {
            network.iter().for_each(|network| network.send(from, to, bytes.clone()));
            true
        });
    }

    fn receive(&mut self, expected: bool) -> usize {
        self.memory.receive(expected)
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        self.memory.received(index)
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        let network = self.network.upgrade()?;
        self.memory.local().iter().find_map(|at| network.report(*at))
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        self.memory.queued(link)
    }

    fn receive_buffer(&self) -> u32 {
        self.memory.receive_buffer()
    }

    fn unread(&self) -> u64 {
        self.memory.unread()
    }

    fn handles(&self) -> Vec<RawFd> {
        self.memory.handles()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.memory.first_handle()
    }

    fn counters(&self) -> &DriverCounters {
        self.memory.counters()
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if let Some(network) = self.network.upgrade() {
            self.memory.local().iter().for_each(|at| network.close(*at, &self.process));
        }
    }
}

/// The task that drives an engine.
pub(super) struct Driving {
    pub(super) gate: Arc<Gate>,
    process: Arc<Process>,
    engine: Weak<shared::Shared>,
    link: Arc<Link>,
    /// Runs until the engine's next timer.
    timer: Pin<Box<Sleep>>,
}

impl Driving {
    pub(super) fn new(
        gate: Arc<Gate>,
        process: Arc<Process>,
        engine: &Arc<shared::Shared>,
        link: Arc<Link>,
    ) -> Self {
        let (timer, engine) = (Box::pin(sleep_until(Instant::now())), Arc::downgrade(engine));
        let _ = process.engine.set(engine.clone());
        Self { gate, process, engine, link, timer }
    }

    /// Lets others wake this task.
    fn register(&self, engine: &shared::Shared, waker: &Waker) {
        let mut task = self.process.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
            drop(task);
            engine.set_flush(&self.link, Flush { waker: waker.clone(), is_here: || true });
        }
    }
}

impl Future for Driving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(engine) = this.engine.upgrade() else { return Poll::Ready(()) };
        this.register(&engine, context.waker());
        std::task::ready!(this.gate.pass(context));
        loop {
            match engine.drive(&this.link) {
                Turned::Closed => return Poll::Ready(()),
                // Woken tasks run first.
                Turned::Arrived | Turned::Busy => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Turned::Idle => {}
            }
            let Some(due) = engine.due() else { return Poll::Pending };
            this.timer.as_mut().reset(due.into());
            if this.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
