//! An event loop as leader: it drives the engine when a descriptor is readable.
//!
//! The event loop leads whenever no thread does, and "sleeps" between its turns: it watches one
//! descriptor for the sockets and the timer. A thread that blocks takes the lead from it without a
//! word, because both look for arrivals under the lock, and gives it back when it leaves.
//!
//! Messages that tasks of the loop submit while several RPCs are in progress wait until the loop
//! flushes them, so that they share datagrams. A single message leaves at once.
//!
//! The helper watches the loop. It sleeps on the same descriptor, and once that is readable it
//! looks every [`LOOK_INTERVAL`]. If the loop has done nothing since the last look although there
//! is work, the helper leads until the loop drives again. Only while the helper looks so often may
//! messages wait.
//!
//! Left out: more than one event loop for an engine.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task;
use std::time::Duration;

use homa_proto::Time;

use super::{Access, Lead, Shared, SharedState};
use crate::driver::{Poller, wait_or_writable};
use crate::engine::wait::waiters::WakeTarget;
use crate::error::OpenError;

/// How long an event loop may leave work undone before the helper does it.
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// With more RPCs in progress than this, messages wait for others to share datagrams with.
const FEW_RPCS: usize = 4;

/// What an event loop and its engine share without the lock.
#[derive(Debug)]
pub struct Link {
    /// Readable if there is work.
    pub poller: Arc<Poller>,
    /// Messages wait to be flushed.
    pub unsent: AtomicBool,
    /// The engine does not need this event loop any more.
    pub ended: AtomicBool,
}

/// The event loop that leads unless a thread does.
pub struct EventLoop {
    link: Arc<Link>,
    /// How to ask it to flush; `None` if messages must not wait.
    pub(super) flush: Option<Flush>,
    /// When the timer is due; [`Time::MAX`] if it is stopped.
    timer: Time,
    /// The full socket that is watched.
    full: Option<RawFd>,
    /// The helper looks after it every [`LOOK_INTERVAL`].
    watched: bool,
    /// It left work undone, and has not driven since.
    starved: bool,
}

/// How an event loop is asked to flush.
#[derive(Debug)]
pub struct Flush {
    /// Wakes it.
    pub waker: task::Waker,
    /// True if the calling thread is in the event loop.
    pub is_here: fn() -> bool,
}

/// What a turn of an event loop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Something arrived, and more may have.
    Arrived,
    /// There is more to do now.
    Busy,
    /// There is nothing to do.
    Idle,
    /// The engine has ended.
    Closed,
}

impl EventLoop {
    /// Sets the timer to the engine's next due time. A timer that is due earlier stays, because
    /// setting it costs a system call.
    fn set_timer(&mut self, core: &mut crate::engine::core::Core) {
        let due = core.wake_at().unwrap_or(Time::MAX);
        if due < self.timer || self.timer <= core.now() {
            self.link.poller.arm(core.idle());
            self.timer = due;
        }
    }
}

