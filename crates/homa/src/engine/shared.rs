//! An engine for many threads and tasks, driven by whoever waits.
//!
//! One lock guards the engine. A thread that blocks becomes the *leader* if there is none: it sleeps in
//! `ppoll` on the sockets, without the lock, and then takes in what arrived for everybody. Others park;
//! the leader wakes those whose turn came and hands the lead to one of them when it leaves. The helper
//! thread leads only when no thread blocks: on the way to an answer, another thread's wake-up costs
//! more than the protocol.
//!
//! Taking over costs two context switches, so the helper does not jump in the moment a lead is dropped: it
//! looks every [`STANDBY`] and steps in when nothing has happened since its last look, or at once
//! when tasks wait, which cannot lead. When a lead lasts, it stops looking until called.
//!
//! Left out: fairness between callers beyond first-come leadership.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use homa_proto::Time;

use super::Core;
use super::switchboard::Switchboard;
use crate::driver::{Waker, wait};
use crate::error::OpenError;

/// How often the helper looks whether it is needed while others are active.
const STANDBY: Duration = Duration::from_micros(500);

/// The engine, its lock and its helper's place.
pub struct Shared {
    state: Mutex<State>,
    /// Interrupts the sleep of a leading thread.
    thread_waker: Waker,
    /// Interrupts the helper's sleep in `ppoll`.
    helper_waker: Waker,
    /// Interrupts the helper's sleep while it does not lead.
    helper: Condvar,
}

/// What the lock guards.
pub struct State {
    /// The engine.
    pub core: Core,
    /// Who waits for what.
    pub board: Switchboard,
    /// New calls are refused.
    pub draining: bool,
    /// The last handle is gone.
    closing: bool,
    lead: Lead,
    /// Parked threads that could lead, by order of arrival.
    followers: BTreeMap<u64, Thread>,
    next_follower: u64,
    /// Until when the leader sleeps, while it does.
    asleep_until: Option<Time>,
    /// The leading thread's sleep was interrupted.
    thread_kicked: bool,
    /// The helper's was.
    helper_kicked: bool,
    /// The helper sleeps in `ppoll`, leading or just deprived of the lead.
    helper_polls: bool,
    handles: Arc<[RawFd]>,
    /// Counts changes of the lead.
    activity: u64,
    /// The helper shall look at once.
    helper_called: bool,
    /// The helper stopped looking until called.
    helper_rests: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    Nobody,
    Thread,
    Helper,
}

/// Exclusive access to the engine. Wakes whoever has to be woken when released.
pub struct Access<'a> {
    shared: &'a Shared,
    guard: Option<MutexGuard<'a, State>>,
}

