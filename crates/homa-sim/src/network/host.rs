//! A host: its transport, the wire it pulls packets for, its one timer, and whether it is alive.
//!
//! Invariants: at most one packet is being serialised; at most one timer event is *current* (older
//! ones still in the queue are ignored); a wake-up asked for in one life of the host never fires in
//! another.

use homa_proto::{Submit, SubmitError, Submitted};

use super::Transport;
use crate::engine::EventQueue;
use crate::time::SimTime;

use super::probe::{Observed, Probe};
use super::{Happening, HostId};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Host<T> {
    pub transport: T,
    /// A packet is being serialised.
    pub wire_busy: bool,
    /// The current timer event; `MAX`: none.
    pub timer: SimTime,
    /// Frozen until then: nothing is processed, nothing new is sent.
    pub paused_until: SimTime,
    pub up: bool,
    /// Counts restarts.
    pub life: u32,
}

impl<T: Transport> Host<T> {
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            wire_busy: false,
            // The first call tells the transport when its life begins.
            timer: SimTime::ZERO,
            paused_until: SimTime::ZERO,
            up: true,
            life: 0,
        }
    }

    /// When the transport's deadline needs a new timer event, its time.
    pub fn rearm(&mut self, now: SimTime) -> Option<SimTime> {
        let deadline = SimTime::from_protocol(self.transport.deadline()?);
        if deadline == SimTime::MAX || deadline >= self.timer {
            return None;
        }
        self.timer = deadline.max(now);
        Some(self.timer)
    }
}

/// What applications run on the hosts.
pub trait Application<T> {
    /// The transport reported something.
    fn on_event<P: Probe>(&mut self, host: &mut Context<'_, T, P>, event: &homa_proto::Event);
    /// A wake-up asked for earlier is due.
    fn on_wake<P: Probe>(&mut self, host: &mut Context<'_, T, P>, token: u64);
    /// The host lost everything and starts anew.
    fn on_restart<P: Probe>(&mut self, _host: &mut Context<'_, T, P>) {}
}

/// A host as its application sees it.
pub struct Context<'a, T, P> {
    pub(super) now: SimTime,
    pub(super) host: HostId,
    pub(super) life: u32,
    pub(super) transport: &'a mut T,
    pub(super) events: &'a mut EventQueue<Happening>,
    pub(super) probe: &'a mut P,
}

impl<T: Transport, P: Probe> Context<'_, T, P> {
    /// The time.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Which host this is.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Hands something to the transport.
    pub fn submit(&mut self, what: Submit) -> Result<Submitted, SubmitError> {
        let result = self.transport.submit(self.now.protocol(), what);
        self.probe.observe(
            self.now,
            Observed::Submitted { host: self.host, what: &what, result: &result },
        );
        result
    }

    /// Asks for [`Application::on_wake`] at `at`, unless the host restarts before.
    pub fn wake_at(&mut self, at: SimTime, token: u64) {
        let (host, life) = (self.host, self.life);
        self.events.push(at.max(self.now), Happening::Wake { host, life, token });
    }
}
