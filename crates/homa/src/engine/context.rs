//! What travels with a request beside its bytes.

use homa_proto::Time;
use homa_proto::wire::datagram::{RequestExtensions, TraceContext};

/// What a client says of its request beside the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// Until when it waits for the response; `Time::MAX`: it did not say.
    pub until: Time,
    /// The distributed trace that it belongs to.
    pub trace: Option<Box<TraceContext>>,
}

impl RequestContext {
    /// It says nothing.
    pub const NONE: Self = Self { until: Time::MAX, trace: None };

    /// As a datagram tells it that leaves now.
    pub fn to_extensions(&self, now: Time) -> RequestExtensions {
        let left = (self.until != Time::MAX).then(|| self.until.since(now));
        RequestExtensions { left, trace: self.trace.as_deref().copied() }
    }

    /// As a datagram tells it that arrived now.
    pub fn from_extensions(now: Time, extensions: &RequestExtensions) -> Self {
        let until = extensions.left.map_or(Time::MAX, |left| now + left);
        Self { until, trace: extensions.trace.map(Box::new) }
    }
}
