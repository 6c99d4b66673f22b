//! A server without room for a request says so: BUSY with a time to come back (UDP only; profile
//! `default`). Its client sends nothing about the request before that time has passed.
//!
//! The times of clients that are sent away are spread, so that they do not come back together, and
//! grow while nothing is accepted.
//!
//! Invariants: one answer for each first packet of a request, and within what may be sent to an
//! address that is not validated.

use crate::endpoint::Endpoint;
use crate::packet::{Body, Data, Packet};
use crate::units::{Duration, Time};

/// Clients that are sent away come back this much later than the one before.
const SPACING: Duration = Duration::micros(200);
/// Least time to come back, and the least after a long time without room.
const LEAST: Duration = Duration::millis(20);
const LEAST_WHILE_FULL: Duration = Duration::secs(2);
/// Greatest time to come back.
pub(crate) const MOST: Duration = Duration::secs(60);

/// When clients that are sent away come back.
#[derive(Debug, Default)]
pub(crate) struct ReturnTimes {
    /// The next client's.
    next: Time,
    /// Since when no request was accepted; `None`: the last one was.
    full_since: Option<Time>,
}

impl ReturnTimes {
    /// A request is accepted.
    #[inline]
    pub(super) fn note_room(&mut self) {
        self.full_since = None;
    }

    /// How long the next client that is sent away should wait.
    fn next(&mut self, now: Time) -> Duration {
        let full = now.since(*self.full_since.get_or_insert(now));
        // A server that was full for long is asked more rarely.
        let least = LEAST.max(Duration(full.0 / 4).min(LEAST_WHILE_FULL));
        let at = self.next.max(now + least).min(now + MOST);
        self.next = at + SPACING;
        at.since(now)
    }
}

impl Endpoint {
    /// DATA of a request was dropped because there is no room for it.
    pub(crate) fn send_away(&mut self, now: Time, packet: &Packet, data: &Data) {
        let tells = self.config.policy().wire.come_back;
        // One answer for each request is enough, so only its first packet gets one.
        if !tells || data.span.offset > 0 || packet.id.from_server() || !self.may_answer() {
            return;
        }
        self.counters.busys_sent += 1;
        let body = Body::Busy { come_back: Some(self.return_times.next(now)) };
        let ports = (packet.local_port, packet.remote_port);
        self.queue_control_to(packet.peer, ports, packet.id.server(), body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_back_in_turn_and_later_if_nothing_is_accepted() {
        let mut times = ReturnTimes::default();
        let start = Time::ZERO + Duration::secs(1);
        let waits: [Duration; 3] = core::array::from_fn(|_| times.next(start));
        assert_eq!(waits, [20_000, 20_200, 20_400].map(Duration::micros));
        assert_eq!(times.next(start + Duration::secs(4)), Duration::secs(1));
        assert_eq!(times.next(start + Duration::secs(100)), LEAST_WHILE_FULL);
        times.note_room();
        assert_eq!(times.next(start + Duration::secs(200)), LEAST);
        let long = (0..1_000_000).map(|_| times.next(start + Duration::secs(200))).max();
        assert_eq!(long, Some(MOST));
    }
}
