//! The requests of the host: RESEND and GRANT.

use super::books::{InBook, Owed};
use super::{Judge, MessageKey, PROMPT, TIMEOUT};

const MAX_INCOMING: u32 = 400_000;
const FIFO: u32 = 50_000;
const FIFO_LEVEL: u8 = 6;

impl Judge {
    pub(super) fn sent_resend(&mut self, key: MessageKey, (start, length): (u32, i32), level: u8) {
        let now = self.now;
        let Some(books) = self.rpcs.get_mut(&key).filter(|books| !books.ghost) else {
            return self.fault("RESEND for an unknown RPC".into());
        };
        let everything = (start, length) == (0, -1);
        let range = (start, start.saturating_add_signed(length));
        let fits = match &books.inc {
            Some(inc) => inc.missing().contains(&range),
            None => everything && (books.client || level == FIFO_LEVEL),
        };
        books.settle(Owed::Missing);
        let called = books.called.is_some_and(|at| now < at + PROMPT);
        let answers = books.called == Some(now);
        let same_round = books.asked.is_some_and(|at| now < at + 500);
        let since = books.heard.max(books.asked.unwrap_or(0));
        let patient = now >= since + TIMEOUT || (books.inc.is_none() && level == FIFO_LEVEL);
        let waits = books.awaits() || called || same_round;
        // An answer to NEED_ACK does not count for the ticks.
        if !answers && (patient || !called) {
            books.asked = Some(now);
        }
        let missing = books.inc.as_ref().map(InBook::missing);
        self.check(fits, || format!("RESEND of {range:?}, missing is {missing:?}"));
        self.check(level >= FIFO_LEVEL, || format!("RESEND at level {level}"));
        self.check(called || same_round || patient, || format!("RESEND {} us early", now - since));
        self.check(waits, || "RESEND while nothing is awaited".into());
    }

    pub(super) fn sent_grant(&mut self, key: MessageKey, offset: u32, level: u8) {
        let now = self.now;
        let waiting: Vec<(u32, u64, MessageKey)> = self
            .rpcs
            .iter()
            .filter_map(|(key, books)| Some((*key, books.inc.as_ref()?)))
            .filter(|(_, inc)| inc.scheduled && inc.granted < inc.length)
            .map(|(key, inc)| (inc.length - inc.received, inc.age, key))
            .collect();
        let total: u64 = self
            .rpcs
            .values()
            .filter_map(|books| books.inc.as_ref())
            .filter(|inc| inc.scheduled)
            .map(|inc| u64::from(inc.outstanding()))
            .sum();
        let strict = self.strict();
        let Some(books) = self.rpcs.get_mut(&key) else {
            return self.fault("GRANT for an unknown RPC".into());
        };
        let Some(inc) = books.inc.as_mut().filter(|inc| inc.scheduled) else {
            return self.fault("GRANT for a message that needs none".into());
        };
        let before = inc.granted;
        if inc.outstanding() == 0 {
            books.heard = now;
        }
        inc.granted = inc.granted.max(offset);
        let (received, length) = (inc.received, inc.length);
        let grows = offset > before || (!strict && offset == before);
        let ahead = offset.saturating_sub(received);
        let active = waiting.len().clamp(1, 8) as u32;
        self.check(grows, || format!("GRANT up to {offset} after {before}"));
        self.check(offset <= length, || format!("GRANT beyond {length}"));
        if level == FIFO_LEVEL {
            let window = MAX_INCOMING / 2;
            return self.check(ahead <= window + 3 * FIFO, || format!("{ahead} B ahead"));
        }
        let fresh = offset > before;
        let window = MAX_INCOMING / (active + 1);
        self.check(!fresh || ahead <= window, || format!("{ahead} B ahead, window {window}"));
        let after = total + u64::from(offset.saturating_sub(before));
        self.check(!fresh || after <= MAX_INCOMING.into(), || format!("{after} B granted in all"));
        if fresh && waiting.len() <= 8 {
            let mine = waiting.iter().find(|w| w.2 == key);
            let rank = waiting.iter().filter(|w| mine.is_some_and(|m| *w < m)).count() as u32;
            let expected = active.min(4).saturating_sub(1 + rank);
            self.check(u32::from(level) == expected, || {
                format!("GRANT at level {level}, rank {rank} of {active} has {expected}")
            });
        }
    }
}