impl std::ops::Deref for Access<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl std::ops::DerefMut for Access<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Access<'_> {
    /// Releases the lock, then wakes.
    fn release(&mut self) {
        if let Some(mut state) = self.guard.take() {
            let wakes = state.board.take_wakes();
            drop(state);
            wakes.into_iter().for_each(super::switchboard::Waiting::wake);
        }
    }

    /// Does something without the lock.
    fn unlocked<T>(&mut self, what: impl FnOnce() -> T) -> T {
        self.release();
        let result = what();
        self.guard = Some(self.shared.lock_state());
        result
    }

    /// To be called after submissions: sends what may leave and makes sure that somebody sees to the rest
    /// in time.
    pub fn submitted(&mut self) {
        let state = &mut **self;
        state.core.transmit();
        state.board.dispatch(&mut state.core);
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

    /// To be called after binding another address: the sleeper must watch it, too.
    pub fn bound(&mut self) {
        self.handles = self.core.driver().handles().into();
        let leader = self.lead;
        self.kick(leader);
    }

    /// A task waits: it cannot lead, so the helper must if nobody does.
    pub fn need_leader(&mut self) {
        if self.lead == Lead::Nobody {
            self.call_helper();
        }
    }

    fn call_helper(&mut self) {
        if !self.helper_called {
            self.helper_called = true;
            match self.helper_polls {
                true => self.kick(Lead::Helper),
                false => self.shared.helper.notify_one(),
            }
        }
    }

    /// Interrupts a leader's sleep.
    fn kick(&mut self, leader: Lead) {
        let shared = self.shared;
        let (kicked, waker) = match leader {
            Lead::Nobody => return,
            Lead::Thread => (&mut self.thread_kicked, &shared.thread_waker),
            Lead::Helper => (&mut self.helper_kicked, &shared.helper_waker),
        };
        if !std::mem::replace(kicked, true) {
            waker.wake();
        }
    }

    /// Blocks until `done` yields a value, driving the engine meanwhile if nobody else does. `done` has to
    /// register the thread with the board. `None` when `until` passed.
    pub fn block<T>(
        &mut self,
        until: Option<Instant>,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut leading = false;
        let result = loop {
            if let Some(value) = done(self) {
                break Some(value);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break None;
            }
            if !leading && self.lead != Lead::Thread {
                if self.lead == Lead::Helper {
                    self.kick(Lead::Helper);
                }
                self.lead = Lead::Thread;
                leading = true;
            }
            if leading {
                self.lead_once(Lead::Thread, left);
            } else {
                leading = self.follow(left);
            }
        };
        if leading {
            self.step_down();
        }
        result
    }

    /// As the given leader, sleeps until something happens, and deals with it.
    fn lead_once(&mut self, me: Lead, left: Option<Duration>) {
        let shared = self.shared;
        let state = &mut **self;
        let timeout = [state.core.idle(), left].into_iter().flatten().min();
        if timeout.is_none_or(|timeout| !timeout.is_zero()) {
            state.asleep_until = Some(state.core.wake_at().unwrap_or(Time::MAX));
            state.helper_polls |= me == Lead::Helper;
            let handles = state.handles.clone();
            let waker = match me {
                Lead::Helper => &shared.helper_waker,
                _ => &shared.thread_waker,
            };
            let slept = self.unlocked(|| wait(&handles, Some(waker), timeout));
            if slept.is_err() {
                // Only exhausted memory can be the reason: go on at a walking pace.
                self.unlocked(|| thread::sleep(STANDBY));
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
            state.core.turn();
            state.board.dispatch(&mut state.core);
        }
    }

    /// Parks; true when the lead was handed over meanwhile.
    fn follow(&mut self, left: Option<Duration>) -> bool {
        self.next_follower += 1;
        let ticket = self.next_follower;
        self.followers.insert(ticket, thread::current());
        self.unlocked(|| match left {
            Some(left) => thread::park_timeout(left),
            None => thread::park(),
        });
        self.followers.remove(&ticket).is_none()
    }

    /// Hands the lead over, or leaves it to the helper.
    fn step_down(&mut self) {
        self.activity += 1;
        if let Some((_, follower)) = self.followers.pop_first() {
            follower.unpark();
            return;
        }
        self.lead = Lead::Nobody;
        if self.board.tasks() > 0 || self.helper_rests {
            self.call_helper();
        }
    }
}

impl Shared {
    /// Starts the helper of an engine.
    pub fn start(core: Core) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        let thread_waker = Waker::new().map_err(OpenError::Resources)?;
        let helper_waker = Waker::new().map_err(OpenError::Resources)?;
        let handles = core.driver().handles().into();
        let state = State {
            core,
            board: Switchboard::default(),
            draining: false,
            closing: false,
            lead: Lead::Nobody,
            followers: BTreeMap::new(),
            next_follower: 0,
            asleep_until: None,
            thread_kicked: false,
            helper_kicked: false,
            helper_polls: false,
            handles,
            activity: 0,
            helper_called: false,
            helper_rests: false,
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            thread_waker,
            helper_waker,
            helper: Condvar::new(),
        });
        let for_helper = shared.clone();
        let helper = thread::Builder::new()
            .name("homa".into())
            .spawn(move || for_helper.help())
            .map_err(OpenError::Resources)?;
        Ok((shared, helper))
    }

    /// Takes the lock. A panic elsewhere does not spoil the engine: its state is consistent between calls.
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exclusive access to the engine.
    pub fn access(&self) -> Access<'_> {
        Access { shared: self, guard: Some(self.lock_state()) }
    }

    /// Ends the helper.
    pub fn close(&self) {
        let mut access = self.access();
        access.core.transmit();
        access.closing = true;
        access.kick(Lead::Helper);
        self.helper.notify_one();
    }

    fn help(&self) {
        let mut access = self.access();
        let mut seen = None;
        while !access.closing {
            let wanted = access.helper_called && access.board.tasks() > 0;
            access.helper_called = false;
            if access.lead == Lead::Nobody && (wanted || seen == Some(access.activity)) {
                access.lead = Lead::Helper;
                while access.lead == Lead::Helper && !access.closing {
                    access.lead_once(Lead::Helper, None);
                }
                // Whoever became ready last has to be told.
                access.unlocked(|| ());
                seen = None;
                continue;
            }
            let quiet = access.lead == Lead::Thread && seen == Some(access.activity);
            seen = Some(access.activity);
            access.helper_rests = quiet;
            access.stand_by(quiet);
            access.helper_rests = false;
        }
    }
}

impl Access<'_> {
    /// The helper's wait: until called, or for [`STANDBY`] unless all is quiet.
    fn stand_by(&mut self, quiet: bool) {
        let shared = self.shared;
        self.guard = self.guard.take().map(|state| {
            if quiet {
                shared.helper.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = shared.helper.wait_timeout(state, STANDBY);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        });
    }
}
