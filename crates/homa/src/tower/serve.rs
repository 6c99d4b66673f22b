//! The loop of a server whose requests a service answers: features `tower` and `tokio`.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::task::{JoinHandle, spawn};
use tower_service::Service;
use tracing::Instrument;

use super::Incoming;
use crate::error::{DrainTimeout, OpenError};
use crate::payload::Payload;
use crate::request::Request;
use crate::server::Server;

/// Answers the requests of a server by a service, each in a task of the current tokio runtime,
/// which also drives the engine ([`Engine::drive_on_tokio`](crate::Engine::drive_on_tokio)).
///
/// A request is accepted when the service is ready, so a layer that limits concurrency leaves the
/// others in the engine, where hosts take turns and requests are refused that cannot be answered in
/// time. If the client gives up, the future of the service is dropped. If the service fails or
/// panics, the call ends with [`CallError::Abandoned`](crate::CallError::Abandoned); other requests
/// are not affected. With feature `opentelemetry` the service runs in the context of the request's
/// span.
///
/// ```
/// use homa::tower::{Incoming, serve};
/// use tower::{ServiceBuilder, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = homa::Server::bind("127.0.0.1:0".parse()?)?;
/// let at = server.local_addr();
/// let upper = service_fn(|request: Incoming| async move {
///     Ok::<_, std::convert::Infallible>(request.to_ascii_uppercase())
/// });
/// let serving = serve(server, ServiceBuilder::new().concurrency_limit(64).service(upper))?;
/// assert_eq!(homa::Client::new()?.call_async(at, "hello").await?, *b"HELLO");
/// serving.drain(std::time::Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`OpenError::NoRuntime`] outside a runtime, [`OpenError::Resources`], [`OpenError::Forked`].
pub fn serve<S>(server: Server, service: S) -> Result<Serving<S::Error>, OpenError>
where
    S: Service<Incoming> + Send + 'static,
    S::Response: Into<Payload>,
    S::Error: Display + Send + 'static,
    S::Future: Send + 'static,
{
    match server.engine().drive_on_tokio() {
        // Another event loop drives it.
        Ok(()) | Err(OpenError::Driven) => {}
        Err(error) => return Err(error),
    }
    let running = spawn(run(server.clone(), service));
    Ok(Serving { server, running })
}

/// A server whose requests a service answers, from [`serve`]. As a future it resolves when no more
/// requests will come, or with the error of a service that will not become ready again. If it is
/// dropped, the server continues.
#[derive(Debug)]
pub struct Serving<E> {
    server: Server,
    running: JoinHandle<Result<(), E>>,
}

impl<E> Serving<E> {
    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Ends gracefully: see [`Server::drain_async`]. Requests in progress are answered.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some replies are not acknowledged when `timeout` has passed.
    pub async fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.server.drain_async(timeout).await
    }
}

impl<E> Future for Serving<E> {
    type Output = Result<(), E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The task does not panic; if the runtime ends, nothing comes any more.
        Poll::Ready(ready!(Pin::new(&mut self.running).poll(context)).unwrap_or(Ok(())))
    }
}

/// Accepts requests while there are any.
async fn run<S>(server: Server, mut service: S) -> Result<(), S::Error>
where
    S: Service<Incoming> + 'static,
    S::Response: Into<Payload>,
    S::Error: Display,
    S::Future: Send + 'static,
{
    loop {
        poll_fn(|context| service.poll_ready(context)).await?;
        let Some(mut request) = server.accept_async().await else { return Ok(()) };
        let span = request.span();
        let incoming = Incoming::of(&mut request);
        let called = span.in_scope(|| {
            request.spans().within(|| catch_unwind(AssertUnwindSafe(|| service.call(incoming))))
        });
        // The panic was reported when it happened; the client learns that the request was dropped.
        let Ok(work) = called else { continue };
        spawn(answer(request, work).instrument(span));
    }
}

/// Answers a request with the result of `work`, unless its client gives up before.
async fn answer<R: Into<Payload>, E: Display>(
    request: Request,
    work: impl Future<Output = Result<R, E>>,
) {
    let mut work = pin!(work);
    let result: Option<Result<Payload, String>> = {
        let mut given_up = pin!(request.cancelled());
        poll_fn(|context| match request.spans().within(|| work.as_mut().poll(context)) {
            Poll::Ready(Ok(response)) => Poll::Ready(Some(Ok(response.into()))),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error.to_string()))),
            Poll::Pending => given_up.as_mut().poll(context).map(|()| None),
        })
        .await
    };
    match result {
        // An error means that the client gave up, or that no response of this length is possible.
        Some(Ok(response)) => drop(request.reply_async(response).await),
        Some(Err(error)) => tracing::warn!(%error, "the service failed"),
        None => {}
    }
}
