//! Driving a shared engine from an event loop: one descriptor to watch, one function to call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;

#[cfg(feature = "tokio")]
use crate::driver::Poller;
use crate::driver::fork::Process;
use crate::engine::Engine;
use crate::engine::wait::shared::Shared;
use crate::engine::wait::shared::reactor::{Flush, Link, Turned};
use crate::error::OpenError;

/// Lets an event loop drive an [`Engine`], so that its tasks need no other thread. For tokio there
/// is `Engine::drive_on_tokio` (feature `tokio`), which uses this type.
///
/// Watch the descriptor ([`AsFd`]), and call [`Self::drive`] whenever it is readable. It covers the
/// sockets and the timers of the engine. Responses and requests that have arrived then wake the
/// futures of [`Client::call_async`](crate::Client::call_async) and
/// [`Server::accept_async`](crate::Server::accept_async) in the thread that drives.
///
/// Blocking threads may use the engine, too; while one waits, it drives. If the event loop does
/// not drive for some milliseconds although there is work, for example because a task computes,
/// the engine's helper thread does so until the event loop drives again. If the reactor is
/// dropped, the helper takes over. A reactor does not keep the engine alive.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
///
/// use homa::{Client, Server};
/// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
///
/// # let server = Server::bind("127.0.0.1:0".parse()?)?;
/// # let to = server.local_addr();
/// # std::thread::spawn(move || server.accept().map(|request| request.reply("an answer")));
/// let client = Client::new()?;
/// let mut reactor = client.engine().reactor()?;
/// let mut call = pin!(client.call_async(to, "a question"));
/// let response = loop {
///     match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
///         Poll::Ready(response) => break response?,
///         Poll::Pending => {
///             // An event loop would watch other descriptors, too, and wakers would interrupt it.
///             let mut watched = [PollFd::new(reactor.as_fd(), PollFlags::POLLIN)];
///             poll(&mut watched, PollTimeout::from(10u8))?;
///             reactor.drive();
///         }
///     }
/// };
/// assert_eq!(response, *b"an answer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reactor {
    shared: Weak<Shared>,
    link: Arc<Link>,
    process: Process,
    /// The last turn found arrivals: look at the descriptor first, which costs less than a turn.
    looks: bool,
}

/// What an event loop should do after [`Reactor::drive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Let the tasks run that were woken, then drive again. An event loop that is notified only if
    /// the descriptor *becomes* readable (edge-triggered) must do so; for others the descriptor
    /// is still readable if there is work.
    Again,
    /// Wait until the descriptor is readable.
    Wait,
    /// The engine has ended, or another process opened it: drop the reactor.
    Closed,
}

impl Engine {
    /// Lets an event loop drive this engine. See [`Reactor`].
    ///
    /// # Errors
    /// [`OpenError::Driven`] if another event loop does so, [`OpenError::Resources`] if the system
    /// refuses descriptors, [`OpenError::Forked`].
    pub fn reactor(&self) -> Result<Reactor, OpenError> {
        let (shared, process) = self.shared_by().ok_or(OpenError::Forked)?;
        let link = shared.attach()?;
        Ok(Reactor { shared: Arc::downgrade(shared), link, process, looks: false })
    }
}

impl Reactor {
    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade().filter(|_| self.process.is_this())
    }

    /// One turn of the engine, without waiting: receives what has arrived, runs timers, sends what
    /// may leave, and wakes tasks.
    pub fn drive(&mut self) -> Driven {
        let Some(shared) = self.shared() else { return Driven::Closed };
        if std::mem::take(&mut self.looks) && !self.link.poller.is_readable() {
            self.flush();
            return Driven::Wait;
        }
        match shared.drive(&self.link) {
            Turned::Arrived => {
                self.looks = true;
                Driven::Again
            }
            Turned::Busy => Driven::Again,
            Turned::Idle => Driven::Wait,
            Turned::Closed => Driven::Closed,
        }
    }

    /// Allows messages that are submitted in the event loop to wait for each other, so that they
    /// leave together. It then wakes `waker`, which must cause a call of [`Self::flush`] or
    /// [`Self::drive`] after other tasks that are ready have run. `is_here` returns true if the
    /// calling thread is in the event loop; messages that other threads submit never wait. Without
    /// this, each message leaves when it is submitted.
    ///
    /// The waker is also woken when the engine ends.
    pub fn flush_with(&self, waker: Waker, is_here: fn() -> bool) {
        if let Some(shared) = self.shared() {
            shared.set_flush(&self.link, Flush { waker, is_here });
        }
    }

    /// Sends the messages that wait because of [`Self::flush_with`], if there are any.
    pub fn flush(&self) {
        if self.has_unsent()
            && let Some(shared) = self.shared()
        {
            shared.flush(&self.link);
        }
    }

    /// True if messages wait for [`Self::flush`].
    pub fn has_unsent(&self) -> bool {
        self.link.unsent.load(Ordering::Relaxed)
    }

    /// True if the engine has ended.
    pub fn is_closed(&self) -> bool {
        self.link.ended.load(Ordering::Acquire)
    }
}

#[cfg(feature = "tokio")]
impl Reactor {
    /// The descriptor, shared.
    pub(crate) fn poller(&self) -> Arc<Poller> {
        self.link.poller.clone()
    }
}

/// Readable if [`Reactor::drive`] has something to do. Only poll it.
impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.poller.as_fd()
    }
}

impl AsRawFd for Reactor {
    fn as_raw_fd(&self) -> RawFd {
        self.link.poller.as_raw_fd()
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if let Some(shared) = self.shared() {
            shared.detach(&self.link);
        }
    }
}
