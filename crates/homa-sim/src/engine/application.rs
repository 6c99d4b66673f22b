//! What runs on the hosts: it submits messages and hears what becomes of them.

use homa_proto::{Event, Submit, SubmitError, Submitted};

use crate::time::SimTime;
use crate::topology::HostId;

/// The applications of all hosts, in one value.
pub trait Application {
    /// A call-back asked for with [`Context::wake_at`] is due.
    fn wake<C: Context>(&mut self, _net: &mut C, _token: u64) {}

    /// The transport of `host` reported something.
    fn event<C: Context>(&mut self, _net: &mut C, _host: HostId, _event: &Event) {}

    /// A call-back asked for with [`Context::wake_host_at`] is due.
    fn wake_host<C: Context>(&mut self, _net: &mut C, _host: HostId, _token: u64) {}

    /// `host` lost everything and starts anew.
    fn restarted<C: Context>(&mut self, _net: &mut C, _host: HostId) {}
}

/// No applications: for runs that are driven from outside.
impl Application for () {}

/// The network as applications see it.
pub trait Context {
    /// The time.
    fn now(&self) -> SimTime;

    /// Hands something to the transport of `host`.
    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError>;

    /// The same at a priority level that the application chose, 0 (lowest) to 7, where the
    /// transport lets it; `None`: by the transport's own rule.
    fn submit_at(
        &mut self,
        host: HostId,
        what: Submit,
        _level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        self.submit(host, what)
    }

    /// Asks for [`Application::wake`] at `at`, at the earliest now.
    fn wake_at(&mut self, at: SimTime, token: u64);

    /// Asks for [`Application::wake_host`], which waits while the host pauses and never comes when
    /// it crashes before.
    fn wake_host_at(&mut self, host: HostId, at: SimTime, token: u64);

    /// Ends the run after the present event.
    fn stop(&mut self);
}
