//! Answers for ports that no engine has any more.
//!
//! Every engine at an address receives the questions. One of them answers: the engine that holds
//! the address's name among those of the ports (`ports`), from its first answer until it ends. If
//! it is stalled, another engine answers questions that are repeated. The sender of a question can
//! be forged, so the answers per second are limited.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::ports::{self, OrphanRole};

/// Answers per second; a server that gets none asks again.
const ANSWERS: u32 = 1_000;
/// An engine that holds the name but does not answer for the first time is considered stalled. A
/// question that was first received longer ago than the second is a new one.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Most addresses of a host that are answered for.
const ADDRESSES_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub struct Orphans {
    roles: Vec<(IpAddr, OrphanRole)>,
    since: Instant,
    answers: u32,
    /// A port that was left for another engine to answer, and since when.
    left: Option<(u16, Instant)>,
}

impl Orphans {
    /// Nothing was answered yet.
    pub fn new(now: Instant) -> Self {
        Self { roles: Vec::new(), since: now, answers: 0, left: None }
    }

    /// A question arrived at one of our addresses for a port that is not ours; true if this engine
    /// should answer.
    pub fn are_ours(&mut self, now: Instant, at: IpAddr, port: u16) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.answers) = (now, 0);
        }
        let asked = self.answers < ANSWERS && ports::is_free(port);
        let ours = asked && (self.has_role(at) || self.is_left_alone(now, port));
        self.answers += u32::from(ours);
        ours
    }

    /// The engine that holds the name has not answered for a port; true once in a while.
    fn is_left_alone(&mut self, now: Instant, port: u16) -> bool {
        let since = self.left.filter(|(left, _)| *left == port).map(|(_, at)| now - at);
        let waits = since.filter(|since| *since < TIMEOUTS[1]);
        let alone = waits.is_some_and(|since| since >= TIMEOUTS[0]);
        if waits.is_none() || alone {
            self.left = Some((port, now));
        }
        alone
    }

    fn has_role(&mut self, at: IpAddr) -> bool {
        if self.roles.iter().any(|(address, _)| *address == at) {
            return true;
        }
        let role = if self.roles.len() < ADDRESSES_MAX { ports::take_role(at) } else { None };
        role.map(|role| self.roles.push((at, role))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_engine_answers_for_an_address_and_not_without_end() {
        let begun = Instant::now();
        let mut engines = [Orphans::new(begun), Orphans::new(begun)];
        // An address that no other test uses.
        let at: IpAddr = format!("2001:db8::{:x}", std::process::id() & 0xffff).parse().unwrap();
        let free = 1;
        let mut answers = |at, now| {
            engines.each_mut().map(|engine| {
                (0..2 * ANSWERS).filter(|_| engine.are_ours(now, at, free)).count() as u32
            })
        };
        assert_eq!(answers(at, begun), [ANSWERS, 0]);
        assert_eq!(answers(at, begun + Duration::from_secs(1)), [ANSWERS, 0]);
        // The first engine is stalled while a server asks every millisecond.
        let [first, mut second] = engines;
        let asked = begun + Duration::from_secs(3);
        let answered = (0..1_000)
            .filter(|milli| second.are_ours(asked + Duration::from_millis(*milli), at, free))
            .count();
        assert_eq!(answered, 9);
        drop(first);
        assert!(second.are_ours(begun + Duration::from_secs(5), at, free));
    }
}
