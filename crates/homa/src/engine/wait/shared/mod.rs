//! An engine for many threads and tasks, driven by whoever waits.
//!
//! One lock guards the engine. A thread that blocks becomes the *leader* if there is none: it
//! sleeps in `ppoll` on the sockets, without the lock, and then takes in what arrived for
//! everybody. Others park; the leader wakes those whose turn came and hands the lead to one of them
//! when it leaves. The helper thread leads only when no thread blocks: on the way to an answer,
//! another thread's wake-up costs more than the protocol.
//!
//! Without that lock a parked thread leaves with the result of its call, which is in a slot with a
//! lock of its own (`waiters/slot.rs`): the leader may have the engine's lock for its next
//! turn. Whether the thread may just leave or was handed the lead before, its ticket says,
//! atomically (`followers.rs`). Everything else is guarded by the engine's lock.
//!
//! Taking over costs two context switches, so the helper does not jump in the moment a lead is
//! dropped: it looks every [`STANDBY`], without the lock, and steps in when nothing has happened
//! since its last look, or at once when tasks wait, which cannot lead. When a lead lasts, it stops
//! looking until called.
//!
//! A leading thread spins before it sleeps while that pays (see [`SpinPolicy`]). Whoever leads spins
//! through the short waits between paced packets: a sleep ends some 50 us late, which is four
//! packets of a link of 1 Gbit/s.
//!
//! Left out: fairness between callers beyond first-come leadership.

mod followers;
mod helper;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread, ThreadId};
use std::time::{Duration, Instant};

use followers::Followers;
use homa_proto::Time;

use super::deferred::Deferred;
use super::slot::{CallSlot, CallSlots};
use super::spin::{SpinPolicy, WaitOutcome, spin_then_wait};
use super::waiters::{CallKey, Waiters, WakeTarget};
use crate::driver::{Waker, signals};
use crate::engine::core::Core;
use crate::error::{CallError, OpenError};
use crate::message::Message;

/// How often the helper looks whether it is needed while others are active.
const STANDBY: Duration = Duration::from_millis(1);

/// The engine, its lock and its helper's place.
pub struct Shared {
    state: Mutex<SharedState>,
    /// Interrupts the sleep of a leading thread.
    thread_waker: Waker,
    /// Interrupts the helper's sleep in `ppoll`.
    helper_waker: Waker,
    /// What the helper looks at without the lock.
    helper_signals: HelperSignals,
    /// For the results of calls to come.
    pub slots: CallSlots,
}

/// Written under the lock, read without it.
#[derive(Default)]
struct HelperSignals {
    /// Counts changes of the lead.
    activity: AtomicU64,
    /// The helper shall look at once.
    helper_called: AtomicBool,
}

/// What the lock guards.
pub struct SharedState {
    /// The engine.
    pub core: Core,
    /// Who waits for what.
    pub waiters: Waiters,
    /// New calls are refused.
    pub draining: bool,
    /// The last handle is gone.
    closing: bool,
    lead: Lead,
    /// The leading thread, if one leads and knows that it does.
    leader: Option<ThreadId>,
    /// Parked threads that could lead.
    followers: Followers,
    /// Until when the leader sleeps, while it does.
    asleep_until: Option<Time>,
    /// The leading thread's sleep was interrupted.
    thread_kicked: bool,
    /// The helper's was.
    helper_kicked: bool,
    /// The helper sleeps in `ppoll`, leading or just deprived of the lead.
    helper_polls: bool,
    handles: Arc<[RawFd]>,
    /// The helper parked until called.
    helper_rests: bool,
    /// To unpark it.
    helper: Option<Thread>,
    spin_policy: SpinPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    Vacant,
    Thread,
    Helper,
}

/// Exclusive access to the engine. Wakes whoever has to be woken when released.
pub struct Access<'a> {
    shared: &'a Shared,
    guard: Option<MutexGuard<'a, SharedState>>,
    /// This thread leads; still true when dropped only if it panicked.
    leading: bool,
    /// Has the lead; woken when the lock is released, which it needs.
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
            // Whoever follows must not wait for a leader that is no more.
            self.guard.get_or_insert_with(|| self.shared.lock_state());
            self.asleep_until = None;
            self.step_down();
        }
        self.release();
    }
}

