//! An engine for many threads and tasks, driven by the threads that wait for it.
//!
//! One lock guards the engine. If no thread drives it, a thread that blocks becomes the *leader*:
//! it sleeps in `ppoll` on the sockets, without the lock, and then processes arrivals for all
//! threads. Other threads park; the leader wakes those whose results have arrived, and passes the
//! lead to one of them when it leaves. The helper thread leads only if no thread blocks, because on
//! the way to an answer, waking another thread costs more than the protocol.
//!
//! A parked thread leaves with the result of its call without that lock. The result is in a slot
//! with a separate lock (`slot.rs`), because the leader may hold the engine's lock for its next
//! turn. The thread's ticket (`followers.rs`) decides atomically whether the thread may leave or
//! was given the lead. Everything else is guarded by the engine's lock.
//!
//! Taking over costs two context switches, so the helper does not react as soon as the lead is
//! free. It looks every [`STANDBY`], without the lock, and takes over if nothing has happened since
//! its last look. It takes over at once if tasks wait, because they cannot lead. If a lead lasts,
//! it stops looking until it is called.
//!
//! A leading thread spins before it sleeps as long as that pays (see [`SpinPolicy`]). Any leader
//! spins through the short waits between paced packets: a sleep ends some 50 us late, which is the
//! time of four packets at 1 Gbit/s.
//!
//! Left out: fairness between callers beyond the order of arrival.

mod ending;
mod followers;
mod helper;
pub mod reactor;
#[cfg(feature = "testing")]
mod simulated;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

pub use ending::PendingWork;
use followers::Followers;
use homa_proto::Time;
use reactor::EventLoop;

use super::deferred::Deferred;
use super::slot::{CallSlot, CallSlots};
use super::spin::{SpinPolicy, WaitOutcome, spin_then_wait};
use super::waiters::{CallKey, Waiters, WakeTarget};
use crate::driver::Waker;
use crate::engine::core::Core;
use crate::error::{CallError, OpenError};
use crate::message::Message;

/// How often the helper checks whether it is needed while threads are active.
const STANDBY: Duration = Duration::from_millis(1);

/// The engine, its lock, and the state of its helper.
pub struct Shared {
    state: Mutex<SharedState>,
    /// Interrupts the sleep of a leading thread.
    thread_waker: Waker,
    /// Interrupts the helper's sleep in `ppoll`.
    helper_waker: Waker,
    /// Read by the helper without the lock.
    helper_signals: HelperSignals,
    /// The engine's turns so far.
    turns: Arc<AtomicU64>,
    /// Slots for the results of calls.
    pub slots: CallSlots,
}

/// Written under the lock, read without it.
#[derive(Default)]
struct HelperSignals {
    /// Counts changes of the lead.
    activity: AtomicU64,
    /// The helper should look at once.
    helper_called: AtomicBool,
}

/// The state that the lock guards.
pub struct SharedState {
    /// The engine.
    pub core: Core,
    /// The table of waiters.
    pub waiters: Waiters,
    /// New calls are refused.
    pub draining: bool,
    /// Requests that were begun are still accepted until the engine has handed its place over.
    handing_over: bool,
    /// The last handle was dropped.
    closing: bool,
    lead: Lead,
    /// The leading thread, once it has started to lead.
    leader: Option<ThreadId>,
    /// Parked threads that could lead.
    followers: Followers,
    /// Set while the leader sleeps: until when.
    asleep_until: Option<Time>,
    /// The leading thread's sleep was interrupted.
    thread_kicked: bool,
    /// The helper's sleep was interrupted.
    helper_kicked: bool,
    /// The helper sleeps in `ppoll`. It leads, or has just lost the lead.
    helper_polls: bool,
    handles: Arc<[RawFd]>,
    /// The helper has parked until it is called.
    helper_rests: bool,
    /// The helper sleeps while it watches the event loop.
    helper_watches: bool,
    /// An event loop that leads if no thread does.
    event_loop: Option<EventLoop>,
    /// The helper thread, to unpark it.
    helper: Option<Thread>,
    spin_policy: SpinPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    Vacant,
    Thread,
    Helper,
    EventLoop,
}

