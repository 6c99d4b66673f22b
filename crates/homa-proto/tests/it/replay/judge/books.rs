//! The judge's record of RPCs and peers.

use super::{MAX_MESSAGE, UNSCHEDULED};

/// An answer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    Busy,
    Unknown,
    Ack,
    /// RESENDs, because NEED_ACK came too early.
    Missing,
    /// Retransmissions.
    Again,
}

/// A range asked for again: the starts of its packets that were not sent again yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub packets: Vec<u32>,
    pub end: u32,
    pub level: u8,
}

/// A message that this host sends.
#[derive(Clone, Debug)]
pub struct OutBook {
    pub length: u32,
    pub sent: u32,
    pub granted: u32,
    /// The level of the last GRANT.
    pub level: u8,
    /// The levels of all GRANTs, as bits.
    pub levels: u8,
    pub demands: Vec<Demand>,
}

impl OutBook {
    pub fn new(length: u32) -> Self {
        let granted = length.min(UNSCHEDULED);
        Self { length, sent: 0, granted, level: 0, levels: 1, demands: Vec::new() }
    }

    /// The only packet that may begin at `start`.
    pub fn packet(&self, payload: u32, start: u32) -> (u32, u32) {
        let unscheduled = self.length.min(UNSCHEDULED);
        let (base, limit) =
            if start < unscheduled { (0, unscheduled) } else { (unscheduled, self.length) };
        let begin = base + (start - base) / payload * payload;
        (begin, (begin + payload).min(limit))
    }

    /// Starts of the packets that hold a range of sent bytes.
    pub fn packets(&self, payload: u32, start: u32, end: u32) -> Vec<u32> {
        let mut starts = Vec::new();
        let mut at = start;
        while at < end {
            let packet = self.packet(payload, at);
            starts.push(packet.0);
            at = packet.1;
        }
        starts
    }
}

/// A message that this host receives.
#[derive(Clone, Debug)]
pub struct InBook {
    pub length: u32,
    /// Unscheduled, or granted by packets that left.
    pub granted: u32,
    pub age: u64,
    pub scheduled: bool,
    pub received: u32,
    pub end: u32,
    pub gaps: Vec<(u32, u32)>,
}

impl InBook {
    pub fn new(length: u32, incoming: u32, age: u64) -> Self {
        let granted = incoming.min(length);
        let scheduled = granted < length;
        Self { length, granted, age, scheduled, received: 0, end: 0, gaps: Vec::new() }
    }

    /// Takes a packet that is wholly new; discards others whole (Linux §2.3).
    pub fn insert(&mut self, start: u32, end: u32) -> bool {
        if end > self.length || start >= end {
            return false;
        }
        if start >= self.end {
            if start > self.end {
                self.gaps.push((self.end, start));
            }
            self.end = end;
        } else {
            let Some(at) = self.gaps.iter().position(|g| g.0 <= start && end <= g.1) else {
                return false;
            };
            let gap = self.gaps.remove(at);
            let rest = [(gap.0, start), (end, gap.1)];
            let rest = rest.into_iter().filter(|g| g.0 < g.1);
            self.gaps.splice(at..at, rest);
        }
        self.received += end - start;
        true
    }

    pub fn is_complete(&self) -> bool {
        self.received == self.length
    }

    /// The ranges that RESENDs may name.
    pub fn missing(&self) -> Vec<(u32, u32)> {
        let tail = (self.end < self.granted).then_some((self.end, self.granted));
        self.gaps.iter().copied().chain(tail).collect()
    }

    pub fn outstanding(&self) -> u32 {
        self.granted.saturating_sub(self.received)
    }
}

#[derive(Clone, Debug)]
pub struct Books {
    pub client: bool,
    /// Known only from a question about it.
    pub ghost: bool,
    /// The client's and the server's.
    pub ports: (u16, u16),
    pub out: Option<OutBook>,
    pub inc: Option<InBook>,
    /// Last sign of life, or the time since which something is awaited; microseconds.
    pub heard: u64,
    /// When RESENDs were last sent.
    pub asked: Option<u64>,
    /// When NEED_ACK last arrived for an incomplete response.
    pub called: Option<u64>,
    /// Answers that are due, and since when.
    pub owed: Vec<(Owed, u64)>,
    /// When the last byte of a server's response was first sent.
    pub finished: Option<u64>,
    pub need_acks: Vec<u64>,
}

impl Books {
    pub fn new(client: bool, ports: (u16, u16), now: u64) -> Self {
        Self {
            client,
            ghost: false,
            ports,
            out: None,
            inc: None,
            heard: now,
            asked: None,
            called: None,
            owed: Vec::new(),
            finished: None,
            need_acks: Vec::new(),
        }
    }

    /// An RPC that does not exist, or no longer.
    pub fn ghost(now: u64) -> Self {
        Self { ghost: true, ..Self::new(false, (0, 0), now) }
    }

    pub fn is_complete(&self) -> bool {
        self.inc.as_ref().is_some_and(InBook::is_complete)
    }

    /// Settles an answer that was due; false if there was none.
    pub fn settle(&mut self, what: Owed) -> bool {
        let at = self.owed.iter().position(|(owed, _)| *owed == what);
        at.map(|at| self.owed.remove(at)).is_some()
    }

    /// Forgotten: a question was answered, or a client fell silent within its request.
    pub fn is_over(&self, now: u64) -> bool {
        let silent = !self.client && !self.is_complete() && now > self.heard + 101_000;
        (self.ghost && self.owed.is_empty()) || (silent && self.should_wait())
    }

    fn should_wait(&self) -> bool {
        self.inc.as_ref().is_some_and(|inc| !inc.missing().is_empty())
    }

    /// Since when the other side is silent although this host waits for something.
    pub fn should_ask(&self, now: u64) -> Option<u64> {
        // After 0.1 s the RPC is given up.
        let alive = now < self.heard + 99_000;
        (self.awaits() && alive).then(|| self.heard.max(self.asked.unwrap_or(0)))
    }

    /// Something granted, or a response, is missing.
    pub fn awaits(&self) -> bool {
        match (&self.inc, &self.out) {
            _ if self.ghost || self.is_complete() => false,
            (Some(inc), _) => !inc.missing().is_empty(),
            (None, Some(out)) => self.client && out.sent >= out.granted,
            (None, None) => false,
        }
    }

    pub fn should_need_ack(&self) -> Option<u64> {
        let finished = self.finished?;
        // The second and later come after one millisecond, not two or three.
        let last = self.need_acks.last().map(|at| at.saturating_sub(1_000));
        // Then ours asks with backoff, and gives up in the end.
        Some(last.unwrap_or(finished)).filter(|since| *since < finished + 90_000)
    }
}

/// The judge's record of another host.
#[derive(Clone, Debug, Default)]
pub struct PeerBooks {
    pub cutoffs: Option<([i32; 8], u16)>,
    pub cutoffs_sent: Option<u64>,
    /// The ids that CUTOFFS may carry, and when the reason for them arrived.
    pub cutoffs_owed: Vec<(u64, u64)>,
}

impl PeerBooks {
    /// The level of unscheduled bytes to this host.
    pub fn unscheduled_level(&self, length: u32) -> u8 {
        let Some((cutoffs, _)) = self.cutoffs else { return 6 };
        let fits = |level: &u8| cutoffs[usize::from(*level)] >= length.min(MAX_MESSAGE) as i32;
        (1..8).rev().find(fits).unwrap_or(0)
    }
}