impl Shared {
    /// Makes an event loop the leader of this engine whenever no thread is.
    ///
    /// # Errors
    /// [`OpenError::Driven`] if there is one, [`OpenError::Resources`] if the system refuses
    /// descriptors.
    pub fn attach(&self) -> Result<Arc<Link>, OpenError> {
        let mut access = self.access();
        if access.event_loop.is_some() {
            return Err(OpenError::Driven);
        }
        let poller = Arc::new(Poller::new(&access.handles).map_err(OpenError::Resources)?);
        let link = Arc::new(Link {
            poller,
            unsent: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        access.event_loop = Some(EventLoop {
            link: link.clone(),
            flush: None,
            timer: Time::MAX,
            full: None,
            watched: false,
            starved: false,
        });
        // The helper wakes up and finds that it does not lead any more.
        if access.lead == Lead::Helper {
            access.kick(Lead::Helper);
            access.lead = Lead::Vacant;
        }
        if access.lead == Lead::Vacant {
            access.give_to_event_loop();
            access.call_helper();
        }
        Ok(link)
    }

    /// Ends what [`Self::attach`] began: the helper leads from now on.
    pub fn detach(&self, link: &Arc<Link>) {
        let mut access = self.access();
        if !access.is_attached(link) {
            return;
        }
        access.end_event_loop();
    }

    /// Sets how the event loop is asked to flush.
    pub fn set_flush(&self, link: &Arc<Link>, flush: Flush) {
        let mut access = self.access();
        let mut flush = Some(flush);
        if access.is_attached(link)
            && let Some(event_loop) = &mut access.event_loop
        {
            std::mem::swap(&mut event_loop.flush, &mut flush);
        }
        // The old waker is dropped without the lock, because a task may end with it.
        drop(access);
        drop(flush);
    }

    /// A turn of the event loop.
    pub fn drive(&self, link: &Arc<Link>) -> Turned {
        let mut access = self.access();
        if access.closing || !access.is_attached(link) {
            return Turned::Closed;
        }
        link.unsent.store(false, Ordering::Relaxed);
        access.is_alive();
        if access.lead == Lead::Thread {
            // The thread looks for arrivals, too.
            return Turned::Idle;
        }
        let state = &mut *access;
        state.core.turn(true);
        state.waiters.dispatch(&mut state.core);
        state.end_if_over();
        // While the helper still sleeps on a socket, it must not be closed.
        if !state.helper_polls {
            access.finish_closing();
        }
        access.give_to_event_loop();
        let busy = access.core.idle().is_some_and(|left| left.is_zero());
        match (busy, access.core.has_received()) {
            (true, _) => Turned::Busy,
            (false, true) => Turned::Arrived,
            (false, false) => Turned::Idle,
        }
    }

    /// Sends the messages that wait for the event loop.
    pub fn flush(&self, link: &Arc<Link>) {
        let mut access = self.access();
        link.unsent.store(false, Ordering::Relaxed);
        if access.is_attached(link) {
            access.is_alive();
            let state = &mut *access;
            state.core.flush();
            state.waiters.dispatch(&mut state.core);
            match access.lead {
                // The timer follows what the messages made due.
                Lead::EventLoop => drop(access.give_to_event_loop()),
                _ => access.hurry(),
            }
        }
    }

    /// For the helper: watches the event loop while it leads. True if it left work undone.
    pub(super) fn watch(&self, mut access: Access<'_>) -> bool {
        let Some(link) = access.event_loop.as_ref().map(|event_loop| event_loop.link.clone())
        else {
            return false;
        };
        let mut due = true;
        loop {
            if !access.can_watch() {
                return false;
            }
            let before = self.helper_signals.activity.load(Ordering::Relaxed);
            if let Some(event_loop) = &mut access.event_loop {
                event_loop.watched = due;
            }
            access.helper_watches = true;
            let handle = [link.poller.as_raw_fd()];
            // If nothing is due, it sleeps until the descriptor of the loop is readable.
            let (handles, timeout) =
                if due { (&[][..], Some(LOOK_INTERVAL)) } else { (&handle[..], None) };
            let waits = || wait_or_writable(handles, None, Some(&self.helper_waker), timeout);
            // An error is exhausted memory. The next look says the same as this one would.
            let _ = access.unlocked(waits);
            access.helper_watches = false;
            if std::mem::replace(&mut access.helper_kicked, false) {
                self.helper_waker.reset();
            }
            if !access.can_watch() {
                return false;
            }
            let after = self.helper_signals.activity.load(Ordering::Relaxed);
            // Messages may wait to be flushed although nothing is readable.
            let undone = link.unsent.load(Ordering::Relaxed) || link.poller.is_readable();
            // The loop has done nothing between two looks although it had work.
            if due && undone && after == before {
                return true;
            }
            due = undone || after != before;
        }
    }
}

impl Access<'_> {
    fn is_attached(&self, link: &Arc<Link>) -> bool {
        self.event_loop.as_ref().is_some_and(|event_loop| Arc::ptr_eq(&event_loop.link, link))
    }

    /// True while the helper has nothing to do but to watch the event loop.
    fn can_watch(&self) -> bool {
        let called = self.shared.helper_signals.helper_called.load(Ordering::Acquire);
        self.lead == Lead::EventLoop && !self.closing && !called
    }

    /// The event loop drives: the lead that the helper took, or that is vacant, is its again.
    fn is_alive(&mut self) {
        self.shared.helper_signals.activity.fetch_add(1, Ordering::Relaxed);
        if let Some(event_loop) = &mut self.event_loop {
            event_loop.starved = false;
        }
        if self.lead == Lead::Vacant {
            // The helper is asleep, or looks for a lead that lasts.
            self.call_helper();
        }
        if self.lead == Lead::Helper {
            self.kick(Lead::Helper);
        }
        if self.lead != Lead::Thread {
            self.lead = Lead::EventLoop;
        }
    }

    /// Leaves the lead to the event loop until it is due; false if there is none that drives.
    pub(super) fn give_to_event_loop(&mut self) -> bool {
        let SharedState { event_loop, core, handles, lead, asleep_until, .. } = &mut **self;
        // A loop that left work undone has to drive again before it is trusted.
        let Some(event_loop) = event_loop.as_mut().filter(|event_loop| !event_loop.starved) else {
            return false;
        };
        event_loop.set_timer(core);
        let full = core.full_socket();
        // Room in another socket is awaited than before.
        if full != event_loop.full {
            let poller = &event_loop.link.poller;
            let change = |fd: Option<RawFd>, wanted| {
                fd.into_iter().for_each(|fd| poller.watch_room(fd, handles.contains(&fd), wanted));
            };
            change(event_loop.full, false);
            change(full, true);
            event_loop.full = full;
        }
        *lead = Lead::EventLoop;
        *asleep_until = Some(core.wake_at().unwrap_or(Time::MAX));
        true
    }

    /// Something is due before the event loop would drive.
    pub(super) fn hurry_event_loop(&mut self) {
        let SharedState { event_loop, core, .. } = &mut **self;
        if let Some(event_loop) = event_loop {
            event_loop.set_timer(core);
        }
        #[cfg(feature = "testing")]
        self.wake_simulation();
    }

    /// The helper takes the lead from an event loop that left work undone.
    pub(super) fn starved(&mut self) {
        if let Some(event_loop) = &mut self.event_loop {
            (event_loop.starved, event_loop.watched) = (true, false);
        }
        self.lead = Lead::Helper;
    }

    /// Leaves submitted messages to the event loop, if it flushes soon: true if it does.
    pub(super) fn is_flushed_later(&mut self) -> bool {
        if self.lead != Lead::EventLoop {
            return false;
        }
        let (calls, requests) = self.core.rpcs();
        let SharedState { event_loop, waiters, .. } = &mut **self;
        // If no helper looks after it, a message could wait for ever.
        let Some(event_loop) = event_loop.as_ref().filter(|event_loop| event_loop.watched) else {
            return false;
        };
        // With few RPCs there is nothing to share a datagram with.
        let Some(flush) = event_loop.flush.as_ref().filter(|_| calls + requests > FEW_RPCS) else {
            return false;
        };
        // Another thread does not return to the loop, so its messages leave now.
        if !(flush.is_here)() {
            return false;
        }
        // The loop is asked once for all messages that wait.
        if !event_loop.link.unsent.swap(true, Ordering::Relaxed) {
            waiters.wake_later(WakeTarget::Task(flush.waker.clone()));
        }
        true
    }

    /// The engine watches other sockets now.
    pub(super) fn watch_handles(&mut self) {
        let SharedState { event_loop, handles, .. } = &mut **self;
        let Some(watching) = event_loop else { return };
        if watching.link.poller.watch(handles).is_err() {
            // Exhausted memory: the helper waits for sockets in another way.
            self.end_event_loop();
        }
    }

    /// The event loop does not lead any more, and learns it when it drives.
    pub(super) fn end_event_loop(&mut self) {
        let SharedState { event_loop, waiters, .. } = &mut **self;
        // Its task is woken once more, so that it finds out.
        if let Some(EventLoop { link, flush, .. }) = event_loop.take() {
            link.ended.store(true, Ordering::Release);
            let waker = flush.map(|flush| WakeTarget::Task(flush.waker));
            waker.into_iter().for_each(|waker| waiters.wake_later(waker));
        }
        if self.lead == Lead::EventLoop {
            (self.lead, self.asleep_until) = (Lead::Vacant, None);
        }
        self.call_helper();
    }
}
