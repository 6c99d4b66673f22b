//! Applications of the hosts: they submit messages and receive events about them.

use homa_proto::{Event, Submit, SubmitError, Submitted};

use crate::time::SimTime;
use crate::topology::HostId;

/// The applications of all hosts, in one value.
pub trait Application {
    /// A call-back requested with [`Context::wake_at`] is due.
    fn wake<C: Context>(&mut self, _net: &mut C, _token: u64) {}

    /// The transport of `host` reported an event.
    fn event<C: Context>(&mut self, _net: &mut C, _host: HostId, _event: &Event) {}

    /// A call-back requested with [`Context::wake_host_at`] is due.
    fn wake_host<C: Context>(&mut self, _net: &mut C, _host: HostId, _token: u64) {}

    /// `host` lost all its state and starts again.
    fn restarted<C: Context>(&mut self, _net: &mut C, _host: HostId) {}
}

/// No application, for runs that are driven by the caller.
impl Application for () {}

/// The network as applications see it.
pub trait Context {
    /// The time.
    fn now(&self) -> SimTime;

    /// Submits a message to the transport of `host`.
    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError>;

    /// As [`Context::submit`], at a priority level that the application chose, 0 (lowest) to 7, if
    /// the transport supports it; `None` follows the transport's own rule.
    fn submit_at(
        &mut self,
        host: HostId,
        what: Submit,
        _level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        self.submit(host, what)
    }

    /// Requests a call of [`Application::wake`] at `at`, or now if `at` has passed.
    fn wake_at(&mut self, at: SimTime, token: u64);

    /// Requests a call of [`Application::wake_host`]. It is delayed while the host pauses and
    /// dropped if the host crashes before.
    fn wake_host_at(&mut self, host: HostId, at: SimTime, token: u64);

    /// Ends the run after the current event.
    fn stop(&mut self);
}
