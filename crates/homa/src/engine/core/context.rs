//! The context of a request: what travels with it beside its bytes.

#[cfg(feature = "encryption")]
use std::sync::Arc;

use homa_proto::Time;
use homa_proto::wire::datagram::{RequestExtensions, TraceContext};

#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;

/// A client's deadline and trace for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The client waits for the response until then; `Time::MAX` if it did not send a deadline.
    pub until: Time,
    /// The distributed trace that the request belongs to.
    pub trace: Option<Box<TraceContext>>,
    /// Its packet says that it may be executed more than once.
    pub idempotent: bool,
    /// Who the client has proved to be, if this engine has keys.
    #[cfg(feature = "encryption")]
    pub identity: Option<Arc<PeerIdentity>>,
}

impl RequestContext {
    /// No deadline and no trace.
    pub const NONE: Self = Self::new(Time::MAX, None);

    /// A context without an identity.
    pub const fn new(until: Time, trace: Option<Box<TraceContext>>) -> Self {
        Self {
            until,
            trace,
            idempotent: false,
            #[cfg(feature = "encryption")]
            identity: None,
        }
    }

    /// As extensions of a datagram that leaves at `now`.
    pub fn to_extensions(&self, now: Time) -> RequestExtensions {
        // Clocks differ between hosts, so the time left is sent and not the deadline.
        let left = (self.until != Time::MAX).then(|| self.until.since(now));
        let (trace, idempotent) = (self.trace.as_deref().copied(), self.idempotent);
        RequestExtensions { left, trace, idempotent }
    }

    /// From the extensions of a datagram that arrived at `now`.
    pub fn from_extensions(now: Time, extensions: &RequestExtensions) -> Self {
        let until = extensions.left.map_or(Time::MAX, |left| now + left);
        Self::new(until, extensions.trace.map(Box::new))
    }
}
