//! Who answers for ports that no engine has any more.
//!
//! Every engine at an address sees the questions. One of them answers: whoever holds the address's
//! name among those of the ports (`ports`), from its first answer until it ends. Anybody can ask in
//! another's name, so that a second has so many answers and no more.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::ports::{self, Role};

/// Answers in a second; a server that gets none asks again.
const ANSWERS: u32 = 1_000;
/// Addresses of a host that are answered for.
const ADDRESSES_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub struct Orphans {
    roles: Vec<(IpAddr, Role)>,
    since: Instant,
    answers: u32,
}

impl Orphans {
    /// Nothing answered yet.
    pub fn new(now: Instant) -> Self {
        Self { roles: Vec::new(), since: now, answers: 0 }
    }

    /// A question arrived at one of our addresses for a port that is not ours: true if it is for us
    /// to answer.
    pub fn are_ours(&mut self, now: Instant, at: IpAddr, port: u16) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.answers) = (now, 0);
        }
        let ours = self.answers < ANSWERS && ports::is_free(port) && self.has_role(at);
        self.answers += u32::from(ours);
        ours
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
        // An address that no other test has.
        let at: IpAddr = format!("2001:db8::{:x}", std::process::id() & 0xffff).parse().unwrap();
        let free = 1;
        let mut answers = |at, now| {
            engines.each_mut().map(|engine| {
                (0..2 * ANSWERS).filter(|_| engine.are_ours(now, at, free)).count() as u32
            })
        };
        assert_eq!(answers(at, begun), [ANSWERS, 0]);
        assert_eq!(answers(at, begun + Duration::from_secs(1)), [ANSWERS, 0]);
        let [first, second] = engines;
        drop(first);
        let mut second = second;
        assert!(second.are_ours(begun + Duration::from_secs(2), at, free));
    }
}