/// Exclusive access to the engine. When it is released, the collected waiters are woken.
pub struct Access<'a> {
    shared: &'a Shared,
    guard: Option<MutexGuard<'a, SharedState>>,
    /// This thread leads. If this is still true on drop, the thread panicked.
    leading: bool,
    /// A thread that was given the lead. It is woken after the lock, which it needs, is released.
    next_leader: Option<Thread>,
}

impl std::ops::Deref for Access<'_> {
    type Target = SharedState;
    fn deref(&self) -> &SharedState {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl std::ops::DerefMut for Access<'_> {
    fn deref_mut(&mut self) -> &mut SharedState {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if self.leading {
            // The followers must not wait for a leader that is gone.
            self.guard.get_or_insert_with(|| self.shared.lock_state());
            self.asleep_until = None;
            self.step_down();
        }
        self.release();
    }
}

impl Access<'_> {
    /// Releases the lock, then wakes waiters and drops the payloads that were collected.
    fn release(&mut self) {
        if self.guard.is_none() {
            return;
        }
        let SharedState { waiters, core, .. } = &mut **self;
        waiters.signal();
        let deferred = Deferred::of(waiters, core);
        // Unparking does not wake a leader that sleeps on the sockets.
        if self.asleep_until.is_some()
            && let Some(deferred) = &deferred
            && deferred.wakes(self.leader)
        {
            self.kick(Lead::Thread);
        }
        self.guard = None;
        if let Some(next) = self.next_leader.take() {
            next.unpark();
        }
        deferred.into_iter().for_each(Deferred::run);
    }

    /// Runs the deferred work without the lock; true if there was any. The work may call back and
    /// wait for this engine, so it must be done before this thread sleeps or can be given the lead.
    fn run_deferred(&mut self) -> bool {
        let any = self.core.has_payloads_to_drop() || self.waiters.has_wakers_to_drop();
        if any {
            self.unlocked(|| ());
        }
        any
    }

    /// Runs a closure without the lock. It may be code of the application.
    pub fn unlocked<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.release();
        let result = what();
        self.guard = Some(self.shared.lock_state());
        result
    }

    /// Call it after submissions: it sends what may leave, and makes sure that a thread handles the
    /// rest in time.
    pub fn submitted(&mut self) {
        if !self.is_flushed_later() {
            let state = &mut **self;
            state.core.transmit();
            state.waiters.dispatch(&mut state.core);
            self.hurry();
        }
        if self.core.is_closing() {
            // An address has just begun to close, or the last RPC that used it has ended.
            self.closed();
        }
    }

    /// Call it after the application accepted something: grants for the freed memory are sent at
    /// once.
    pub fn accepted(&mut self) {
        if self.core.has_control() {
            self.submitted();
        }
    }

    /// Wakes the sleeping leader if something is due before it would wake.
    fn hurry(&mut self) {
        let state = &mut **self;
        let wake_at = state.core.wake_at();
        let sooner = match (wake_at, state.asleep_until) {
            (Some(wake), Some(until)) => wake < until,
            _ => false,
        };
        if sooner {
            state.asleep_until = wake_at;
            let leader = self.lead;
            self.kick(leader);
        }
    }

    /// Call it when a task waits for the end of a request, or for a time: the deadline then causes
    /// a turn.
    pub fn watched(&mut self) {
        let state = &mut **self;
        state.core.set_alarm(state.waiters.next_alarm());
        self.hurry();
        self.need_leader();
    }

    /// Call it after another address was bound: the sleeping leader must watch it, too.
    pub fn bound(&mut self) {
        self.handles = self.core.driver().handles().into();
        self.watch_handles();
        let leader = self.lead;
        self.kick(leader);
    }

    /// An address is to be closed. A thread that sleeps on its socket keeps it open, so that thread
    /// closes it.
    fn closed(&mut self) {
        let sleeper = if self.helper_polls { Lead::Helper } else { self.lead };
        match sleeper {
            Lead::Vacant | Lead::EventLoop => self.finish_closing(),
            sleeper => self.kick(sleeper),
        }
    }

    fn finish_closing(&mut self) {
        if self.core.finish_closing() {
            self.handles = self.core.driver().handles().into();
        }
    }

    /// A task waits. It cannot lead, so the helper must if no thread does.
    pub fn need_leader(&mut self) {
        if self.lead == Lead::Vacant {
            self.call_helper();
        }
    }

    fn call_helper(&mut self) {
        if !self.shared.helper_signals.helper_called.swap(true, Ordering::AcqRel) {
            match (self.helper_polls || self.helper_watches, &self.helper) {
                (true, _) => self.kick(Lead::Helper),
                (false, Some(helper)) => helper.unpark(),
                (false, None) => {}
            }
        }
    }

    /// Interrupts a leader's sleep.
    fn kick(&mut self, leader: Lead) {
        let shared = self.shared;
        let (kicked, waker) = match leader {
            Lead::Vacant => return,
            Lead::EventLoop => return self.hurry_event_loop(),
            Lead::Thread => (&mut self.thread_kicked, &shared.thread_waker),
            Lead::Helper => (&mut self.helper_kicked, &shared.helper_waker),
        };
        if !std::mem::replace(kicked, true) {
            waker.wake();
        }
    }

    /// Blocks until `done` returns a value, and drives the engine in the meantime if no other
    /// thread does. `done` must register the thread as a waiter. `None` after `until`.
    pub fn block<T>(
        &mut self,
        until: Option<Instant>,
        done: impl FnMut(&mut SharedState) -> Option<T>,
    ) -> Option<T> {
        self.block_or(until, None, done)
    }

    /// Blocks until a call ends; returns its result.
    pub fn block_on(mut self, key: CallKey, slot: &CallSlot) -> Result<Message, CallError> {
        // The engine ends the call at its deadline.
        let result = self.block_or(None, Some(&|| slot.take()), |state| {
            let waits = state.waiters.wait(key, WakeTarget::Thread(thread::current()));
            if waits { None } else { slot.take() }
        });
        result.unwrap_or(Err(CallError::ShuttingDown))
    }

    /// As [`Self::block`]. A follower for which `unlocked` returns a value returns it without
    /// taking the lock again, and is woken only for that.
    fn block_or<T>(
        &mut self,
        until: Option<Instant>,
        unlocked: Option<&dyn Fn() -> Option<T>>,
        mut done: impl FnMut(&mut SharedState) -> Option<T>,
    ) -> Option<T> {
        #[cfg(feature = "testing")]
        self.refuse_to_block();
        // Code of the application that the leading thread runs may call back: it continues to lead.
        let nested = self.lead == Lead::Thread && self.leader == Some(thread::current().id());
        let result = loop {
            if let Some(value) = done(self) {
                break Some(value);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break None;
            }
            if !self.leading && !nested && self.lead != Lead::Thread {
                if self.lead == Lead::Helper {
                    self.kick(Lead::Helper);
                }
                self.lead = Lead::Thread;
                self.leading = true;
            }
            if self.leading || nested {
                self.leader = Some(thread::current().id());
                self.lead_once(Lead::Thread, left);
            } else if let Some(value) = self.follow(left, unlocked) {
                break Some(value);
            }
        };
        if self.leading {
            self.step_down();
        } else if nested {
            // The outer call may be about to sleep until an earlier due time.
            self.kick(Lead::Thread);
        }
        result
    }

    /// As the given leader, sleeps until something happens, and handles it.
    fn lead_once(&mut self, me: Lead, left: Option<Duration>) {
        if self.run_deferred() {
            return;
        }
        let shared = self.shared;
        let state = &mut **self;
        let timeout = [state.core.idle(), left].into_iter().flatten().min();
        let mut arrived = true;
        if timeout.is_none_or(|timeout| !timeout.is_zero()) {
            state.asleep_until = Some(state.core.wake_at().unwrap_or(Time::MAX));
            state.helper_polls |= me == Lead::Helper;
            let (handles, full) = (state.handles.clone(), state.core.full_socket());
            let waker = match me {
                Lead::Helper => &shared.helper_waker,
                _ => &shared.thread_waker,
            };
            // The policy learns how soon peers answer; the pacer knows when the link takes a
            // packet.
            let (paced, budget_in) = (state.core.is_paced(), timeout.unwrap_or(Duration::MAX));
            let spin = match me {
                _ if paced => state.spin_policy.until_budget(budget_in),
                Lead::Thread => state.spin_policy.next(),
                _ => Duration::ZERO,
            };
            match self.unlocked(|| spin_then_wait((&handles, full), waker, spin, timeout)) {
                Ok(found) => {
                    arrived = found != WaitOutcome::Nothing;
                    if !spin.is_zero() && !paced {
                        self.spin_policy.learn(found == WaitOutcome::Awake);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                    self.core.fail(libc::EBADF);
                }
                // Only exhausted memory can cause this, so continue slowly.
                Err(_) => self.unlocked(|| thread::sleep(STANDBY)),
            }
        }
        let state = &mut **self;
        let (kicked, waker) = match me {
            Lead::Helper => {
                state.helper_polls = false;
                (&mut state.helper_kicked, &shared.helper_waker)
            }
            _ => (&mut state.thread_kicked, &shared.thread_waker),
        };
        if std::mem::replace(kicked, false) {
            waker.reset();
        }
        if state.lead == me {
            state.asleep_until = None;
            state.core.turn(arrived);
            state.waiters.dispatch(&mut state.core);
            state.end_if_over();
        }
        if !self.helper_polls && (self.lead == me || self.lead == Lead::Vacant) {
            self.finish_closing();
        } else if self.core.is_closing() && me == Lead::Helper {
            // While the helper still polled, the leading thread could not close the address.
            self.kick(Lead::Thread);
        }
    }

    /// Passes the lead on, or leaves it to the helper.
    fn step_down(&mut self) {
        (self.leading, self.leader) = (false, None);
        self.shared.helper_signals.activity.fetch_add(1, Ordering::Relaxed);
        self.next_leader = self.followers.choose();
        if self.next_leader.is_some() {
            return;
        }
        self.lead = Lead::Vacant;
        let has_event_loop = self.give_to_event_loop();
        if self.helper_rests || !has_event_loop && self.waiters.tasks() > 0 {
            self.call_helper();
        }
    }
}

