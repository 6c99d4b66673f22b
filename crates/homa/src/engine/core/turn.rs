//! A turn of the engine: receiving, then timers.
//!
//! If the process was stalled, the answers to its packets are already in its sockets. Therefore no
//! timer runs before the packets that were in the sockets when it was found due have been read.
//! Reading stops after one empty poll or after as many bytes as the queues held, so packets that
//! arrive without a pause cannot stop timers.
//!
//! Left out: how the protocol treats silence after a stall.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homa_proto::{Duration, Time};

use super::Core;
use crate::driver::{FULL_BATCH, TRAIN_OVERHEAD};

/// Bounds of the number of events that are made ready before the application is asked to handle
/// them. Between the bounds it is half of the RPCs in progress: one half is in flight while the
/// other half is handled.
const READY_MIN: usize = 16;
const READY_MAX: usize = 512;
/// A thread that spins reads the clock once per this many empty turns, because timers are
/// milliseconds.
const TURNS_PER_TICK: u32 = 8;
/// Full batches received per turn, and again before timers run.
const BATCHES_MAX: usize = 16;
/// How late timers may be, while packets arrive without a pause, before they force all earlier
/// arrivals to be read.
const LATE: Duration = Duration::millis(2);
/// How long timers wait for arrivals that are not read because the application or the link is busy.
const WAIT_MAX: Duration = Duration::secs(1);

/// How far the driver's last batch was processed.
#[derive(Clone, Copy, Default)]
pub(super) struct Arrivals {
    /// Trains in the batch.
    trains: usize,
    /// The train to continue with.
    next: usize,
    /// Bytes of it that were processed.
    offset: usize,
    /// The sockets were found empty after the engine's `now` was read.
    pub(super) exhausted: bool,
}

impl Arrivals {
    /// True if some of the batch were not processed yet.
    pub(super) fn are_left(&self) -> bool {
        self.next < self.trains
    }
}

/// How thoroughly a turn looks for arrivals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PollEffort {
    /// Something should be there.
    Thorough,
    /// Most looks find nothing, so use the cheapest call.
    Passing,
    /// The caller knows that nothing is there. An empty poll costs as much as a packet.
    None,
}

/// Timers that are due, but wait for arrivals to be read.
#[derive(Clone, Copy)]
pub(super) struct Overdue {
    /// When something was last received.
    since: Time,
    /// Bytes to be read first, in the kernel's accounting.
    unread: u64,
}

impl Core {
    /// True if the last look for arrivals found some, so that there may be more.
    pub fn has_received(&self) -> bool {
        self.arrivals.trains > 0
    }

    /// The number of turns so far, which can be read without the engine's lock.
    pub fn turns(&self) -> Arc<AtomicU64> {
        self.turns.clone()
    }

    /// Sends, receives, and runs timers.
    pub(super) fn exchange(&mut self, effort: PollEffort) {
        if self.ended.is_some() {
            return;
        }
        // Its only writer has the engine's lock, so this needs no atomic addition.
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.transmit();
        match effort {
            _ if self.arrivals.are_left() => {}
            PollEffort::None => self.arrivals = Arrivals::default(),
            _ => self.fetch(effort == PollEffort::Thorough),
        }
        let arrived = self.arrivals.trains > 0;
        if arrived {
            // The packets just sent may have been answered already, and the time in between is
            // measured.
            self.fresh = false;
            self.tick();
            // The siblings' grants must be known before more is granted here.
            self.state.links.refresh_siblings(&mut self.state.endpoint);
            self.receive();
            self.receive_more();
            // Otherwise packets wait, because the application's answers may share their datagrams.
            if self.state.ready.is_empty() {
                self.transmit();
            }
            self.idle_turns = 0;
        } else {
            self.idle_turns = self.idle_turns.wrapping_add(1);
        }
        self.expire_driver();
        self.handle_reports();
        let due = match arrived {
            // The timers are checked if the clock was just read, and now and then.
            false => self.fresh || self.idle_turns.is_multiple_of(TURNS_PER_TICK),
            // Packets that keep coming must not delay timers for long.
            true => self.state.endpoint.deadline().is_some_and(|at| at + LATE <= self.now),
        };
        if due {
            self.tick();
            self.state.links.refresh_siblings(&mut self.state.endpoint);
            self.run_timers();
        }
        // Nothing has changed otherwise.
        if arrived || due {
            self.state.links.publish(&self.state.endpoint);
        }
        self.fresh = false;
    }

