//! Classes of the errors of calls: what a caller may do next, whatever the reason.

use crate::error::CallError;

impl CallError {
    /// True if the call was certainly not executed, so that it may be made again whatever it does.
    /// It may be false although the call was not executed. With the profiles of the kernel module
    /// and of the paper, errors that the network reports say nothing about execution.
    ///
    /// ```
    /// use homa::CallError;
    ///
    /// assert!(CallError::PortUnreachable.not_executed());
    /// assert!(!CallError::DeadlineExceeded.not_executed());
    /// ```
    pub fn not_executed(&self) -> bool {
        let refused_here = matches!(
            self,
            Self::EmptyMessage
                | Self::MessageTooLong { .. }
                | Self::AddressFamily { .. }
                | Self::Destination { .. }
                | Self::OtherShard { .. }
                | Self::NotSent { .. }
                | Self::HandshakeRefused { .. }
                | Self::Unprotected { .. }
        );
        let refused_there = matches!(self, Self::ProtocolUnreachable | Self::RequestTooLong { .. });
        refused_here || refused_there || self.is_retryable()
    }

    /// True if this engine or the server has too much to do: wait for
    /// [`Client::ready_to`](crate::Client::ready_to), or shed load. The call was not executed.
    pub fn is_overloaded(&self) -> bool {
        matches!(
            self,
            Self::TooManyCalls { .. }
                | Self::TooManyCallsTo { .. }
                | Self::SendMemoryFull { .. }
                | Self::TooManyPeers { .. }
                | Self::Overloaded
        )
    }

    /// True if the call was certainly not executed and may succeed if it is made again: after a
    /// pause if [`Self::is_overloaded`], otherwise at another server or when the server has
    /// started.
    pub fn is_retryable(&self) -> bool {
        self.is_overloaded() || matches!(self, Self::HostUnreachable | Self::PortUnreachable)
    }
}
