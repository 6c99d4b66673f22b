//! What a caller says about one call.

use std::time::Duration;

use homa_proto::wire::datagram::TraceContext;

/// Parameters of one call. Start from [`CallOptions::deadline`] or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long the caller waits. Default: 10 s. Over UDP the server receives the deadline and does
    /// not start a request that has expired.
    pub deadline: Duration,
    /// The call may be executed more than once. If the server restarts or disappears, the call is
    /// retried until its deadline instead of failing with
    /// [`CallError::Indeterminate`](crate::CallError::Indeterminate). A call that the server
    /// refuses with a reason, such as overload, is not retried. Without effect in the profiles of
    /// the kernel module and of the paper, in which any request may be executed more than once.
    pub idempotent: bool,
    /// The distributed trace that the request belongs to. Over UDP it travels to the server
    /// ([`Request::trace_context`](crate::Request::trace_context)). Default: the trace of the
    /// request on whose behalf the client calls, if any.
    pub trace: Option<TraceContext>,
    /// The server answers with [`Reply`](crate::Reply)s: a status becomes
    /// [`CallError::Status`](crate::CallError::Status), and only the answer itself is returned.
    /// Default: no. Without effect for [`inline::Engine`](crate::inline::Engine) and
    /// [`Socket`](crate::Socket), which return replies as they are.
    pub status: bool,
    /// Waits for the server until the deadline. If nothing listens at its port, or its host cannot
    /// be reached, and the call was certainly not executed
    /// ([`CallError::PortUnreachable`](crate::CallError::PortUnreachable),
    /// [`CallError::HostUnreachable`](crate::CallError::HostUnreachable)), it is made again, after
    /// 5 ms at first, and in the end every 250 ms; that error is returned if the deadline comes
    /// first. Between these attempts it does not count as a call in progress. A future has to be
    /// polled for it. Default: no, but idempotent calls wait in any case. Without effect for
    /// [`Client::call_writer`](crate::Client::call_writer),
    /// [`inline::Engine`](crate::inline::Engine) and [`Socket`](crate::Socket), and for a
    /// `Balancer`, which makes such calls again itself.
    pub wait_for_ready: bool,
    /// May be sent as early data, although the engine does not repeat it: a `Balancer` repeats
    /// idempotent calls itself.
    pub(crate) may_run_twice: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            idempotent: false,
            trace: None,
            status: false,
            wait_for_ready: false,
            may_run_twice: false,
        }
    }
}

impl CallOptions {
    /// The default options with another deadline.
    pub fn deadline(deadline: Duration) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// Marks the call as idempotent: the request may be executed more than once.
    pub fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// Expects [`Reply`](crate::Reply)s of the server: [`Self::status`](field@Self::status).
    pub fn status(self) -> Self {
        Self { status: true, ..self }
    }

    /// Waits for a server until the deadline: [`Self::wait_for_ready`](field@Self::wait_for_ready).
    ///
    /// ```
    /// # use homa::{Client, Server};
    /// use homa::CallOptions;
    ///
    /// # let at = Server::bind("127.0.0.1:0".parse()?)?.local_addr();
    /// let client = Client::new()?;
    /// let call = client.call_async_with(at, "early", &CallOptions::default().wait_for_ready());
    /// let server = Server::bind(at)?;
    /// # std::thread::spawn(move || server.accept().map(|request| request.reply("pong")));
    /// assert_eq!(call.wait()?, *b"pong");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_ready(self) -> Self {
        Self { wait_for_ready: true, ..self }
    }

    /// Sets the distributed trace that the request belongs to.
    pub fn trace(self, context: TraceContext) -> Self {
        Self { trace: Some(context), ..self }
    }
}