    /// Runs the timers of the driver.
    fn expire_driver(&mut self) {
        if let Some(deadline) = self.driver.deadline() {
            let now = self.tick();
            if deadline <= now {
                self.driver.set_challenge(self.state.endpoint.challenge_at(now));
                self.driver.expire(now);
            }
        }
    }

    fn fetch(&mut self, expected: bool) {
        let trains = self.driver.receive(expected);
        self.arrivals = Arrivals { trains, next: 0, offset: 0, exhausted: expected && trains == 0 };
        while let Some(client) = self.driver.challenged() {
            let now = self.tick();
            self.state.note_challenged(now, &client);
        }
        let overflows = self.driver.counters().receive_overflows;
        // The kernel dropped packets, because senders sent more unasked than we can take.
        if std::mem::replace(&mut self.overflows, overflows) != overflows {
            self.state.endpoint.overflowed(self.now);
        }
        // Timers wait for these bytes to be read.
        if let Some(overdue) = &mut self.overdue {
            let lengths = (0..trains).map(|index| self.driver.received(index).bytes.len());
            let read: u64 = lengths.map(|length| (length + TRAIN_OVERHEAD) as u64).sum();
            overdue.unread = overdue.unread.saturating_sub(read);
        }
    }

    /// Receives another batch; false if there is none.
    pub(super) fn receive_batch(&mut self) -> bool {
        self.fetch(true);
        if self.arrivals.trains == 0 {
            return false;
        }
        self.fresh = false;
        self.tick();
        self.receive();
        true
    }

    /// Continues while batches are full, up to about as many packets as a turn sends. If an engine
    /// sent more than it reads, answers would wait in its sockets until they are too old.
    fn receive_more(&mut self) {
        for _ in 1..BATCHES_MAX {
            let full = self.arrivals.trains >= FULL_BATCH;
            if !full || self.arrivals.are_left() || !self.receive_batch() {
                return;
            }
        }
    }

    /// Processes arrivals until the application has enough to do: its answers to the first part can
    /// travel while it works on the next. Also stops if it is time to send.
    pub(super) fn receive(&mut self) {
        self.state.links.refresh(self.now, &mut self.state.endpoint);
        let (calls, requests) = self.state.endpoint.rpcs();
        let enough = (calls.max(requests) / 2).clamp(READY_MIN, READY_MAX);
        while self.arrivals.are_left() {
            let train = self.driver.received(self.arrivals.next);
            let port = self.driver.local()[train.socket].port();
            #[cfg(feature = "encryption")]
            // All datagrams of a train were sealed by one peer.
            if self.state.config.keys.is_some() {
                let identity = self.driver.identity(self.arrivals.next);
                self.state.sender_identity = identity.cloned();
                self.state.is_early_data = self.driver.is_early_data(self.arrivals.next);
            }
            let datagrams = train.bytes[self.arrivals.offset..].chunks(train.datagram);
            for bytes in datagrams {
                // The rest of the train is processed in the next turn, from this offset on.
                if self.state.ready.len() >= enough || self.has_control_backlog() {
                    return self.state.limit_memory(self.now);
                }
                self.arrivals.offset += bytes.len();
                self.state.receive(self.now, &train, bytes, port);
            }
            self.arrivals.next += 1;
            self.arrivals.offset = 0;
            if let Some(overdue) = &mut self.overdue {
                overdue.since = self.now;
            }
        }
        self.state.limit_memory(self.now);
    }

    /// Runs the timers that are due, unless earlier arrivals must be read first.
    fn run_timers(&mut self) {
        if self.state.endpoint.deadline().is_none_or(|deadline| deadline > self.now) {
            self.overdue = None;
        } else if self.has_read_all() {
            self.overdue = None;
            self.state.endpoint.expire(self.now);
            self.state.drain_events();
            self.transmit();
        }
    }

    /// Reads the packets that were in the sockets when a timer was found due; false if another turn
    /// is needed for this.
    fn has_read_all(&mut self) -> bool {
        // What lay in the sockets by now arrived before the timer was found due.
        if self.overdue.is_none() && !self.arrivals.exhausted {
            self.overdue = Some(Overdue { since: self.now, unread: self.driver.unread() });
        }
        for _ in 0..BATCHES_MAX {
            if self.arrivals.are_left() {
                break;
            }
            let all = self.overdue.is_none_or(|overdue| overdue.unread == 0);
            if all || self.arrivals.exhausted || !self.receive_batch() {
                return true;
            }
        }
        // If the application is slow for that long, timers no longer wait for it.
        let since = self.overdue.map_or(self.now, |overdue| overdue.since);
        self.arrivals.are_left() && self.now.since(since) >= WAIT_MAX
    }
}