impl Access<'_> {
    /// Releases the lock, then wakes, and ends what is over.
    fn release(&mut self) {
        if self.guard.is_none() {
            return;
        }
        let SharedState { waiters, core, .. } = &mut **self;
        waiters.signal();
        let deferred = Deferred::of(waiters, core);
        // A leader that sleeps on the sockets is not woken by being unparked.
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

    /// Ends what is over, without the lock; true if there was something. It may call back and wait
    /// for what only this thread drives: due before this thread sleeps or can be handed the lead.
    fn run_deferred(&mut self) -> bool {
        let any = self.core.has_payloads_to_drop() || self.waiters.has_wakers_to_drop();
        if any {
            self.unlocked(|| ());
        }
        any
    }

    /// Does something without the lock, which may be somebody's code.
    pub fn unlocked<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.release();
        let result = what();
        self.guard = Some(self.shared.lock_state());
        result
    }

    /// To be called after submissions: sends what may leave and makes sure that somebody sees to
    /// the rest in time.
    pub fn submitted(&mut self) {
        let state = &mut **self;
        state.core.transmit();
        state.waiters.dispatch(&mut state.core);
        self.hurry();
        if self.core.is_closing() {
            // Just now it began, or what ended was the last that needed the address.
            self.closed();
        }
    }

    /// To be called after the application took something: what that makes room for is asked for at
    /// once.
    pub fn accepted(&mut self) {
        if self.core.has_control() {
            self.submitted();
        }
    }

    /// Has who sleeps wake up in time for what is due now.
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

    /// To be called when a task waits for the end of a request: somebody looks when its time is
    /// over, if not before.
    pub fn watched(&mut self) {
        let state = &mut **self;
        state.core.set_alarm(state.waiters.watch().next());
        self.hurry();
        self.need_leader();
    }

    /// To be called after binding another address: the sleeper must watch it, too.
    pub fn bound(&mut self) {
        self.handles = self.core.driver().handles().into();
        let leader = self.lead;
        self.kick(leader);
    }

    /// An address is to be closed. Whoever sleeps on it keeps it open, so the sleeper does it.
    fn closed(&mut self) {
        let sleeper = if self.helper_polls { Lead::Helper } else { self.lead };
        match sleeper {
            Lead::Vacant => self.finish_closing(),
            sleeper => self.kick(sleeper),
        }
    }

    fn finish_closing(&mut self) {
        if self.core.finish_closing() {
            self.handles = self.core.driver().handles().into();
        }
    }

    /// A task waits: it cannot lead, so the helper must if nobody does.
    pub fn need_leader(&mut self) {
        if self.lead == Lead::Vacant {
            self.call_helper();
        }
    }

    fn call_helper(&mut self) {
        if !self.shared.helper_signals.helper_called.swap(true, Ordering::AcqRel) {
            match (self.helper_polls, &self.helper) {
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
            Lead::Thread => (&mut self.thread_kicked, &shared.thread_waker),
            Lead::Helper => (&mut self.helper_kicked, &shared.helper_waker),
        };
        if !std::mem::replace(kicked, true) {
            waker.wake();
        }
    }

    /// Blocks until `done` yields a value, driving the engine meanwhile if nobody else does. `done`
    /// has to register the thread with the board. `None` when `until` passed.
    pub fn block<T>(
        &mut self,
        until: Option<Instant>,
        done: impl FnMut(&mut SharedState) -> Option<T>,
    ) -> Option<T> {
        self.block_or(until, None, done)
    }

    /// Blocks until a call ends; returns its result.
    pub fn block_on(mut self, key: CallKey, slot: &CallSlot) -> Result<Message, CallError> {
        // The engine itself ends the call at its deadline.
        let result = self.block_or(None, Some(&|| slot.take()), |state| {
            let waits = state.waiters.wait(key, WakeTarget::Thread(thread::current()));
            if waits { None } else { slot.take() }
        });
        result.unwrap_or(Err(CallError::ShuttingDown))
    }

    /// As [`Self::block`]. A follower for which `unlocked` yields a value returns that without
    /// having taken the lock again, and is woken for nothing else.
    fn block_or<T>(
        &mut self,
        until: Option<Instant>,
        unlocked: Option<&dyn Fn() -> Option<T>>,
        mut done: impl FnMut(&mut SharedState) -> Option<T>,
    ) -> Option<T> {
        // What this thread ends while it leads calls back: it goes on leading.
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
            // It may be about to sleep until what was due before.
            self.kick(Lead::Thread);
        }
        result
    }

    /// As the given leader, sleeps until something happens, and deals with it.
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
            // The spinner learns how soon others answer; the pacer knows when there is room.
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
                // Only exhausted memory can be the reason: go on at a walking pace.
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
        }
        if !self.helper_polls && (self.lead == me || self.lead == Lead::Vacant) {
            self.finish_closing();
        } else if self.core.is_closing() && me == Lead::Helper {
            // The thread that leads could not, or was not told, while this one still polled.
            self.kick(Lead::Thread);
        }
    }

    /// Hands the lead over, or leaves it to the helper.
    fn step_down(&mut self) {
        (self.leading, self.leader) = (false, None);
        self.shared.helper_signals.activity.fetch_add(1, Ordering::Relaxed);
        self.next_leader = self.followers.choose();
        if self.next_leader.is_some() {
            return;
        }
        self.lead = Lead::Vacant;
        if self.waiters.tasks() > 0 || self.helper_rests {
            self.call_helper();
        }
    }
}

impl Shared {
    /// Starts the helper of an engine.
    pub fn start(mut core: Core, spin: Duration) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        core.defer_drops();
        let thread_waker = Waker::new().map_err(OpenError::Resources)?;
        let helper_waker = Waker::new().map_err(OpenError::Resources)?;
        let handles = core.driver().handles().into();
        let state = SharedState {
            core,
            waiters: Waiters::default(),
            draining: false,
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
            helper: None,
            spin_policy: SpinPolicy::new(spin),
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            thread_waker,
            helper_waker,
            helper_signals: HelperSignals::default(),
            slots: CallSlots::default(),
        });
        let for_helper = shared.clone();
        let builder = thread::Builder::new().name("homa".into());
        let helper = signals::blocked(|| builder.spawn(move || for_helper.keep_helping()))
            .map_err(OpenError::Resources)?;
        shared.access().helper = Some(helper.thread().clone());
        Ok((shared, helper))
    }

    /// Takes the lock. A panic elsewhere does not spoil the engine: its state is consistent between
    /// calls.
    fn lock_state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exclusive access to the engine.
    pub fn access(&self) -> Access<'_> {
        Access { shared: self, guard: Some(self.lock_state()), leading: false, next_leader: None }
    }

    /// Ends the helper.
    pub fn close(&self) {
        let mut access = self.access();
        access.core.transmit();
        access.closing = true;
        access.kick(Lead::Helper);
        access.call_helper();
    }
}
