//! Errors of the transport as statuses of gRPC.

use homa::CallError;
use homa::balance::BalanceError;
use tonic::{Code, Status};

/// The status of a call that ended without a response.
///
/// `Unavailable` may be retried if the call may run twice, or if the status says that it was not
/// executed; the error is the status's source.
pub(crate) fn of(error: CallError) -> Status {
    let code = match &error {
        CallError::DeadlineExceeded => Code::DeadlineExceeded,
        CallError::MessageTooLong { .. }
        | CallError::RequestTooLong { .. }
        | CallError::ResponseTooLong { .. }
        | CallError::TooManyCalls { .. }
        | CallError::TooManyCallsTo { .. }
        | CallError::TooManyPeers { .. }
        | CallError::SendMemoryFull { .. } => Code::ResourceExhausted,
        CallError::HandshakeRefused { .. } => Code::Unauthenticated,
        CallError::Unprotected { .. } => Code::FailedPrecondition,
        CallError::AddressFamily { .. } | CallError::Destination { .. } => Code::InvalidArgument,
        _ => Code::Unavailable,
    };
    let mut status = Status::new(code, error.to_string());
    status.set_source(std::sync::Arc::new(error));
    status
}

/// The status of a call for which no server was known.
pub(crate) fn without_server(error: BalanceError) -> Status {
    let code = match &error {
        BalanceError::Late => Code::DeadlineExceeded,
        _ => Code::Unavailable,
    };
    let mut status = Status::new(code, error.to_string());
    status.set_source(std::sync::Arc::new(error));
    status
}

/// Something that only a faulty peer sends.
pub(crate) fn malformed(what: impl std::fmt::Display) -> Status {
    Status::internal(format!("the peer's message cannot be decoded: {what}"))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn statuses_keep_the_error_that_they_stand_for() {
        let status = of(CallError::PortUnreachable);
        assert_eq!(status.code(), Code::Unavailable);
        let source = status.source().and_then(|source| source.downcast_ref::<CallError>());
        assert_eq!(source, Some(&CallError::PortUnreachable));
        assert_eq!(of(CallError::DeadlineExceeded).code(), Code::DeadlineExceeded);
    }
}