impl Shared {
    /// An engine without a helper.
    pub fn new(mut core: Core, spin: Duration, waiters: Waiters) -> Result<Self, OpenError> {
        core.defer_drops();
        let turns = core.turns();
        let thread_waker = Waker::new().map_err(OpenError::Resources)?;
        let helper_waker = Waker::new().map_err(OpenError::Resources)?;
        let handles = core.driver().handles().into();
        let state = SharedState {
            core,
            waiters,
            draining: false,
            handing_over: false,
            closing: false,
            lead: Lead::Vacant,
            leader: None,
            followers: Followers::default(),
            asleep_until: None,
            thread_kicked: false,
            helper_kicked: false,
            helper_polls: false,
            handles,
            helper_rests: false,
            helper_watches: false,
            event_loop: None,
            helper: None,
            spin_policy: SpinPolicy::new(spin),
        };
        Ok(Self {
            state: Mutex::new(state),
            thread_waker,
            helper_waker,
            helper_signals: HelperSignals::default(),
            turns,
            slots: CallSlots::default(),
        })
    }

    /// Takes the lock. A panic of another thread does not corrupt the engine, because its state is
    /// consistent between calls.
    fn lock_state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the engine.
    pub fn access(&self) -> Access<'_> {
        Access { shared: self, guard: Some(self.lock_state()), leading: false, next_leader: None }
    }
}
