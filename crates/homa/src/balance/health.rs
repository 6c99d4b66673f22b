//! Which servers get no calls for a while, and what the end of an attempt says about its server.
//!
//! A server at which nothing listens is ejected at once, and one that fails or refuses several
//! calls in a row after these. When its time is over it gets a single call: an answer brings it
//! back, and another failure ejects it for twice as long.
//!
//! Invariant: the functions are pure; time is an argument.

use std::time::{Duration, Instant};

use crate::error::CallError;

/// Failures in a row after which a server is ejected.
const IN_A_ROW: u32 = 5;

/// How long a server is ejected first, and at most.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// What the end of an attempt says about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// It answered, whatever it said.
    Answered,
    /// It gave no answer, or refused the call because of its load.
    Failed,
    /// Nothing is there, or nothing that speaks with us.
    Absent,
    /// Nothing: the attempt was given up, or failed here.
    Unknown,
}

/// What an error of an attempt says about its server, and whether another attempt may be made.
pub(super) fn judge(error: &CallError, idempotent: bool) -> (AttemptEnd, bool) {
    match error {
        CallError::HostUnreachable
        | CallError::PortUnreachable
        | CallError::ProtocolUnreachable
        | CallError::HandshakeRefused { .. }
        | CallError::NotSent { .. } => (AttemptEnd::Absent, true),
        CallError::Overloaded => (AttemptEnd::Failed, true),
        CallError::Indeterminate | CallError::Unreachable => (AttemptEnd::Failed, idempotent),
        CallError::DeadlineExceeded
        | CallError::RuntimeBlocked
        | CallError::SendRefused { .. }
        | CallError::NewerPeer { .. } => (AttemptEnd::Failed, false),
        CallError::Abandoned
        | CallError::Status(_)
        | CallError::RequestTooLong { .. }
        | CallError::ResponseTooLong { .. } => (AttemptEnd::Answered, false),
        _ => (AttemptEnd::Unknown, false),
    }
}

/// The health of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// Failures since the last answer.
    failures: u32,
    /// Ejections since the last answer.
    ejections: u32,
    /// Until when it is ejected, until it has answered again.
    until: Option<Instant>,
    /// Whether the single call of a server whose time is over is in progress.
    on_trial: bool,
}

impl Health {
    /// Whether the server may get a call.
    pub(super) fn is_candidate(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now && !self.on_trial)
    }

    /// A call begins.
    pub(super) fn begun(&mut self, now: Instant) {
        self.on_trial |= self.until.is_some_and(|until| until <= now);
    }

    /// A call has ended. True if the server was ejected because nothing is there.
    pub(super) fn ended(&mut self, end: AttemptEnd, now: Instant) -> bool {
        match end {
            AttemptEnd::Answered => *self = Self::default(),
            AttemptEnd::Unknown => self.on_trial = false,
            AttemptEnd::Failed | AttemptEnd::Absent => {
                self.failures = self.failures.saturating_add(1);
                let absent = end == AttemptEnd::Absent;
                // A call that began before the server was ejected says nothing new about it.
                let in_place = self.until.is_none() || self.on_trial;
                self.on_trial = false;
                if in_place && (absent || self.until.is_some() || self.failures >= IN_A_ROW) {
                    let doubled = FIRST.saturating_mul(1 << self.ejections.min(16));
                    self.until = Some(now + doubled.min(LONGEST));
                    self.ejections += 1;
                    return absent;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_returns_by_one_call_and_is_ejected_for_longer() {
        let start = Instant::now();
        let mut health = Health::default();
        for _ in 1..IN_A_ROW {
            health.ended(AttemptEnd::Failed, start);
            assert!(health.is_candidate(start));
        }
        health.ended(AttemptEnd::Failed, start);
        assert!(!health.is_candidate(start));
        // The ends of older calls do not lengthen it.
        health.ended(AttemptEnd::Failed, start);
        let back = start + FIRST;
        assert!(health.is_candidate(back));
        health.begun(back);
        assert!(!health.is_candidate(back), "one call at a time");
        health.ended(AttemptEnd::Failed, back);
        assert!(!health.is_candidate(back + FIRST));
        assert!(health.is_candidate(back + 2 * FIRST));
        health.begun(back + 2 * FIRST);
        health.ended(AttemptEnd::Unknown, back + 2 * FIRST);
        assert!(health.is_candidate(back + 2 * FIRST), "a call that was given up says nothing");
        health.ended(AttemptEnd::Answered, back + 2 * FIRST);
        assert_eq!(health, Health::default());
    }

    #[test]
    fn an_absent_server_is_ejected_at_once_for_at_most_30_s() {
        let mut now = Instant::now();
        let mut health = Health::default();
        for _ in 0..40 {
            health.begun(now);
            assert!(health.ended(AttemptEnd::Absent, now));
            assert!(!health.is_candidate(now));
            now += LONGEST;
            assert!(health.is_candidate(now));
        }
    }

    #[test]
    fn failures_with_answers_between_them_do_not_eject() {
        let now = Instant::now();
        let mut health = Health::default();
        for _ in 0..100 {
            health.ended(AttemptEnd::Failed, now);
            health.ended(AttemptEnd::Answered, now);
        }
        assert!(health.is_candidate(now));
    }

    #[test]
    fn only_errors_of_calls_that_may_run_again_are_repeated() {
        let errors = [
            CallError::HostUnreachable,
            CallError::PortUnreachable,
            CallError::ProtocolUnreachable,
            CallError::NotSent { errno: 13 },
            CallError::Overloaded,
            CallError::Indeterminate,
            CallError::Unreachable,
            CallError::DeadlineExceeded,
            CallError::Abandoned,
            CallError::RequestTooLong { max: 1 },
            CallError::TooManyCalls { max: 1 },
            CallError::ShuttingDown,
        ];
        for error in errors {
            let (_, again) = judge(&error, false);
            assert!(!again || error.not_executed(), "{error:?}");
            let (end, again) = judge(&error, true);
            assert!(!again || end != AttemptEnd::Answered, "{error:?}");
        }
        assert!(judge(&CallError::Indeterminate, true).1);
        assert!(!judge(&CallError::Indeterminate, false).1);
    }
}
