//! The helper: a thread that drives the engine if no caller does.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Access, Lead, STANDBY, Shared};
use crate::driver::signals;
use crate::engine::core::Core;
use crate::engine::wait::waiters::Waiters;
use crate::error::OpenError;

impl Shared {
    /// Starts an engine and its helper.
    pub fn start(
        core: Core,
        spin: Duration,
        waiters: Waiters,
    ) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        let shared = Arc::new(Self::new(core, spin, waiters)?);
        let for_helper = shared.clone();
        let builder = thread::Builder::new().name("homa".into());
        // Signals are for threads of the application.
        let helper = signals::blocked(|| builder.spawn(move || for_helper.keep_helping()))
            .map_err(OpenError::Resources)?;
        shared.access().helper = Some(helper.thread().clone());
        Ok((shared, helper))
    }

    /// Restarts after a panic. The panic, of a bug or of a task's waker, was reported when it
    /// happened, and the waiters must not wait forever.
    pub(super) fn keep_helping(&self) {
        while panic::catch_unwind(AssertUnwindSafe(|| self.help())).is_err() {
            let mut access = self.access();
            // It may have panicked while it slept, but now it is awake.
            (access.helper_polls, access.helper_watches) = (false, false);
            if access.lead == Lead::Helper {
                // Otherwise each thread would wait for a leader that is gone.
                access.lead = Lead::Vacant;
                access.asleep_until = None;
            }
            drop(access);
            thread::sleep(STANDBY);
        }
    }

    fn help(&self) {
        let mut is_starved = false;
        loop {
            let mut access = self.access();
            if access.closing {
                return;
            }
            let called = self.helper_signals.helper_called.swap(false, Ordering::AcqRel);
            if access.core.ended().is_some() {
                // No thread waits for it to lead any more.
                if access.lead == Lead::Helper {
                    access.lead = Lead::Vacant;
                }
                drop(access);
                // Until the engine is closed.
                thread::park();
                continue;
            }
            // It only watches as long as the event loop does its work.
            if access.lead == Lead::EventLoop {
                if !is_starved {
                    is_starved = self.watch(access);
                    continue;
                }
                access.starved();
            }
            is_starved = false;
            // Tasks cannot lead, so it leads for them at once; otherwise if nothing else does.
            if access.lead == Lead::Helper
                || access.lead == Lead::Vacant && (access.waiters.tasks() > 0 || !called)
            {
                access.lead = Lead::Helper;
                let runs = |access: &Access<'_>| !access.closing && access.core.ended().is_none();
                while access.lead == Lead::Helper && runs(&access) {
                    access.lead_once(Lead::Helper, None);
                }
                let watches = access.lead == Lead::EventLoop;
                drop(access);
                if !watches {
                    self.stand_by(false);
                }
                continue;
            }
            // A thread leads. If it stops, it calls the helper.
            access.helper_rests = access.lead == Lead::Thread && !called;
            let rests = access.helper_rests;
            drop(access);
            self.stand_by(rests);
        }
    }

    /// Waits until called, or until nothing happened between two looks.
    fn stand_by(&self, rests: bool) {
        let called = || self.helper_signals.helper_called.load(Ordering::Acquire);
        // A lead that lasts calls it when it ends, so that it need not look.
        while rests && !called() {
            thread::park();
        }
        loop {
            let before = self.helper_signals.activity.load(Ordering::Relaxed);
            if called() {
                return;
            }
            thread::park_timeout(STANDBY);
            // Nothing happened between two looks: the lead is vacant.
            if called() || self.helper_signals.activity.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}
